# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Labs on this machine, with tolerances for a busy machine.

A slow machine can only lower the measured rates.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from benchmarks.lab import (
    Lab,
    LabError,
    Link,
    network,
    on_off_flows,
    remove_leftovers,
)
from benchmarks.launch import RanksFailedError
from rules import tree

ATTEMPTS = 3


@pytest.fixture(scope="module", autouse=True)
def _possible():
    if reason := Lab.unavailable():
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _leaves_nothing():
    yield
    assert namespaces_of(os.getpid()) == []


def namespaces_of(pid):
    return [
        name
        for name in network.namespaces()
        if (lab := network.Name.of_namespace(name)) and lab.pid == pid
    ]


def python(code):
    """A command that runs the code and finds the modules of this repository."""
    return [sys.executable, "-c", textwrap.dedent(code)]


ENV = {"PYTHONPATH": str(tree.REPOSITORY)}


def sent_mbit(lab, host, seconds):
    """Mbit/s on the host's uplink now, headers included."""
    before, start = lab.traffic(host).up_bytes, time.monotonic()
    time.sleep(seconds)
    after, end = lab.traffic(host).up_bytes, time.monotonic()
    return (after - before) * 8e-6 / (end - start)


def check_goodput(low, high, measure):
    """Checks that no attempt is above the range and that one attempt is inside."""
    for _ in range(ATTEMPTS):
        mbit = measure()
        assert mbit < high
        if mbit > low:
            return
    raise AssertionError(f"{mbit} Mbit/s, and less than {low} in every attempt")


# ---- Links ---------------------------------------------------------------------------


@pytest.mark.alone
def test_a_link_has_its_rate_each_way_and_can_change_during_a_stream():
    with Lab([Link(up_mbit=50, down_mbit=20), Link(), Link()]) as lab:
        check_goodput(42, 52, lambda: lab.goodput_mbit(0, 1, seconds=0.7))
        check_goodput(16, 22, lambda: lab.goodput_mbit(1, 0, seconds=0.5))
        lab.flow(0, 2, seconds=30)
        time.sleep(0.3)
        check_goodput(42, 55, lambda: sent_mbit(lab, 0, 0.3))
        lab.change(0, up_mbit=10)
        time.sleep(0.1)
        check_goodput(8, 12, lambda: sent_mbit(lab, 0, 0.3))
        lab.change(0, up_mbit=None)
        time.sleep(0.1)
        assert sent_mbit(lab, 0, 0.3) > 100


@pytest.mark.alone
def test_a_cut_loses_all_packets_both_ways_until_it_is_healed():
    with Lab([Link(), Link(), Link()]) as lab:
        lab.cut(0)
        for source, target in ((0, 1), (1, 0)):
            with pytest.raises(LabError, match=f"From host {source} to host {target}"):
                lab.round_trip_ms(source, target, within_s=0.3)
        assert lab.round_trip_ms(1, 2) < 50
        lab.heal(0)
        assert lab.round_trip_ms(1, 0, within_s=3) < 50
        assert lab.round_trip_ms(0, 1, ipv6=True) < 50


@pytest.mark.alone
def test_cross_traffic_fills_an_uplink_and_ends_with_the_ranks():
    flows = on_off_flows(0, 2, seed=1, until_s=3, mean_on_s=1.0, mean_off_s=0.1)
    code = "from benchmarks.lab import rank; import time; rank.ready(); time.sleep(1.2)"
    with Lab([Link(up_mbit=20), Link(), Link()]) as lab:
        lab.run(python(code), num_ranks=1, events=flows, deadline_s=30, env=ENV)
        assert lab.traffic(0).up_bytes > 500_000
        time.sleep(0.2)
        assert sent_mbit(lab, 0, 0.2) < 1  # the traffic ends with the ranks


@pytest.mark.alone
@pytest.mark.skipif(
    not os.path.exists("/dev/net/tun"), reason="no tap devices: /dev/net/tun is missing"
)
def test_a_delay_is_added_each_way_and_can_change():
    with Lab([Link(delay_ms=20), Link()]) as lab:
        assert 40 < lab.round_trip_ms(0, 1, count=5) < 70
        lab.change(0, delay_ms=5)
        assert 10 < lab.round_trip_ms(0, 1, count=5) < 40
        with pytest.raises(LabError, match="neither delay nor loss"):
            lab.change(1, loss=0.1)


# ---- Ranks ---------------------------------------------------------------------------

WATCH = """
    import time
    from benchmarks.launch import emit
    from benchmarks.lab import rank

    lateness = rank.ready()
    start = last = time.monotonic()
    longest = slept = 0.0
    while last - start < 1.2:
        slept += lateness.pause()
        time.sleep(0.005)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    emit(longest=longest, slept=slept)
    print("done")
"""


def test_a_script_delays_stops_and_kills_ranks():
    events = """
        at 100 ms late member 0 for 300 ms
        at 200 ms stop member 1 for 500 ms
        at 300 ms kill member 2
        at 100 ms cut host 3 for 5 s
    """
    with Lab([Link()] * 4) as lab:
        late, stopped, killed, other = lab.run(
            python(WATCH), events=events, deadline_s=30, env=ENV
        )
        assert late.events[0]["slept"] == pytest.approx(0.3)
        assert stopped.events[0]["longest"] > 0.45
        assert (killed.exit_code, killed.was_killed) == (-signal.SIGKILL, True)
        assert killed.events == []
        assert not killed.is_failure
        assert other.events[0]["slept"] == 0
        assert list(other.lines) == ["done"]
        # The cut would have lasted longer than the ranks do.
        assert lab.round_trip_ms(3, 0, within_s=3) < 50


def test_a_rank_that_fails_stops_the_others_and_gives_its_error():
    code = """
        import os, time
        assert os.environ["RANK"] != "1", "on purpose"
        time.sleep(60)
    """
    with Lab([Link()] * 2) as lab, pytest.raises(RanksFailedError) as caught:
        lab.run(python(code), deadline_s=2)
    assert "AssertionError: on purpose" in str(caught.value)
    assert 'File "<string>", line 4' in str(caught.value)  # where the other rank was


def test_a_script_that_never_begins_is_an_error():
    with (
        Lab([Link()]) as lab,
        pytest.raises(RanksFailedError, match="script never began"),
    ):
        lab.run(["true"], events="at 0 s kill member 0", deadline_s=10)


ALLREDUCE = """
    import time
    import torch
    import torch.distributed as dist
    import aikido_torch
    from benchmarks.launch import emit

    dist.init_process_group("aikido")
    tensor = torch.ones(1 << 18)
    dist.barrier()
    start = time.monotonic()
    dist.all_reduce(tensor)
    emit(seconds=time.monotonic() - start, sum=tensor.sum().item())
    dist.destroy_process_group()
"""


def test_ranks_of_the_backend_connect_through_their_links():
    with Lab([Link(up_mbit=50, down_mbit=50)] * 2) as lab:
        ends = lab.run(python(ALLREDUCE), deadline_s=60, env=ENV)
    for end in ends:
        assert end.events[0]["sum"] == 2 << 18
        # 1 MiB each way at 50 Mbit/s takes 168 ms, minus the burst of 16 ms.
        assert end.events[0]["seconds"] > 0.14


CONGESTION_CONTROL = """
    import os, socket
    import torch
    import torch.distributed as dist
    import aikido_torch
    from benchmarks.launch import emit

    def controls():
        for name in os.listdir("/proc/self/fd"):
            try:
                with socket.socket(fileno=os.dup(int(name))) as one:
                    one.getpeername()
                    yield one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            except OSError:
                continue  # no socket, not connected or of another kind

    before = len(list(controls()))
    dist.init_process_group("aikido")
    for _ in range(4):  # a busy host looks far at first
        dist.all_reduce(torch.ones(1 << 18))
    emit(names=[name.rstrip(b"\\0").decode() for name in controls()], before=before)
    dist.barrier()  # a rank that ends closes its connections
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("delay_ms", "bulk"), [(0, "cubic"), (20, "bbr")], ids=["near", "far"]
)
def test_large_messages_between_near_hosts_use_cubic_instead_of_bbr(delay_ms, bulk):
    if delay_ms and not os.path.exists("/dev/net/tun"):
        pytest.skip("no tap devices: /dev/net/tun is missing")
    links = [Link(delay_ms=delay_ms), Link()] if delay_ms else [Link()] * 2
    with Lab(links, tcp="bbr") as lab:
        ends = lab.run(python(CONGESTION_CONTROL), deadline_s=60, env=ENV)
    for end in ends:
        assert (bulk == "cubic") == ("cubic" in end.events[0]["names"])


def test_two_level_sends_a_whole_sum_once_over_a_shared_link():
    code = """
        import os
        import torch
        import torch.distributed as dist
        from aikido_torch import Options
        from benchmarks.launch import emit

        options = Options(collectives_algorithm="two_level")
        dist.init_process_group("aikido", pg_options=options)
        tensor = torch.ones(1 << 20)
        dist.all_reduce(tensor)
        emit(local_rank=os.environ["LOCAL_RANK"], sum=tensor.sum().item())
        dist.destroy_process_group()
    """
    with Lab([Link(), Link()]) as lab:
        before = [lab.traffic(host).up_bytes for host in (0, 1)]
        ends = lab.run(python(code), host_of=[0, 1, 1, 0], deadline_s=60, env=ENV)
        sent = [lab.traffic(host).up_bytes - before[host] for host in (0, 1)]
    assert [end.events[0]["local_rank"] for end in ends] == ["0", "0", "1", "1"]
    assert {end.events[0]["sum"] for end in ends} == {4 << 20}
    # 4 MiB, headers and the rendezvous. Direct would send twice as much.
    for num_bytes in sent:
        assert 1 << 22 < num_bytes < 1.2 * (1 << 22)


# ---- Nothing is left -----------------------------------------------------------------

OWNER = """
    import os, sys
    from benchmarks.lab import Lab, Link

    program = (
        "import os, subprocess, time\\n"
        "child = subprocess.Popen(['sleep', '99'], start_new_session=True)\\n"
        "print(os.getpid(), child.pid)\\n"
        "time.sleep(99)"
    )
    with Lab([Link(up_mbit=100)] * 3) as lab:
        lab.round_trip_ms(0, 1)
        lab.run(
            [sys.executable, "-c", program],
            num_ranks=1,
            deadline_s=99,
            on_line=lambda rank, line: print(line, flush=True),
        )
"""


def hear_signals():
    """Restores signals that background processes and nohup ignore."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def owner():
    """A process with a lab, a rank in the lab, and a process started by the rank."""
    with subprocess.Popen(
        python(OWNER),
        env=os.environ | ENV,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,
    ) as process:
        rank, child = map(int, process.stdout.readline().split())
        assert runs(rank)
        assert runs(child)
        assert len(namespaces_of(process.pid)) == 4
        yield process, rank, child
        process.kill()
    remove_leftovers()


def runs(pid):
    return network.start_of_process(pid) is not None


def wait_for_end(pid):
    deadline = time.monotonic() + 10
    while runs(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


def fail_in_a_lab():
    with Lab([Link(up_mbit=100)] * 3):
        assert len(namespaces_of(os.getpid())) == 4
        raise ZeroDivisionError


def test_an_exception_leaves_nothing():
    with pytest.raises(ZeroDivisionError):
        fail_in_a_lab()
    assert namespaces_of(os.getpid()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_nothing(owner, number):
    process, rank, child = owner
    process.send_signal(number)
    assert process.wait(timeout=20) != 0
    assert namespaces_of(process.pid) == []
    assert not runs(rank)
    wait_for_end(child)


def test_a_killed_owner_leaves_files_that_the_next_lab_removes(owner):
    process, rank, child = owner
    with Lab([Link()]) as living:
        process.kill()
        process.wait()
        wait_for_end(rank)
        assert runs(child)
        assert len(namespaces_of(process.pid)) == 4
        with Lab([Link()]):
            assert namespaces_of(process.pid) == []
        wait_for_end(child)
        living.round_trip_ms(0, 0)


def test_the_lab_of_a_running_owner_is_not_touched(owner):
    process, rank, _ = owner
    assert not any(str(process.pid) in name for name in remove_leftovers())
    assert len(namespaces_of(process.pid)) == 4
    assert runs(rank)
