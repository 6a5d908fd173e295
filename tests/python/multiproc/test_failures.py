# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Ranks that die, leave, stop, or never join, and foreign processes: never a hang."""

import os
import re
import signal
import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import _backend
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import die, late, run_ranks, stop
from harness.failures import failure_of

VICTIM = 1
SKIP = SkipStraggler(min_contributors=2, floor_ms=20, ceiling_ms=20)


def lose_a_rank(rank, size, count):
    def reduce():
        dist.all_reduce(torch.ones(count))

    for _ in range(3):
        reduce()
    dist.barrier()
    if rank == VICTIM:
        die(after=0.3)
    start = time.time()
    failure = failure_of(reduce)
    while failure.name == "nothing" and time.time() - start < 20:
        failure = failure_of(reduce)
    # Later calls and messages fail at once.
    later = failure_of(reduce)
    message = failure_of(lambda: dist.recv(torch.empty(3), VICTIM))
    sent = failure_of(lambda: dist.send(torch.empty(3), VICTIM))
    return {
        "s": time.time() - start,
        "all": [failure, later, message, sent],
    }


@pytest.mark.parametrize("count", [10, 2_000_000])
def test_a_killed_rank_is_named_on_all_others_at_once(count):
    results = run_ranks(4, lose_a_rank, count, group_timeout=60, may_die={VICTIM})
    assert results[VICTIM] is None
    for rank, seen in enumerate(results):
        if rank == VICTIM:
            continue
        assert seen["s"] < 0.3 + 2
        for name, culprit, text, seconds in seen["all"]:
            assert name == "PeerLostError", text
            assert culprit == VICTIM
            assert 'rank 1 is lost to group "' in text
            assert text.endswith(
                "look at its log, then go on without it: aikido_torch.reconfigure(...) "
                "or a new group"
            )
            assert seconds < 2


def go_on_without_a_rank(rank, size, count):
    tensor = torch.full((count,), float(rank + 1))
    steps = 40
    # So long that only the dead rank is skipped, on a busy machine too.
    patient = SkipStraggler(min_contributors=2, floor_ms=500, ceiling_ms=500)
    dist.barrier()
    if rank == VICTIM:
        die(after=0.3)
    values, seconds = [], []
    for _ in range(steps):
        late(0.02)
        start = time.perf_counter()
        work = aikido_torch.all_reduce(result := tensor.clone(), policy=patient)
        seconds.append(time.perf_counter() - start)
        values.append((result.unique().tolist(), work.outcome().skipped))
    strict = failure_of(lambda: dist.all_reduce(tensor))
    return values, max(seconds), strict


@pytest.mark.parametrize("count", [10, 2_000_000])
def test_skippable_calls_continue_without_a_killed_rank(count):
    results = run_ranks(
        4, go_on_without_a_rank, count, group_timeout=60, may_die={VICTIM}
    )
    survivors = [result for rank, result in enumerate(results) if rank != VICTIM]
    for values, slowest, strict in survivors:
        assert values == survivors[0][0]  # equal bits
        # Ranks 0, 2 and 3 give 1, 3 and 4. The missing contribution counts as their
        # mean.
        assert values[-1] == ([pytest.approx(8 * 4 / 3)], [VICTIM])
        assert slowest < 2.5
        assert (strict.name, strict.rank) == ("PeerLostError", VICTIM)


def lose_who_was_there(rank, size, folder):
    """Rank 2 dies inside the barrier while rank 1 has not called it yet."""
    failed = Path(folder) / "failed"
    group = dist.new_group(timeout=timedelta(seconds=20))
    dist.barrier()
    if rank == 1:
        while not failed.exists():
            late(0.01)
        return None
    if rank == 2:
        die(after=0.3)
    failure = failure_of(
        lambda: group.monitored_barrier(timedelta(seconds=20), wait_all_ranks=False)
    )
    failed.touch()
    return failure


def test_a_monitored_barrier_blames_the_lost_rank_and_not_the_late_one(tmp_path):
    results = run_ranks(
        3, lose_who_was_there, str(tmp_path), group_timeout=60, may_die={2}
    )
    failure = results[0]
    assert (failure.name, failure.rank) == ("PeerLostError", 2), failure.text
    assert "failed to pass" not in failure.text


def lose_a_rank_while(rank, size, folder):
    """Each survivor does something else while one rank is killed."""
    file = Path(folder) / "killed_at"
    tensor = torch.ones(3)
    dist.barrier()
    if rank == VICTIM:
        late(0.3)
        file.write_text(repr(time.time()))
        die()
    if rank == 0:  # in a collective without the victim
        failures = [failure_of(lambda: dist.all_reduce(tensor))]
    elif rank == 2:  # receives from any source and from the victim
        asked = dist.irecv(tensor, VICTIM)
        failures = [failure_of(lambda: dist.recv(torch.ones(3)))]
        failures.append(failure_of(asked.wait))
    else:  # computes; its next call fails
        while not file.exists():
            late(0.01)
        late(0.25)
        failures = [failure_of(lambda: dist.all_reduce(tensor))]
    return time.time() - float(file.read_text()), failures


@pytest.mark.alone
def test_a_killed_rank_is_noticed_by_ranks_in_any_kind_of_call(tmp_path):
    results = run_ranks(
        4, lose_a_rank_while, str(tmp_path), group_timeout=60, may_die={VICTIM}
    )
    for rank, seen in enumerate(results):
        if rank == VICTIM:
            continue
        seconds, failures = seen
        assert seconds < 0.3 + (0.25 if rank == 3 else 0), (rank, seconds)
        for name, culprit, text, _ in failures:
            assert (name, culprit) == ("PeerLostError", VICTIM), text
            assert 'rank 1 is lost to group "' in text


def fall_silent(rank, size):
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if rank == 2:
        stop(2.5)
    failure = failure_of(lambda: dist.all_reduce(tensor))
    late(2.5 if rank != 2 else 0.5)
    # The stopped rank is back, and the next call succeeds.
    tensor = torch.full((1000,), rank + 1.0)
    dist.all_reduce(tensor)
    # After that, rank 0 leaves, which fails no message between other ranks.
    if rank == 3:
        late(0.5)
        dist.send(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 3)
    return failure, tensor[0].item()


def test_a_stopped_rank_ends_the_calls_that_need_it_and_comes_back():
    options = aikido_torch.Options(heartbeat_interval_ms=100, heartbeat_timeout_ms=1000)
    for rank, (failure, value) in enumerate(
        run_ranks(4, fall_silent, group_timeout=60, options=options)
    ):
        name, culprit, text, seconds = failure
        assert (name, culprit) == ("PeerLostError", 2), text
        assert "rank 2 has sent nothing to group" in text
        assert rank == 2 or 0.9 < seconds < 2.4
        assert value == 10


def leave_early(rank, size):
    tensor = torch.ones(100)
    dist.all_reduce(tensor)
    if rank == VICTIM:
        dist.destroy_process_group()
        return None
    late(0.2)
    failures = [
        failure_of(lambda: dist.all_reduce(tensor)),
        failure_of(lambda: dist.recv(tensor, VICTIM)),
    ]
    # The two remaining ranks are a majority of three.
    assert aikido_torch.all_reduce(tensor, policy=SKIP).outcome().skipped == [VICTIM]
    return failures


def test_a_rank_that_left_in_order_is_reported_as_having_left():
    for rank, failures in enumerate(run_ranks(3, leave_early)):
        for name, culprit, text, seconds in failures or ():
            assert rank != VICTIM
            assert (name, culprit) == ("PeerLostError", VICTIM)
            assert "rank 1 has left group" in text
            why = (
                "it called destroy_process_group, or its program ended: look at its log"
            )
            assert f"({why})" in text
            assert seconds < 2


def time_out(rank, size):
    dist.barrier()
    failures = {}
    if rank == 0:
        failures["group"] = failure_of(dist.barrier)
        failures["message"] = failure_of(lambda: dist.recv(torch.ones(2), 1))
        work = aikido_torch.all_reduce(
            torch.ones(2), async_op=True, timeout=timedelta(milliseconds=300)
        )
        failures["call"] = failure_of(work.wait)
        failures["outcome"] = failure_of(work.outcome)
        start = time.perf_counter()
        work = dist.barrier(async_op=True)
        try:
            work.wait(timedelta(milliseconds=200))
        except Exception as error:
            waited = time.perf_counter() - start
            failures["wait"] = (type(error).__name__, str(error), waited)
        late(1.2)
    else:
        late(6)
    return failures


def test_a_call_that_no_other_rank_joins_times_out_and_names_the_missing():
    failures, *_ = run_ranks(3, time_out, group_timeout=1.0)
    bounds = {"group": (0.99, 2), "message": (0.99, 2), "call": (0.29, 0.95)}
    for name, (least, most) in bounds.items():
        kind, culprit, text, seconds = failures[name]
        assert kind == "TimedOutError", text
        assert culprit == 1
        assert re.search(r" (Timed out|closed|timeout) ", text)
        assert least <= seconds < most
    assert failures["outcome"].name == "TimedOutError"
    text = failures["group"].text
    assert text.startswith('barrier(), collective 2 of group "')
    assert "still missing: rank 1 (its last call known here is number 1), " in text
    assert failures["wait"][2] < 1


def miss_calls(rank, size):
    group = dist.new_group(timeout=timedelta(seconds=0.4))
    x = torch.ones(100)
    calls = {
        "all_reduce": lambda: dist.all_reduce(x, group=group),
        "large": lambda: dist.all_reduce(torch.ones(400_000), group=group),
        "barrier": lambda: dist.barrier(group=group),
        "skip": lambda: aikido_torch.all_reduce(
            x, policy=SkipStraggler(min_contributors=4), group=group
        ),
        # The method of the group is called directly, because torch's function accepts
        # only Gloo in older versions.
        "monitored": lambda: group.monitored_barrier(
            timedelta(seconds=0.4), wait_all_ranks=False
        ),
        "gather": lambda: dist.all_gather_into_tensor(
            torch.empty(size * 100), x, group=group
        ),
    }
    failures = []
    for name, call in calls.items():
        for _ in range(2):
            dist.barrier()
            if rank == 2:
                late(0.8)
            failures.append((name, failure_of(call)))
    return failures


def test_all_blame_the_rank_that_did_not_call_and_not_a_waiting_rank():
    for rank, failures in enumerate(run_ranks(4, miss_calls, group_timeout=30)):
        for name, failure in failures:
            assert failure.name == "TimedOutError", (name, rank, failure.text)
            assert failure.rank == 2, (name, rank, failure.text)
            assert "missing: rank 2 (its last call known here is" in failure.text
            if name == "monitored" and rank == 0:
                assert failure.text.startswith("Rank 2 failed to pass monitoredBarr")


def pause(rank, size):
    """One rank stops for a second, as in a debugger or on a frozen machine."""
    dist.barrier()
    if rank == 2:
        stop(1.0)
    start = time.perf_counter()
    tensor = torch.full((50_000,), rank + 1.0)
    dist.all_reduce(tensor)
    return tensor[0].item(), time.perf_counter() - start


def test_a_briefly_stopped_rank_is_waited_for():
    results = run_ranks(3, pause)
    assert [value for value, _ in results] == [6, 6, 6]
    assert results[0][1] > 0.5


def abort_everywhere(rank, size):
    dist.barrier()
    if rank == 1:
        late(0.2)
        _backend.backend_of(None).abort()
    failure = failure_of(lambda: dist.all_reduce(torch.ones(3)))
    return failure, failure_of(dist.barrier)


def test_a_group_aborted_by_one_rank_is_aborted_for_all():
    # Torch's flight recorder writes a file before an abort, which is not tested here.
    for failures in run_ranks(3, abort_everywhere, env={"TORCH_FR_BUFFER_SIZE": "0"}):
        for name, culprit, text, seconds in failures:
            assert name == "AbortedError", text
            assert culprit == 1
            assert "was aborted by rank 1" in text
            assert seconds < 2


def be_molested(rank, size):
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    (runtime,) = _backend._runtimes.values()
    host, port = runtime.address.split()
    address = (host, int(port))
    garbage = (
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 20,
        b"\0" * 4096,
        bytes(range(256)) * 64,
        b"x",
    )
    for text in garbage:
        with socket.create_connection(address, timeout=5) as stranger:
            stranger.sendall(text)
            dist.all_reduce(tensor)
    idle = [socket.create_connection(address, timeout=5) for _ in range(200)]
    for _ in range(5):
        dist.all_reduce(tensor)
    # A new group can still be made.
    group = dist.new_group()
    dist.all_reduce(tensor, group=group)
    for connection in idle:
        connection.close()
    deadline = time.monotonic() + 10
    while runtime.num_strangers < 204 and time.monotonic() < deadline:
        late(0.02)
    dist.barrier()
    return runtime.num_strangers, tensor.unique().tolist()


def test_foreign_connections_are_counted_and_do_no_harm():
    for num_strangers, values in run_ranks(2, be_molested):
        assert num_strangers == 204
        assert values == [2.0**11]


def come_late(rank, size, folder, who_is_missing, who_is_late):
    if rank == who_is_missing:
        late(3)
        return "nothing", None, "", 0
    if rank == who_is_late:
        late(1)

    def init():
        dist.init_process_group(
            "aikido",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=1.5 if who_is_missing is not None else 30),
        )
        dist.all_reduce(torch.ones(3))

    return failure_of(init)


def test_a_rank_that_joins_late_is_waited_for(tmp_path):
    for failure in run_ranks(3, come_late, str(tmp_path), None, 0, backend=None):
        assert failure.name == "nothing"


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_rank_that_never_joins_is_named(tmp_path, missing):
    failures = run_ranks(3, come_late, str(tmp_path), missing, None, backend=None)
    for rank, (name, _, text, seconds) in enumerate(failures):
        if rank == missing:
            continue
        assert name in ("TimedOutError", "PeerLostError"), text
        assert f"rank {missing}" in text
        assert seconds < 4


def fork_a_child(rank, size):
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    child = os.fork()
    if child == 0:
        # Calls on the parent's group must fail. The rest is done by a normal exit.
        failure = failure_of(lambda: dist.all_reduce(tensor))
        failure_of_send = failure_of(lambda: dist.send(tensor, 1 - rank))
        dist.destroy_process_group()
        _backend._shut_down_all()
        _backend._runtimes.clear()
        is_told = all("forked" in f.text for f in (failure, failure_of_send))
        os._exit(42 if is_told else 43)
    until = time.time() + 20
    ended, status = 0, 0
    while not ended and time.time() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "the child hangs"
    # The group of the parent still works.
    dist.all_reduce(tensor)
    return os.waitstatus_to_exitcode(status), tensor[0].item()


def test_a_forked_child_ends_and_leaves_its_parents_group_alone():
    assert run_ranks(2, fork_a_child) == [(42, 4.0)] * 2
