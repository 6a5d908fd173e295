# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Uses of the work of a call, and hooks around calls."""

import gc
import math
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import WorkResult

import aikido_torch
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks
from conformance.versions import since

CPU = torch.device("cpu")


def number(group=None):
    return (group or dist.group.WORLD)._get_sequence_number_for_group()


def count_calls(rank, size):
    seen = [number()]
    for _ in range(3):
        dist.all_reduce(torch.ones(1))
        seen.append(number())
    group = dist.new_group()
    born = number()
    seen.append(number(group))
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    seen += [work._get_sequence_number(), number(group)]
    work.wait()
    seen.append(number() - born)
    # Every kind of collective counts, but messages do not.
    outputs = [torch.empty(1) for _ in range(size)]
    dist.all_gather(outputs, torch.ones(1), group=group)
    dist.broadcast(torch.ones(1), 0, group=group)
    dist.barrier(group=group)
    if rank == 0:
        dist.send(torch.ones(1), 1, group=group)
    elif rank == 1:
        dist.recv(torch.ones(1), 0, group=group)
    seen.append(number(group))
    return seen


@since(2, 15)
def test_calls_are_counted_in_each_group_by_itself():
    wanted = [0, 1, 2, 3, 0, 1, 1, 0, 4]
    assert run_ranks(2, count_calls) == [wanted] * 2


def count_inner(rank, size):
    before = number()
    outputs = [torch.empty(1) for _ in range(size)]
    dist.reduce(torch.ones(1), 0)
    dist.gather(torch.ones(1), outputs if rank == 0 else None)
    dist.scatter(torch.ones(1), outputs if rank == 0 else None)
    dist.all_to_all(outputs, outputs)
    dist.reduce_scatter(torch.ones(1), outputs)
    return number() - before


@since(2, 15)
def test_all_collectives_are_counted():
    assert run_ranks(2, count_inner) == [5] * 2


def look_at_futures(rank, size):
    tensor = torch.full((4,), rank + 1.0)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    value = future.wait()
    seen = [value[0].tolist() == [3.0] * 4, tensor.tolist() == [3.0] * 4]
    result = work.get_future_result().wait()
    seen += [WorkResult(result) == WorkResult.SUCCESS, work.is_completed()]
    seen += [work.is_success(), work.exception() is None]
    # A chained future, and a future that is made long after the call has ended.
    chained = work.get_future().then(lambda f: f.value()[0] + 1)
    chained = chained.then(lambda f: f.value() * 2)
    seen.append(chained.wait().tolist() == [8.0] * 4)
    works = [dist.all_reduce(torch.ones(n), async_op=True) for n in range(5)]
    values = torch.futures.collect_all([w.get_future() for w in works]).wait()
    seen.append([v.value()[0].sum().item() for v in values] == [0, 2, 4, 6, 8])
    outputs = [torch.empty(1) for _ in range(size)]
    work = dist.all_gather(outputs, torch.tensor([float(rank)]), async_op=True)
    gathered = work.get_future().wait()
    gathered = gathered[0] if isinstance(gathered[0], list) else gathered
    seen.append([g.item() for g in gathered] == [0.0, 1.0])
    work = dist.barrier(async_op=True)
    work.get_future().wait()
    seen.append(work.is_completed())
    return seen


@since(2, 13)
def test_futures_carry_the_result():
    assert run_ranks(2, look_at_futures) == [[True] * 10] * 2


def wait_with_timeout(rank, size):
    if rank == 1:
        late(0.4)
    work = dist.all_reduce(torch.ones(3), async_op=True)
    text = ""
    if rank == 0:
        try:
            work.wait(timedelta(milliseconds=50))
        except RuntimeError as error:
            text = str(error)
    work.wait()  # the time-out of the call itself is longer
    return text


def test_waiting_may_take_its_own_timeout():
    first, second = run_ranks(2, wait_with_timeout)
    assert "time" in first.lower()
    assert second == ""


def wait_in_two_stages(rank, size):
    """Each kind of call, with a rank that calls after 1.5 times the limit."""
    limit, found = 0.2, []
    calls = {
        "all_reduce": lambda: dist.all_reduce(torch.ones(4), async_op=True),
        "barrier": lambda: dist.barrier(async_op=True),
        "recv": lambda: (
            dist.isend(torch.ones(4), 1) if rank == 0 else dist.irecv(torch.ones(4), 0)
        ),
        "skips": lambda: aikido_torch.all_reduce(
            torch.ones(4), policy=SkipStraggler(), async_op=True
        ),
    }
    for name, call in calls.items():
        dist.barrier()
        if rank == 0:
            late(1.5 * limit)
            call().wait()
            continue
        work = call()
        begin = time.monotonic()
        try:
            work.wait(timedelta(seconds=limit))
            found.append((name, "no error"))
        except RuntimeError as error:
            if "time" not in str(error).lower():
                found.append((name, str(error)))
        took = time.monotonic() - begin
        if not limit - 0.01 <= took < 1.4 * limit:
            found.append((name, took))
        work.wait()
    return found


def test_a_wait_has_one_deadline_for_all_that_it_does():
    assert run_ranks(2, wait_in_two_stages) == [[], []]


def look_at_failure(rank, size):
    if rank == 1:
        late(1)
        return True
    group = dist.group.WORLD
    work = group.allreduce([torch.ones(3)], timeout=timedelta(milliseconds=200))
    future = work.get_future()
    result = work.get_future_result()
    seen = []
    try:
        work.wait()
        seen.append("no error")
    except RuntimeError:
        pass
    try:
        future.wait()
        seen.append("no error in the future")
    except RuntimeError:
        pass
    if not work.is_completed() or work.is_success():
        seen.append("no failure")
    if work.exception() is None:
        seen.append("no exception")
    if WorkResult(result.wait()) != WorkResult.TIMEOUT:
        seen.append("another result")
    return seen


@since(2, 13)
def test_a_failed_work_says_so_everywhere():
    assert run_ranks(2, look_at_failure, may_die=[1])[0] == []


def drop_works(rank, size):
    answers = []
    for n in (3, 50_000):
        for _ in range(20):
            tensor = torch.full((n,), rank + 1.0)
            dist.all_reduce(tensor, async_op=True)
            del tensor
        gc.collect()
        kept = torch.full((n,), rank + 1.0)
        dist.all_reduce(kept, async_op=True)
        outputs = [torch.empty(n) for _ in range(size)]
        dist.all_gather(outputs, torch.full((n,), float(rank)), async_op=True)
        dist.broadcast(torch.empty(n), 0, async_op=True)
        dist.all_reduce(torch.ones(n), async_op=True).get_future().then(
            lambda future: future.value()
        )
        dist.barrier()
        answers.append(bool((kept == 3).all()))
        answers.append([o[-1].item() for o in outputs] == [0.0, 1.0])
    return answers


def test_dropped_works_neither_stop_nor_free():
    assert run_ranks(2, drop_works) == [[True] * 4] * 2


def measure(rank, size):
    tensor = torch.ones(50_000)
    untimed = dist.all_reduce(tensor, async_op=True)
    untimed.wait()
    dist.group.WORLD._enable_collectives_timing()
    seen = []
    try:
        untimed._get_duration()
        seen.append("a duration before timing was asked for")
    except RuntimeError:
        pass
    if rank == 1:
        late(0.1)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    duration = work._get_duration()
    if not (math.isfinite(duration) and 0 < duration < 20_000):
        seen.append(f"duration {duration} ms")
    if rank == 0 and duration < 50:
        seen.append(f"duration {duration} ms although rank 1 came 100 ms late")
    return seen


def test_durations_are_known_when_asked_for():
    assert run_ranks(2, measure) == [[]] * 2


def refuse_duration(rank, size):
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    try:
        work._get_duration()
    except RuntimeError:
        return True
    return False


def test_a_duration_that_was_not_asked_for_is_an_error():
    assert run_ranks(2, refuse_duration) == [True] * 2


def hook_calls(rank, size):
    group, before, after = dist.group.WORLD, [], []
    group.register_pre_hook(1, lambda a: before.append((a.name.name, a.op_id)))
    group.register_post_hook(
        2, lambda a: after.append((a.name.name, a.op_id, a.work is not None))
    )
    dist.all_reduce(torch.ones(2))
    dist.broadcast(torch.ones(2), 0)
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.ones(1), 0)
    group.unregister_pre_hook(1)
    group.unregister_post_hook(2)
    dist.all_reduce(torch.ones(2))
    same_ids = [b[1] for b in before] == [a[1] for a in after]
    return [b[0] for b in before], same_ids, all(a[2] for a in after)


@pytest.mark.skipif(
    not hasattr(dist.ProcessGroup, "register_pre_hook"), reason="not in this torch"
)
def test_hooks_run_before_and_after_each_call():
    for rank, (names, same_ids, have_works) in enumerate(run_ranks(2, hook_calls)):
        last = "RECV" if rank else "SEND"
        assert names == ["ALLREDUCE", "BROADCAST", "BARRIER", last]
        assert same_ids
        assert have_works


def calls_with(hook):
    """Three calls of the default group, each of which calls `hook`."""
    dist.group.WORLD._register_on_completion_hook(hook)
    for _ in range(3):
        dist.all_reduce(torch.ones(10))
    dist.group.WORLD._wait_for_pending_works()


def hook_completion(rank, size):
    seen = []
    calls_with(
        lambda info: seen.append((info.op_type.name, info.seq, info.active_duration))
    )
    return seen, dist.group.WORLD._has_hooks()


def test_a_hook_sees_every_completed_call():
    for seen, has_hooks in run_ranks(2, hook_completion):
        assert [(name, seq) for name, seq, _ in seen] == [
            ("ALLREDUCE", 1),
            ("ALLREDUCE", 2),
            ("ALLREDUCE", 3),
        ]
        assert all(duration >= timedelta(0) for _, _, duration in seen)
        assert has_hooks


def hook_slowly(rank, size):
    seen = []

    def hook(info):
        if info.seq == 1:
            late(0.05)  # longer than the time that other hooks are made to wait
        seen.append(info.seq)

    calls_with(hook)
    return seen


def test_a_hook_that_is_held_up_is_not_overtaken_by_itself():
    assert run_ranks(2, hook_slowly) == [[1, 2, 3]] * 2


def hook_badly(rank, size):
    seen = []

    def hook(info):
        seen.append(info.seq)
        raise ValueError("a hook that fails")

    calls_with(hook)
    return seen


def test_a_hook_that_raises_ends_neither_the_process_nor_the_hook():
    assert run_ranks(2, hook_badly) == [[1, 2, 3]] * 2


def hook_abort(rank, size):
    calls = []
    group = dist.group.WORLD
    if not group.supports_abort_hooks:
        return None
    group.register_abort_hook(1, lambda: calls.append("first"))
    group.register_abort_hook(2, lambda: calls.append("second"))
    group.unregister_abort_hook(2)
    if rank == 0:
        try:
            group.allreduce([torch.ones(1)], timeout=timedelta(milliseconds=200)).wait()
        except RuntimeError:
            calls.append("error")
    else:
        late(0.5)
    dist.group.WORLD.abort()
    return calls


@pytest.mark.skipif(
    not hasattr(dist.ProcessGroup, "supports_abort_hooks"), reason="not in this torch"
)
def test_a_hook_runs_before_a_group_is_aborted():
    # A failed call does not abort an aikido group: its user does.
    assert run_ranks(2, hook_abort, may_die=[1])[0] == ["error", "first"]


def record_flight(rank, size):
    dist.all_reduce(torch.ones(3))
    dist.broadcast(torch.ones(3), 0)
    return torch._C._distributed_c10d._dump_fr_trace_json(backend="aikido").decode()


@pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d, "FlightRecorderHook"),
    reason="not in this torch",
)
def test_the_flight_recorder_of_torch_lists_our_calls():
    for trace in run_ranks(2, record_flight):
        assert "all_reduce" in trace
        assert "broadcast" in trace
