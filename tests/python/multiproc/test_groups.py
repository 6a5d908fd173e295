# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Features built on collectives: objects, subgroups, messages, restarts."""

import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import aikido_torch
from aikido_torch import _backend
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks


def exchange_objects(rank, size):
    seen = {}
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    seen["all_gather_object"] = [g["rank"] for g in gathered]
    objects = [{"from": 1}, [1, 2, 3]] if rank == 1 else [None, None]
    dist.broadcast_object_list(objects, src=1)
    seen["broadcast_object_list"] = objects
    at_root = [None] * size if rank == 0 else None
    dist.gather_object(("from", rank), at_root, dst=0)
    seen["gather_object"] = at_root
    out = [None]
    dist.scatter_object_list(out, list("abc"[:size]) if rank == 0 else None, src=0)
    seen["scatter_object_list"] = out
    return seen


def test_objects_are_sent_by_every_call():
    results = run_ranks(3, exchange_objects)
    for rank, seen in enumerate(results):
        assert seen["all_gather_object"] == [0, 1, 2]
        assert seen["broadcast_object_list"] == [{"from": 1}, [1, 2, 3]]
        assert seen["scatter_object_list"] == ["abc"[rank]]
        everyone = [("from", r) for r in range(3)] if rank == 0 else None
        assert seen["gather_object"] == everyone


def use_subgroups(rank, size):
    # Every pair of neighbours, the even ranks, and a second group of all ranks.
    rings = [dist.new_group([a, a + 1]) for a in range(size - 1)]
    even = dist.new_group([0, 2])
    everybody = dist.new_group()
    mine = [(a, ring) for a, ring in enumerate(rings) if rank in (a, a + 1)]
    wrong = []
    for turn in range(20):
        started = [
            (2 * a + 1, torch.full((500,), float(rank)), ring) for a, ring in mine
        ]
        started.append((sum(range(size)), torch.full((500,), float(rank)), None))
        started.append((sum(range(size)), torch.full((500,), float(rank)), everybody))
        if rank in (0, 2):
            started.append((2, torch.full((500,), float(rank)), even))
        works = [dist.all_reduce(t, group=g, async_op=True) for _, t, g in started]
        for work in works:
            work.wait()
        wrong += [turn for total, t, _ in started if not bool((t == total).all())]
    numbers = [_backend.backend_of(g)._get_sequence_number_for_group() for _, g in mine]
    for _, ring in mine:
        dist.destroy_process_group(ring)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return wrong, numbers, tensor.item()


def test_overlapping_subgroups_work_at_the_same_time_with_their_own_numbers():
    for wrong, numbers, count in run_ranks(4, use_subgroups):
        assert wrong == []
        assert set(numbers) == {20}
        assert count == 4


def exchange_messages(rank, size):
    seen = {}
    right, left = (rank + 1) % size, (rank - 1) % size
    # Tags in a different order than sent; below and above the eager limit.
    for count in (3, 100_000):
        sent = [torch.full((count,), 10.0 * rank + tag) for tag in range(4)]
        works = [dist.isend(t, right, tag=tag) for tag, t in enumerate(sent)]
        values = {}
        for tag in (2, 0, 3, 1):
            tensor = torch.empty(count)
            assert dist.recv(tensor, left, tag=tag) == left
            values[tag] = tensor[-1].item()
        for work in works:
            work.wait()
        seen[f"tags of {count}"] = values == {t: 10.0 * left + t for t in range(4)}
    # Zero elements.
    work = dist.isend(torch.empty(0), right)
    dist.recv(torch.empty(0), left)
    work.wait()
    # From any source.
    if rank == 0:
        sources, values = [], []
        for _ in range(2 * (size - 1)):
            tensor = torch.empty(2)
            sources.append(dist.recv(tensor))
            values.append(tensor[0].item())
        seen["any source"] = sorted(sources) == [1, 1, 2, 2] and values == sources
    else:
        late(0.05 * rank)
        for _ in range(2):
            dist.send(torch.full((2,), float(rank)), 0)
    # Posted before the message is sent.
    tensor = torch.empty(2)
    work = dist.irecv(tensor, left, tag=9)
    dist.barrier()
    dist.send(torch.full((2,), float(rank)), right, tag=9)
    work.wait()
    seen["irecv"] = tensor.tolist() == [left, left]
    # To the same rank.
    tensor = torch.empty(70_000)
    work = dist.irecv(tensor, rank, tag=1)
    backend = _backend.backend_of(None)
    backend.send([torch.full((70_000,), 7.0)], rank, 1).wait()
    work.wait()
    seen["self"] = bool((tensor == 7).all())
    # As a batch.
    tensors = [torch.empty(40_000) for _ in range(2)]
    own = torch.full((40_000,), float(rank))
    batch = [
        dist.P2POp(dist.isend, own, left),
        dist.P2POp(dist.irecv, tensors[0], left),
        dist.P2POp(dist.isend, own, right),
        dist.P2POp(dist.irecv, tensors[1], right),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    seen["batch"] = [t[-1].item() for t in tensors] == [left, right]
    return seen


def test_messages_reach_their_receivers():
    for seen in run_ranks(3, exchange_messages):
        assert [name for name, is_good in seen.items() if not is_good] == []


def restart(rank, size, folder):
    totals = []
    for life in range(3):
        dist.init_process_group(
            "aikido",
            init_method=f"file://{folder}/life-{life}",
            rank=rank,
            world_size=size,
        )
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor)
        totals.append(tensor.sum().item())
        dist.destroy_process_group()
    return totals


def test_a_process_can_make_and_destroy_its_groups_three_times(tmp_path):
    totals = run_ranks(3, restart, str(tmp_path), backend=None)
    assert totals == [[9.0] * 3] * 3


@pytest.mark.parametrize("end", ["", "del dist, tensor; raise SystemExit(0)"])
def test_a_process_that_ends_without_destroy_neither_hangs_nor_complains(tmp_path, end):
    program = textwrap.dedent(
        f"""
        import sys
        import aikido_torch, torch, torch.distributed as dist
        rank = int(sys.argv[1])
        dist.init_process_group("aikido", init_method="file://{tmp_path}/store",
                                rank=rank, world_size=2)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor[0] == 2
        dist.all_reduce(torch.ones(90_000), async_op=True)
        kept = dist.all_reduce(torch.ones(90_000), async_op=True)
        kept.get_future().then(lambda future: future.value())
        {end}
        """
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank)],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
        assert "Fatal" not in errors


def debug_in_detail(rank, size):
    """Calls of torch go through torch's checking wrapper, calls of aikido beside it."""
    wrapper = dist.group.WORLD._get_backend(torch.device("cpu"))
    tensor = torch.ones(5)
    dist.all_reduce(tensor)
    policy = SkipStraggler(min_contributors=2, floor_ms=30, ceiling_ms=30)
    if rank == 2:
        late(0.3)
    outcome = aikido_torch.all_reduce(torch.ones(9), policy=policy).outcome()
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = aikido_torch.ddp.register(model, optimizer=optimizer)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    try:
        dist.all_reduce(torch.ones(5 if rank else 6))
    except RuntimeError as error:
        text = str(error)
    return type(wrapper).__name__, tensor.tolist(), outcome.skipped, handle.steps, text


def test_detailed_debugging_checks_calls_of_torch_and_does_not_disturb_skipping():
    env = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    for wrapper, values, skipped, steps, text in run_ranks(3, debug_in_detail, env=env):
        assert wrapper == "_ProcessGroupWrapper"
        assert values == [3] * 5
        assert skipped == [2]
        assert steps == 3
        assert "Detected mismatch between collectives on ranks" in text


def hold_a_result(rank, size):
    """Delays a sparse mean in one group and calls barriers in two groups."""
    others = dist.new_group()
    begun, go_on = threading.Event(), threading.Event()

    def held_up(tensor, factor):
        begun.set()
        go_on.wait(10.0)
        return torch.sparse_coo_tensor(
            tensor.indices(), tensor.values() * factor, tensor.shape
        ).coalesce()

    library = torch.library.Library("aten", "IMPL")
    library.impl("mul.Tensor", held_up, "SparseCPU")
    tensor = torch.eye(3).to_sparse()
    work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True)
    begun.wait(10.0)
    dist.barrier(group=others)
    was_free = not work.is_completed()
    own = dist.barrier(async_op=True)
    time.sleep(0.3)
    has_waited = not own.is_completed()
    go_on.set()
    own.wait()
    is_made = work.is_completed()
    return was_free, has_waited, is_made, torch.equal(tensor.to_dense(), torch.eye(3))


def test_a_barrier_waits_only_for_results_of_its_own_group():
    assert run_ranks(2, hold_a_result) == [(True, True, True, True)] * 2
