# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Error, time and aftermath of a call that no other rank joins."""

import re
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from aikido_torch.testing import late, run_ranks
from conformance.versions import TORCH, since

pytestmark = pytest.mark.waiting

# Earlier versions of torch allow it for Gloo only.
HAS_MONITORED_BARRIER = TORCH >= (2, 15)
needs_monitored_barrier = since(2, 15)
# Text that torch's own tests search in the error of a time-out, including blanks.
TIMED_OUT = r" (Timed out|closed|timeout) "


def seconds(value):
    return timedelta(seconds=value)


def error_of(call):
    """(seconds of the call, text of its error)."""
    begin = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        return time.monotonic() - begin, str(error)
    return time.monotonic() - begin, ""


CALLS = {
    "barrier": lambda group: dist.barrier(group),
    "all_reduce": lambda group: dist.all_reduce(torch.ones(3), group=group),
    "broadcast": lambda group: dist.broadcast(torch.ones(3), 1, group=group),
    "all_gather": lambda group: dist.all_gather(
        [torch.ones(3) for _ in range(2)], torch.ones(3), group=group
    ),
    "reduce": lambda group: dist.reduce(torch.ones(3), 0, group=group),
    "gather": lambda group: dist.gather(
        torch.ones(3), [torch.ones(3) for _ in range(2)], 0, group=group
    ),
    "scatter": lambda group: dist.scatter(torch.ones(3), None, 1, group=group),
    "reduce_scatter": lambda group: dist.reduce_scatter(
        torch.ones(3), [torch.ones(3) for _ in range(2)], group=group
    ),
    "all_to_all_single": lambda group: dist.all_to_all_single(
        torch.ones(4), torch.ones(4), group=group
    ),
    "recv": lambda group: dist.recv(torch.ones(3), 1, group=group),
    "recv of anyone": lambda group: dist.recv(torch.ones(3), group=group),
}


def call_alone(rank, size, name):
    group = dist.new_group(timeout=seconds(0.5))
    if rank == 1:
        late(1.0)
        return None
    return error_of(lambda: CALLS[name](group))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_nobody_joins_ends_after_the_timeout_of_its_group(name):
    took, text = run_ranks(2, call_alone, name, may_die=[1])[0]
    assert 0.4 <= took < 1.5
    assert re.search(TIMED_OUT, text)


def change_timeout(rank, size):
    group = dist.new_group(timeout=seconds(60))
    dist.all_reduce(torch.ones(3), group=group)
    dist.set_timeout(timedelta(milliseconds=300), group)
    if rank == 1:
        late(0.8)
        return None
    return error_of(lambda: dist.all_reduce(torch.ones(3), group=group))


@pytest.mark.skipif(not hasattr(dist, "set_timeout"), reason="not in this torch")
def test_a_new_timeout_holds_for_the_next_call():
    took, text = run_ranks(2, change_timeout, may_die=[1])[0]
    assert 0.25 <= took < 2
    assert re.search(TIMED_OUT, text)


def wait_for_ever(rank, size):
    """Time-outs of centuries, at each place that takes a time-out."""
    never = timedelta(days=365 * 1000)
    group = dist.new_group(timeout=never)
    if rank == 1:
        late(0.1)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    options = dist.AllreduceOptions()
    options.timeout = never
    work = dist.group.WORLD.allreduce([tensor], options)
    if rank == 1:
        late(0.1)
    work.wait(never)
    dist.distributed_c10d._set_pg_timeout(never, dist.group.WORLD)
    if rank == 0:
        dist.send(tensor, 1)
    else:
        late(0.1)
        dist.recv(tensor, 0)
    if HAS_MONITORED_BARRIER:
        dist.monitored_barrier(timeout=never)
    return tensor.tolist()


def test_a_timeout_may_be_longer_than_any_time():
    assert run_ranks(2, wait_for_ever) == [[4.0] * 3] * 2


def time_out_one_call(rank, size):
    """The time-out of a single call, in a group with a long time-out."""
    group = dist.new_group(timeout=seconds(300))
    if rank == 1:
        late(0.7)
        return None
    options = dist.BarrierOptions()
    options.timeout = timedelta(milliseconds=200)
    return error_of(lambda: group.barrier(options).wait())


def test_a_call_may_have_a_timeout_of_its_own():
    took, text = run_ranks(2, time_out_one_call, may_die=[1])[0]
    assert 0.15 <= took < 2
    assert re.search(TIMED_OUT, text)


def go_on_elsewhere(rank, size):
    """A time-out ends its group, but no other group."""
    group = dist.new_group(timeout=seconds(0.3))
    if rank == 0:
        assert error_of(lambda: dist.all_reduce(torch.ones(3), group=group))[1]
    else:
        late(0.6)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    fresh = dist.new_group()
    dist.all_reduce(tensor, group=fresh)
    return tensor.tolist()


def test_other_groups_live_on_after_a_timeout():
    assert run_ranks(2, go_on_elsewhere) == [[4.0] * 3] * 2


# ---- monitored barriers: the error texts are those of Gloo ----


def monitor(rank, size, missing, wait_all):
    dist.monitored_barrier(timeout=seconds(5))
    if rank in missing:
        late(0.8)
        return ""
    return error_of(
        lambda: dist.monitored_barrier(timeout=seconds(0.4), wait_all_ranks=wait_all)
    )[1]


@needs_monitored_barrier
def test_a_monitored_barrier_names_the_rank_that_is_missing():
    texts = run_ranks(3, monitor, [1], False, may_die=[1])
    assert re.search(r"Rank 1 failed to pass monitoredBarrier in 400 ms", texts[0])


@needs_monitored_barrier
def test_a_monitored_barrier_names_all_that_are_missing_if_asked():
    texts = run_ranks(4, monitor, [1, 3], True, may_die=[1, 3])
    assert re.search(r"Ranks 1, 3 failed to pass monitoredBarrier in 400 ms", texts[0])


@needs_monitored_barrier
def test_ranks_that_came_learn_that_a_monitored_barrier_failed():
    texts = run_ranks(3, monitor, [1], False, may_die=[1])
    assert re.search(
        r"Rank 2 successfully reached monitoredBarrier, but received errors while "
        r"waiting (for send/recv from|to be unblocked by) rank 0",
        texts[2],
    )


def monitor_without_root(rank, size):
    dist.monitored_barrier(timeout=seconds(5))
    if rank == 0:
        late(0.8)
        return ""
    return error_of(lambda: dist.monitored_barrier(timeout=seconds(0.4)))[1]


@needs_monitored_barrier
def test_without_rank_0_a_monitored_barrier_blames_rank_0():
    texts = run_ranks(3, monitor_without_root, may_die=[0])
    for rank in (1, 2):
        assert re.search(
            rf"Rank {rank} successfully reached monitoredBarrier, but received errors "
            r"while waiting (for send/recv from|to be unblocked by) rank 0",
            texts[rank],
        )


def monitor_in_subgroup(rank, size):
    group = dist.new_group([0, 2])
    if rank != 1:
        for _ in range(3):
            dist.monitored_barrier(group, timeout=seconds(5), wait_all_ranks=True)
    return True


@needs_monitored_barrier
def test_a_monitored_barrier_of_a_subgroup():
    assert run_ranks(3, monitor_in_subgroup) == [True] * 3


def abort_under_way(rank, size):
    if rank == 1:
        late(0.6)
        return True
    work = dist.all_reduce(torch.ones(3), async_op=True)
    late(0.2)
    dist.group.WORLD.abort()
    took, text = error_of(work.wait)
    dist.destroy_process_group()
    return took < 1 and "abort" in text.lower()


def test_aborting_a_group_ends_what_is_under_way():
    # torch's own recorder is an abort hook that may take seconds to write its file.
    quiet = {"TORCH_FR_BUFFER_SIZE": "0"}
    assert run_ranks(2, abort_under_way, env=quiet, may_die=[1])[0]


def lose_a_rank(rank, size):
    if rank == 1:
        dist.destroy_process_group()
        return True
    late(0.2)
    return error_of(lambda: dist.all_reduce(torch.ones(3)))


def test_a_rank_that_leaves_is_noticed_at_once():
    took, text = run_ranks(2, lose_a_rank)[0]
    assert took < 2
    assert text
