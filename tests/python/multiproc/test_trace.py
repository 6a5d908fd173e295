# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Traces of real ranks."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import astuple
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store
from torch.nn.parallel import DistributedDataParallel

import aikido_torch
from aikido_torch import Options, trace
from aikido_torch._backend import backend_of, recorder_of_process
from aikido_torch.straggler import ActiveBackup
from aikido_torch.testing import run_ranks
from aikido_torch.trace.analyze import _pauses, _summary
from aikido_torch.trace.export import _chrome, _html
from aikido_torch.trace.record import _record
from aikido_torch.trace.record._spans import Kind, SpanOutcome
from aikido_torch.trace.record._trace_store import Board, base_of
from harness.flight import analysed, is_at_odds

MS = 1_000_000


def one_is_late(rank, size, late_s):
    dist.barrier()
    trace.start()
    if rank == size - 1:
        time.sleep(late_s)
    dist.all_reduce(torch.ones(1 << 20))
    trace.stop()
    return _record.take()


def test_waiting_for_a_late_rank_is_separate_from_the_transfer():
    dumps = run_ranks(3, one_is_late, 0.25)
    assert len({dump.job for dump in dumps}) == 1
    for dump in dumps[:2]:
        (call,) = [s for s in dump.spans if s.kind == Kind.OPERATION]
        assert call.peer == 2
        waited = call.first_ns - call.begin_ns
        assert waited > 100 * MS  # of 250 ms; this rank leaves the barrier earlier
        assert call.end_ns - call.first_ns < waited
    (last,) = [s for s in dumps[2].spans if s.kind == Kind.OPERATION]
    assert last.first_ns == last.begin_ns
    # On one clock, all ranks see the late call at the same time.
    called = [
        s.begin_ns if dump.rank == 2 else s.first_ns
        for dump in dumps
        for s in dump.aligned()
        if s.kind == Kind.OPERATION
    ]
    assert max(called) - min(called) < 20 * MS


def test_received_bytes_match_the_sent_bytes():
    dumps = run_ranks(3, one_is_late, 0.0)
    sent, received = {}, {}
    for dump in dumps:
        for s in dump.spans:
            if s.kind == Kind.SEND_CHUNK:
                key = (dump.rank, s.peer)
                sent[key] = sent.get(key, 0) + s.bytes
            elif s.kind == Kind.RECEIVE_CHUNK:
                key = (s.peer, dump.rank)
                received[key] = received.get(key, 0) + s.bytes
            elif s.kind == Kind.SEND:
                assert s.outcome == SpanOutcome.COMPLETE
                assert s.begin_ns <= s.first_ns <= s.end_ns
    assert sent.keys() == received.keys()
    assert len(sent) == 6
    # Frames that arrived before the receiver recorded have no spans there.
    for key, num_bytes in sent.items():
        assert received[key] <= num_bytes


def clocks(rank, size):
    dist.barrier()
    time.sleep(0.3)
    return _record.take().clock


@pytest.mark.alone
def test_ranks_of_one_machine_find_that_they_share_a_clock():
    for clock in run_ranks(4, clocks):
        assert clock is not None
        assert abs(clock.offset_ns) < 0.5 * MS
        assert abs(clock.drift) < 1e-3


def pairs(rank, size, late_s):
    """Two groups; the second member of each is late."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    gone = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = groups[rank // 2]
    dist.barrier()
    trace.start()
    dist.all_reduce(torch.ones(1 << 16), group=gone[rank // 2])
    dist.destroy_process_group(gone[rank // 2])
    if rank % 2:
        time.sleep(late_s)
    dist.all_reduce(torch.ones(1 << 20), group=own)
    trace.stop()
    return _record.take(), _record.take(group=own)


def test_peers_in_subgroups_are_named_by_their_rank_of_the_job():
    dumps, of_pairs = zip(*run_ranks(4, pairs, 0.25), strict=True)
    for dump in dumps:
        other = dump.rank ^ 1
        groups = dump.groups()
        chunks = [s for s in dump.spans if s.kind == Kind.RECEIVE_CHUNK]
        of_pair = [s for s in chunks if len(groups[s.name][1]) == 2]
        assert len({s.name for s in of_pair}) == 2
        assert {s.peer for s in of_pair} == {other}
        assert {groups[s.name][1] for s in of_pair} == {
            tuple(sorted((dump.rank, other)))
        }
        calls = [s for s in dump.spans if s.kind == Kind.OPERATION]
        assert len(calls) == 2
        if dump.rank % 2 == 0:
            assert calls[1].peer == other
    assert [(dump.rank, dump.size) for dump in of_pairs] == [(r, 4) for r in range(4)]
    ranks = _summary.summarize(dumps).ranks
    assert [ranks[r].num_calls for r in range(4)] == [2] * 4
    assert ranks[1].last >= 0.5
    assert ranks[3].last >= 0.5


def one_does_not_call(rank, size):
    """Rank 3 calls only after all ranks have taken their spans."""
    own = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    dist.barrier()
    trace.start()
    dist.all_reduce(torch.ones(64), group=own)
    dist.all_gather([torch.ones(8) for _ in range(size)], torch.ones(8))
    work = None
    if rank != 3:
        work = dist.all_reduce(torch.ones(64), group=own, async_op=True)
    if rank < 2:
        work.wait()
    dist.barrier()
    dump = _record.take()
    dist.barrier()
    if rank == 3:
        work = dist.all_reduce(torch.ones(64), group=own, async_op=True)
    work.wait()
    return dump, _record.take()


def test_the_tool_of_torch_names_the_rank_without_the_hanging_call(tmp_path):
    dumps, later = zip(*run_ranks(4, one_does_not_call), strict=True)
    (hung,) = [s for s in dumps[2].spans if s.outcome == SpanOutcome.OPEN]
    assert hung.peer == 3
    assert hung.first_ns == hung.end_ns
    (at_odds,) = [c for c in analysed(tmp_path, dumps) if is_at_odds(c)]
    assert at_odds.missing_ranks == {3}
    assert at_odds.expected_ranks == {2, 3}
    calls = [s for s in later[2].spans if s.kind == Kind.OPERATION]
    (ended,) = [s for s in calls if s.name == hung.name]
    assert (ended.number, ended.outcome) == (hung.number, SpanOutcome.COMPLETE)


def one_primary_is_late(rank, size, num_calls, late_calls):
    """Rank 2 of three primaries is late; rank 3 shadows its data shard."""
    policy = ActiveBackup(min_contributors=1, floor_ms=60, ceiling_ms=60)
    dist.barrier()
    trace.start()
    outcomes = []
    for step in range(num_calls):
        recorder_of_process().set_step(step // 2)
        if rank == 2 and step in late_calls:
            time.sleep(0.5)
        data_shard = 2 if rank == 3 else None
        work = aikido_torch.all_reduce(
            torch.ones(100_000),
            op=dist.ReduceOp.AVG,
            policy=policy,
            data_shard=data_shard,
            async_op=True,
        )
        work.wait()
        shards = work.outcome().shards
        outcomes.append([(s.num_elements, s.contributors, s.stand_ins) for s in shards])
    dist.barrier()
    trace.stop()
    return _record.take(), outcomes


def test_a_report_names_the_backup_of_a_late_primary(tmp_path, capsys):
    num_calls = 10
    results = run_ranks(4, one_primary_is_late, num_calls, (5, 6))
    dumps, outcomes = zip(*results, strict=True)
    assert all(told == outcomes[0] for told in outcomes)
    # The expectation comes from the outcomes: on a busy machine other ranks are late
    # too.
    expected = {}
    for primary in range(3):
        calls, steps, num_bytes, own, without = 0, set(), 0, 0, 0
        for number, shards in enumerate(outcomes[0]):
            filled = [n for n, _, by in shards if (primary, 3) in by]
            if filled:
                calls += 1
                steps.add(number // 2)
                num_bytes += 4 * sum(filled)
            is_lost = any(primary not in got for _, got, _ in shards)
            without += is_lost
            own += not filled and not is_lost
        counts = calls, len(steps), num_bytes, own, without, num_calls
        expected[primary] = (primary, 3 if calls else None, *counts)
    assert expected[2][2] > 0
    assert expected[2][5] > 0
    for some in (dumps, dumps[:1], dumps[3:]):
        found = _summary.summarize(some).backups
        assert {each.primary: astuple(each) for each in found} == expected
    trace.report(dumps)
    assert "Primaries and who stood in for them" in capsys.readouterr().out
    _html.write_html(tmp_path / "report.html", dumps)
    row = f"<tr><td>2</td><td>3</td><td>{expected[2][2]}</td>"
    assert row in (tmp_path / "report.html").read_text()


def overtake(rank, size, num_bulk, num_urgent):
    """Urgent messages one after the other while bulk messages are in progress."""
    bulk = [torch.ones(8 << 20) for _ in range(num_bulk)]
    urgent = [torch.ones(1024) for _ in range(num_urgent)]
    dist.barrier()
    trace.start()
    works = []
    if rank == 0:
        for i, tensor in enumerate(bulk):
            works.append(aikido_torch.send(tensor, 1, tag=i, async_op=True))
        for i, tensor in enumerate(urgent):
            time.sleep(0.002)
            tag = num_bulk + i
            works.append(
                aikido_torch.send(tensor, 1, tag=tag, priority=7, async_op=True)
            )
    else:
        works += [dist.irecv(t, 0, tag=i) for i, t in enumerate(bulk + urgent)]
    for work in works:
        work.wait()
    trace.stop()
    counters = backend_of(None).counters
    dist.barrier()
    return _record.take(), counters["preemptions"]


def test_an_overtaken_message_has_pauses_that_name_the_urgent_ones(tmp_path):
    through_sockets = Options(transport_shared_memory_bytes=0)
    dumps, preemptions = zip(
        *run_ranks(2, overtake, 4, 20, options=through_sockets), strict=True
    )
    pauses = [
        p for p in _pauses.pauses_of(dumps[0].spans) if p.by and p.by.priority == 7
    ]
    # One pause can hold several urgent messages.
    assert 0 < len(pauses) <= preemptions[0] <= 3 * len(pauses)
    for pause in pauses:
        assert pause.reason == "paused for priority 7"
        assert pause.message.bytes == 4 * (8 << 20)
        assert pause.message.priority == 0
        assert pause.message.first_ns < pause.begin_ns
        assert pause.begin_ns < pause.end_ns < pause.message.end_ns
        assert pause.by.bytes == 4 * 1024
    _chrome.write_chrome(tmp_path / "all.json", dumps)
    listed = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    shown = [e for e in listed if e.get("cat") == "pause" and e["pid"] == 0]
    named = [e for e in shown if e["name"] == "paused for priority 7"]
    assert len(named) == len(pauses)
    assert all(e["args"]["for"].startswith("message ") for e in named)


def train(rank, size):
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trace.watch(model, optimizer)
    for step in range(8):
        if step == 3:
            trace.start()
        if step == 6:
            trace.stop()
        optimizer.zero_grad()
        model(torch.randn(4, 64)).sum().backward()
        optimizer.step()
    return _record.take()


def test_calls_of_a_training_belong_to_its_steps():
    for dump in run_ranks(2, train):
        calls = [s for s in dump.spans if s.kind == Kind.OPERATION]
        assert {s.step for s in calls} == {3, 4, 5}
        sections = [s for s in dump.spans if s.kind == Kind.SECTION]
        assert {s.step for s in sections} == {3, 4, 5}
        for call in calls:
            (backward,) = [
                s
                for s in sections
                if dump.names[s.name] == "backward" and s.step == call.step
            ]
            assert backward.begin_ns < call.begin_ns < backward.end_ns


def train_until_traced(rank, size, file):
    """Trains until the requested trace exists; then rank 0 ends the training."""
    net = torch.nn.Linear(64, 8)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = trace.watch(model, optimizer)
    arming = None
    if rank == 0:
        address = _record.address()
        command = [
            sys.executable,
            "-m",
            "aikido_torch.trace",
            "arm",
            "--store",
            address,
        ]
        command += ["--steps", "60:63", "--output", file, "--timeout", "60"]
        arming = subprocess.Popen(command, stdout=-1, stderr=subprocess.STDOUT)
    done = torch.zeros(1)
    while not done.item():
        optimizer.zero_grad()
        model(torch.randn(4, 64)).sum().backward()
        optimizer.step()
        # The command has to start, and all ranks have to read the request.
        while watch.step == 50 and arming is not None and arming.poll() is None:
            if Board(base_of(_get_default_store())).num_requests():
                break
            time.sleep(0.05)
        time.sleep(0.2 if 50 < watch.step < 59 else 0.01)
        done = torch.tensor([float(rank == 0 and arming.poll() is not None)])
        dist.broadcast(done, src=0)
    watch.remove()
    return "" if arming is None else arming.communicate()[0].decode()


def test_a_program_outside_the_job_traces_steps_of_all_ranks(tmp_path):
    file = tmp_path / "all.json"
    said = run_ranks(3, train_until_traced, str(file), rendezvous="tcp", deadline=100)
    assert "steps 60 to 63 of 3 ranks" in said[0], said[0]
    events = json.loads(file.read_text())["traceEvents"]
    for rank in range(3):
        steps = {
            e["args"]["step"]
            for e in events
            if e["pid"] == rank and e.get("cat") == "operation" and "step" in e["args"]
        }
        assert steps == {59, 60, 61, 62, 63}  # the requested steps and the step before


def train_and_arm(rank, size, file):
    """Rank 1 requests a trace of steps 30 to 33 of all ranks while all train."""
    net = torch.nn.Linear(64, 8)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = trace.watch(model, optimizer)
    dist.barrier()
    asked = trace.capture_steps(30, 33, output=file) if rank == 1 else None
    done = torch.zeros(1)
    while not done.item():
        optimizer.zero_grad()
        model(torch.randn(4, 64)).sum().backward()
        optimizer.step()
        time.sleep(0.05 if watch.step < 30 else 0.005)
        done = torch.tensor([float(asked is not None and asked.done())])
        dist.broadcast(done, src=1)
    watch.remove()
    return None if asked is None else [dump.rank for dump in asked.result()]


def test_any_rank_can_request_a_trace_of_all_ranks(tmp_path):
    file = tmp_path / "all.json"
    assert run_ranks(3, train_and_arm, str(file), rendezvous="tcp")[1] == [0, 1, 2]
    events = json.loads(file.read_text())["traceEvents"]
    for rank in range(3):
        assert {29, 30, 31, 32, 33} == {
            e["args"]["step"]
            for e in events
            if e["pid"] == rank and e.get("cat") == "operation" and "step" in e["args"]
        }


def has_time_namespaces():
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--time", "--monotonic", "5", "true"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.alone
@pytest.mark.skipif(
    not has_time_namespaces(), reason="needs root and time namespaces (Linux 5.6)"
)
def test_clocks_of_ranks_that_are_5_s_apart_are_aligned(tmp_path):
    ahead_s = (0, 5, 3)
    ranks, dumps = [], []
    for rank, seconds in enumerate(ahead_s):
        command = [sys.executable, "-m", "harness.traced_rank", f"{tmp_path}/store"]
        dumps.append(tmp_path / f"rank{rank}.trace")
        command += [str(rank), str(len(ahead_s)), str(dumps[-1])]
        if seconds:
            command = ["unshare", "--time", "--monotonic", str(seconds), *command]
        tests = Path(__file__).parents[1]
        path = os.pathsep.join([str(tests), str(tests.parents[1])])
        env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen(command, env=env))
    assert [rank.wait(timeout=90) for rank in ranks] == [0] * len(ranks)
    for seconds, path in zip(ahead_s, dumps, strict=True):
        clock = trace.read(path).clock
        assert clock is not None
        for at_ns in (clock.at_ns, clock.at_ns + 1000 * MS):
            error_ns = clock.of_rank_0(at_ns) - (at_ns - seconds * 1000 * MS)
            assert abs(error_ns) < 0.5 * MS
