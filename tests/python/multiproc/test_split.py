# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Groups made from a group: split, shrunk, merged."""

import re
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from aikido_torch import Options, _backend
from aikido_torch.errors import AikidoError
from aikido_torch.testing import die, run_ranks
from harness.failures import failure_of

# Torch before 2.14 only splits groups that are bound to a device.
needs_split = pytest.mark.skipif(
    not hasattr(dist.distributed_c10d, "_reconfigure"),
    reason="torch before 2.14 has no split_group for this",
)


def total(group=None, value=1.0):
    tensor = torch.full((5,), float(value))
    dist.all_reduce(tensor, group=group)
    (result,) = tensor.unique().tolist()
    return result


def split(rank, size):
    seen = {}
    # The order of the list gives the new ranks.
    pair = dist.split_group(split_ranks=[[2, 0], [1, 3]])
    seen["pair"] = (pair.rank(), pair.size(), total(pair, 2**rank))
    seen["members"] = dist.get_process_group_ranks(pair)
    # A rank that is in no list gets no group.
    few = dist.split_group(split_ranks=[[1, 2]], timeout=timedelta(seconds=7))
    if rank in (1, 2):
        seen["few"] = (few.rank(), few.size(), total(few, 2**rank))
        backend = _backend.backend_of(few)
        seen["timeout"] = backend.options._timeout
    else:
        seen["few"] = few is dist.GroupMember.NON_GROUP_MEMBER
    # A split of a split group.
    alone = dist.split_group(pair, split_ranks=[[0], [1]])
    seen["alone"] = (alone.rank(), alone.size(), total(alone, 5))
    # The groups work at the same time, and the whole group still works.
    works = [
        dist.all_reduce(torch.ones(30_000), group=g, async_op=True)
        for _ in range(5)
        for g in (pair, None, alone)
    ]
    for work in works:
        work.wait()
    gathered = [torch.empty(1) for _ in range(2)]
    dist.all_gather(gathered, torch.tensor([float(rank)]), group=pair)
    seen["gathered"] = [g.item() for g in gathered]
    dist.destroy_process_group(pair)
    seen["whole"] = total()
    return seen


@needs_split
def test_a_split_makes_independent_groups():
    results = run_ranks(4, split)
    for rank, seen in enumerate(results):
        members = [2, 0] if rank in (0, 2) else [1, 3]
        value = sum(2.0**r for r in members)
        assert seen["pair"] == (members.index(rank), 2, value)
        assert seen["members"] == members
        assert seen["gathered"] == members
        assert seen["few"] == ((rank - 1, 2, 6.0) if rank in (1, 2) else True)
        assert seen.get("timeout", timedelta(seconds=7)) == timedelta(seconds=7)
        assert seen["alone"] == (0, 1, 5.0)
        assert seen["whole"] == 4


def leave_split_open(rank, size):
    group = dist.split_group(split_ranks=[[0, 1]])
    tensor = torch.ones(1000)
    return [dist.all_reduce(tensor, group=group, async_op=True) for _ in range(3)] and 1


@needs_split
def test_a_split_that_is_not_destroyed_ends_with_the_process():
    assert run_ranks(2, leave_split_open) == [1, 1]


def differ(rank, size):
    """Names of a call in error messages, in a split group and in the whole group."""
    part = dist.split_group(split_ranks=[list(range(size))])
    seen = [total(part, 2**rank)]
    for group in (part, None):
        tensor = torch.ones(3 + rank)
        told = failure_of(lambda t=tensor, g=group: dist.all_reduce(t, group=g))
        seen.append(told.text)
    return seen


@needs_split
def test_a_split_does_not_know_hosts_and_goes_direct():
    options = Options(collectives_algorithm="two_level")
    for value, told_in_part, told in run_ranks(3, differ, options=options):
        assert value == 7
        # Timing decides which ranks are named.
        assert re.search(r"all_reduce\(sum, float32\[\d\]\) and", told_in_part)
        assert " by " not in told_in_part
        assert re.search(r"all_reduce\(sum, float32\[\d\]\) by two_level and", told)


def shrink(rank, size, is_default, how):
    whole = dist.group.WORLD if is_default else dist.new_group()
    total(whole)
    if rank == 1:
        if how == "dead":
            die()
        dist.barrier()
        return None
    if how == "dead":
        # Another survivor may be faster and abort the group before this rank learns of
        # it.
        with pytest.raises(AikidoError, match=r"rank 1 is lost|was aborted by rank"):
            total(whole)
    start = time.perf_counter()
    flags = 1 if how == "dead" else 0
    group = dist.shrink_group([1], group=whole, shrink_flags=flags)
    seen = (group.rank(), group.size(), total(group, 2**rank))
    seconds = time.perf_counter() - start
    if how != "dead":
        dist.barrier()
    return seen, seconds


@pytest.mark.parametrize(
    ("is_default", "how"), [(True, "dead"), (False, "dead"), (False, "alive")]
)
def test_a_group_shrinks_to_the_ranks_that_stay(is_default, how):
    # Torch's flight recorder writes a file before an abort, which is not tested here.
    quiet = {"TORCH_FR_BUFFER_SIZE": "0"}
    results = run_ranks(
        4, shrink, is_default, how, may_die={1}, rendezvous="tcp", env=quiet
    )
    assert results.pop(1) is None
    for rank, (seen, seconds) in enumerate(results):
        assert seen == (rank, 3, 13.0)
        assert seconds < 10


def merge(rank, size, folder):
    # Two pairs of ranks that share only a store.
    half, place = divmod(rank, 2)
    dist.init_process_group(
        "aikido",
        init_method=f"file://{folder}/half-{half}",
        rank=place,
        world_size=2,
    )
    assert total() == 2
    store = dist.FileStore(f"{folder}/both", size)
    whole = dist.group.WORLD.merge_remote_group(
        store, size, timedelta(seconds=20), "whole"
    )
    tensor = torch.full((2,), 2.0**rank)
    whole.allreduce([tensor]).wait()
    seen = (whole.rank(), whole.size(), tensor[0].item())
    whole.shutdown()
    dist.destroy_process_group()
    return seen


def test_two_groups_merge_into_one(tmp_path):
    results = run_ranks(4, merge, str(tmp_path), backend=None)
    assert sorted(rank for rank, *_ in results) == [0, 1, 2, 3]
    assert {(size, value) for _, size, value in results} == {(4, 15.0)}
