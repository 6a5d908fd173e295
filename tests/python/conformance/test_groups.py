# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Groups as torch makes and destroys them: of one rank, of some, split, named,
repeated.
"""

import pytest
import torch
import torch.distributed as dist

from aikido_torch.testing import run_ranks
from conformance.versions import since


def be_alone(rank, size):
    """Object collectives and other calls that do not depend on dtypes and counts."""
    gathered, out = [None], [None]
    dist.all_gather_object(gathered, {"rank": 0})
    objects = ["a", 1]
    dist.broadcast_object_list(objects, src=0)
    dist.barrier()
    group = dist.group.WORLD
    return gathered, objects, out, group.rank(), group.size()


def test_a_group_of_one():
    assert run_ranks(1, be_alone) == [([{"rank": 0}], ["a", 1], [None], 0, 1)]


def gather_alone(rank, size):
    at_root, out = [None], [None]
    dist.gather_object("x", at_root, dst=0)
    dist.scatter_object_list(out, ["y"], src=0)
    return at_root, out


def test_a_group_of_one_gathers_and_scatters():
    assert run_ranks(1, gather_alone) == [(["x"], ["y"])]


def send_to_oneself(rank, size):
    tensor = torch.empty(3)
    work = dist.irecv(tensor, 0, tag=2)
    dist.isend(torch.arange(3.0), 0, tag=2).wait()
    work.wait()
    return tensor.tolist()


def test_a_group_of_one_sends_to_itself():
    assert run_ranks(1, send_to_oneself) == [[0.0, 1.0, 2.0]]
    assert run_ranks(1, batch_to_oneself) == [[0.0, 1.0, 2.0]]


def batch_to_oneself(rank, size):
    tensor = torch.empty(3)
    operations = [
        dist.P2POp(dist.isend, torch.arange(3.0), 0),
        dist.P2POp(dist.irecv, tensor, 0),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return tensor.tolist()


def exchange_objects(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (1000 * rank)})
    objects = [{"from": 1}, [1, 2, 3]] if rank == 1 else [None, None]
    dist.broadcast_object_list(objects, src=1)
    at_root = [None] * size if rank == 2 else None
    dist.gather_object(("from", rank), at_root, dst=2)
    out = [None]
    dist.scatter_object_list(out, list("abc") if rank == 0 else None, src=0)
    return [len(g["text"]) for g in gathered], objects, at_root, out


@pytest.mark.parametrize("debug", ["OFF", "DETAIL"])
def test_objects_travel(debug):
    env = {"TORCH_DISTRIBUTED_DEBUG": debug}
    for rank, seen in enumerate(run_ranks(3, exchange_objects, env=env)):
        everyone = [("from", r) for r in range(3)] if rank == 2 else None
        assert seen == (
            [0, 1000, 2000], [{"from": 1}, [1, 2, 3]], everyone, ["abc"[rank]]
        )  # fmt: skip


def restart(rank, size, folder, backends):
    totals = []
    for life, backend in enumerate(backends):
        dist.init_process_group(
            backend, init_method=f"file://{folder}/{life}", rank=rank, world_size=size
        )
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor)
        group = dist.new_group([0, 1])
        if rank < 2:
            dist.all_reduce(tensor, group=group)
        totals.append(tensor.sum().item())
        dist.destroy_process_group()
    return totals


@pytest.mark.parametrize(
    "backends",
    [["aikido"] * 3, ["gloo", "aikido", "gloo"], ["cpu:aikido"] * 2],
    ids=" ".join,
)
def test_a_process_may_start_again(tmp_path, backends):
    totals = run_ranks(3, restart, str(tmp_path), backends, backend=None)
    count = len(backends)
    assert totals == [[18.0] * count, [18.0] * count, [9.0] * count]


def name_groups(rank, size):
    first = dist.new_group([1, 0], group_desc="a pair")
    mine = dist.new_group([rank])
    seen = [dist.get_backend(), dist.get_backend(first)]
    seen += [first.group_desc, dist.get_process_group_ranks(first)]
    seen += [dist.get_group_rank(first, 1), dist.get_world_size(mine)]
    backend = first._get_backend(torch.device("cpu"))
    seen += [backend.name(), backend.rank() == first.rank(), backend.size()]
    return seen


def test_groups_know_their_names_and_ranks():
    ranks = [0, 1]
    wanted = ["aikido", "aikido", "a pair", ranks, 1, 1, "aikido", True, 2]
    assert run_ranks(2, name_groups) == [wanted] * 2


def mix_backends(rank, size):
    """A group of aikido and one of Gloo in the same processes."""
    gloo = dist.new_group(backend="gloo")
    tensor = torch.ones(3)
    for _ in range(10):
        works = [dist.all_reduce(torch.ones(3), group=g, async_op=True)
                 for g in (gloo, None)]  # fmt: skip
        for work in works:
            work.wait()
    dist.all_reduce(tensor, group=gloo)
    return tensor.tolist()


def test_groups_of_gloo_live_beside_ours():
    assert run_ranks(2, mix_backends) == [[2.0] * 3] * 2


def split(rank, size):
    supports = dist.group.WORLD._get_backend(torch.device("cpu")).supports_splitting
    half = dist.split_group(split_ranks=[[0, 1], [2]])
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor, group=half)
    some = dist.split_group(split_ranks=[[2, 0]], group_desc="ends")
    is_out = some is dist.GroupMember.NON_GROUP_MEMBER
    ends = torch.full((1,), rank + 1.0)
    if not is_out:
        dist.broadcast(ends, group=some, group_src=0)
    counts = [g._get_sequence_number_for_group() for g in (half, dist.group.WORLD)]
    return supports, tensor[0].item(), is_out, ends.item(), counts


@since(2, 15)
def test_a_group_is_split():
    assert run_ranks(3, split) == [
        (True, 3.0, False, 3.0, [1, 0]),
        (True, 3.0, True, 2.0, [1, 0]),
        (True, 3.0, False, 3.0, [1, 0]),
    ]


def make_many(rank, size):
    groups = [dist.new_group() for _ in range(15)]
    works = [dist.all_reduce(torch.ones(9), group=g, async_op=True) for g in groups]
    for work in works:
        work.wait()
    for group in groups[::2]:
        dist.destroy_process_group(group)
    tensors = [torch.ones(9) for _ in groups[1::2]]
    for group, tensor in zip(groups[1::2], tensors, strict=True):
        dist.all_reduce(tensor, group=group)
    return all(t.tolist() == [size] * 9 for t in tensors)


def test_many_groups_at_once_some_of_which_go():
    assert run_ranks(2, make_many) == [True] * 2


def find_mismatch(rank, size):
    try:
        dist.all_reduce(torch.ones(5 if rank else 6))
    except RuntimeError as error:
        return str(error)
    return ""


def test_debugging_in_detail_finds_a_call_that_differs():
    env = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    for text in run_ranks(2, find_mismatch, env=env):
        assert "Detected mismatch between collectives on ranks" in text


@pytest.mark.parametrize("rendezvous", ["file", "tcp"])
def test_any_rendezvous_will_do(rendezvous):
    assert run_ranks(3, sum_once, rendezvous=rendezvous) == [3.0] * 3


def sum_once(rank, size):
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return tensor.item()
