# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Outcomes of calls with a late rank, refused calls, and calls that differ."""

import time

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import Options, _backend
from aikido_torch.errors import AikidoError
from aikido_torch.straggler import SkipStraggler, WaitAll
from aikido_torch.testing import late, run_ranks
from aikido_torch.testing._faults import hold_python_lock

pytestmark = pytest.mark.alone

SIZE = 4
LATE = 3
COUNT = 100_000  # four shards


def skip(**options):
    return SkipStraggler(
        **{"min_contributors": 3, "floor_ms": 60, "ceiling_ms": 60} | options
    )


def facts(outcome):
    return {
        "kind": outcome.kind,
        "contributors": outcome.contributors,
        "skipped": outcome.skipped,
        "shards": [(s.owner, s.contributors, s.scale) for s in outcome.shards],
        "reason": outcome.reason,
        "deadline_ms": outcome.deadline_ms,
        "sequence_number": outcome.sequence_number,
    }


def all_reduce_late(rank, size):
    """One call of each kind, with the last rank late."""
    seen = {}
    calls = {
        "sum": (dist.ReduceOp.SUM, "contributors", torch.float32),
        "mean": (dist.ReduceOp.AVG, "contributors", torch.float64),
        "sum over world": (dist.ReduceOp.SUM, "world", torch.float32),
        "mean over world": (dist.ReduceOp.AVG, "world", torch.bfloat16),
    }
    for name, (op, divisor, dtype) in calls.items():
        dist.barrier()
        # Equal tensors on all ranks; otherwise the late rank stays known as behind.
        tensor = torch.full((COUNT,), rank + 1.0, dtype=dtype)
        if rank == LATE:
            late(0.4)
        start = time.perf_counter()
        work = aikido_torch.all_reduce(
            tensor, op=op, policy=skip(divisor=divisor), async_op=True
        )
        work.wait()
        call_s = time.perf_counter() - start
        outcome = work.outcome()
        seen[name] = {
            "facts": facts(outcome),
            "values": tensor.unique().tolist(),
            "parts": [(s.first_element, s.num_elements) for s in outcome.shards],
            "bytes": tensor.view(torch.uint8).numpy().tobytes()[:64],
            "call_s": call_s,
            "was_committed": outcome.was_committed,
            "text": repr(outcome),
        }
    # A call is counted just after its caller wakes up, so a barrier comes first.
    dist.barrier()
    counters = _backend.backend_of(None).counters
    return seen, {n: counters[n] for n in ("partial_operations", "skipped_own")}


def test_all_ranks_including_the_late_one_see_the_same_outcome_and_bytes():
    results = run_ranks(SIZE, all_reduce_late)
    first = results[0][0]
    values = {
        "sum": (1 + 2 + 3) * 4 / 3,
        "mean": 2.0,
        "sum over world": 6.0,
        "mean over world": 1.5,
    }
    for rank, (seen, counters) in enumerate(results):
        assert counters == {
            "partial_operations": 4,
            "skipped_own": 4 if rank == LATE else 0,
        }
        for name, call in seen.items():
            assert call["facts"] == first[name]["facts"]
            assert call["bytes"] == first[name]["bytes"]
            assert call["values"] == [values[name]]
            assert call["facts"]["kind"] == "partial"
            assert call["facts"]["skipped"] == [LATE]
            assert call["facts"]["contributors"] == [0, 1, 2]
            assert call["facts"]["reason"] == "deadline"
            # The deadline counts from the quorum. On a busy machine this rank may call
            # later, and the late rank does not get that time again.
            assert 30 < call["facts"]["deadline_ms"] <= 60
            scale = {"sum": 4 / 3, "mean": 1 / 3, "sum over world": 1.0}
            scale = scale.get(name, 1 / 4)
            assert call["facts"]["shards"] == [
                (owner, [0, 1, 2], pytest.approx(scale)) for owner in range(SIZE)
            ]
            # The parts follow each other and cover the whole tensor.
            ends = [first + num for first, num in call["parts"]]
            assert [first for first, _ in call["parts"]] == [0, *ends[:-1]]
            assert ends[-1] == COUNT
            assert call["was_committed"] == (rank == LATE)
            assert call["call_s"] < 0.3
            assert "kind='partial', skipped=[3], reason='deadline'" in call["text"]


def pass_everybody(rank, size):
    policy = skip(min_contributors=None, ceiling_ms=5000)
    work = aikido_torch.all_reduce(torch.ones(COUNT), policy=policy)
    strict = aikido_torch.all_reduce(torch.ones(3))
    asked = aikido_torch.all_reduce(torch.ones(COUNT), policy=policy, async_op=True)
    seen = asked.outcome()
    before = None if asked.is_completed() else seen  # the call may end before the check
    asked.wait()
    return facts(work.outcome()), facts(strict.outcome()), before


def miss_a_call(rank, size):
    aikido_torch.all_reduce(torch.ones(COUNT), policy=SkipStraggler())
    if rank == LATE:
        late(2.5)
    work = aikido_torch.all_reduce(torch.ones(COUNT), policy=SkipStraggler())
    return facts(work.outcome())["skipped"]


def test_by_default_a_short_timeout_is_long_enough_to_skip():
    assert run_ranks(SIZE, miss_a_call, group_timeout=2) == [[LATE]] * SIZE


def test_a_call_without_late_ranks_is_complete():
    for skipping, strict, before in run_ranks(2, pass_everybody, group_timeout=10):
        assert before is None
        assert (skipping["kind"], skipping["skipped"]) == ("complete", [])
        assert skipping["contributors"] == [0, 1]
        assert (strict["kind"], strict["reason"]) == ("complete", "complete")
        assert strict["shards"] == []


def texts_of(calls):
    texts = {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:  # of any class; the test compares the text
            texts[name] = f"{type(error).__name__}: {error}"
        else:
            texts[name] = "taken"
    return texts


def call_badly(rank, size):
    ones, op, policy = torch.ones(4), dist.ReduceOp, skip(min_contributors=None)
    ours, backend = aikido_torch.all_reduce, _backend.backend_of(None)
    nested = torch.nested.nested_tensor([ones, torch.ones(2)])
    texts = texts_of(
        {
            "integers": lambda: ours(torch.ones(4, dtype=torch.int32), policy=policy),
            "max": lambda: ours(ones, op=op.MAX, policy=policy),
            "world": lambda: ours(ones, policy=skip(min_contributors=3)),
            "dtype": lambda: ours(torch.ones(4, dtype=torch.uint16)),
            "op": lambda: ours(ones, op=op.BAND),
            "meta": lambda: backend.allreduce([torch.ones(4, device="meta")]),
            "strides": lambda: ours(torch.ones(1).expand(4)),
            "sparse": lambda: ours(torch.eye(3).to_sparse()),
            "nested": lambda: backend.send([nested], 1 - rank, 0),
            "list": lambda: backend.allreduce([ones, ones]),
            "root": lambda: backend.broadcast(ones, root=5),
            "gather": lambda: backend.allgather([[ones]], [ones]),
            "gather dtype": lambda: backend.allgather([[ones, ones.double()]], [ones]),
            "gather shape": lambda: backend.allgather([[ones, torch.ones(5)]], [ones]),
            "gather lists": lambda: backend.allgather_coalesced(
                [[ones, ones], [ones, torch.ones(5)]], [ones, ones]
            ),
            "into": lambda: dist.all_gather_into_tensor(torch.ones(5), ones),
            "dst": lambda: backend.send([ones], 7, 0),
            "abort": lambda: ours(ones, async_op=True).abort(),
        }
    )
    # Nothing was sent: the group is unchanged.
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return texts, tensor.tolist()


def test_bad_arguments_are_named_before_anything_is_sent():
    policy = (
        "SkipStraggler(min_contributors=None, floor_ms=60, ceiling_ms=60, "
        "max_consecutive_skips=100, warmup_operations=3, slack=1.5, worth=1, "
        'divisor="contributors", granularity="shard")'
    )
    for rank, (texts, after) in enumerate(run_ranks(2, call_badly)):
        here = f"on rank {rank}"
        assert after == [2, 2, 2]
        assert texts.pop("abort").startswith(("AttributeError", "RuntimeError"))
        assert texts == {
            "integers": f"ConfigError: all_reduce {here}: policy {policy} with dtype "
            "int32: a member may be left out of floating point data only; use "
            "WaitAll()",
            "max": f"ConfigError: all_reduce {here}: policy {policy} with op max: a "
            "member may be left out of a sum or a mean only",
            "world": f"ConfigError: all_reduce {here}: SkipStraggler: min_contributors "
            "is 3 but must be between 1 and the world size of 2, or None for more than "
            "half of it.",
            "dtype": f"ConfigError: all_reduce {here}: argument tensor has dtype "
            "UInt16, which cannot be reduced; convert it to float32 or an integer "
            "dtype first",
            "op": f"ConfigError: all_reduce {here}: argument op is band, which is not "
            "defined for dtype float32",
            "meta": f"ConfigError: all_reduce {here}: argument tensor is on device "
            "meta, only cpu and cuda are supported",
            "strides": f"ConfigError: all_reduce {here}: argument tensor of shape [4] "
            "and strides [0] has elements that share memory, so no result can be "
            "written there; pass .contiguous() or .clone()",
            "sparse": f"ConfigError: all_reduce {here}: argument tensor has layout "
            "Sparse, only dense (strided) tensors are taken; use to_dense()",
            "nested": f"ConfigError: send {here}: argument tensor is a nested tensor, "
            "which has no shape that ranks could agree on; pass its parts (unbind()), "
            "or one tensor padded to a shape (to_padded_tensor())",
            "list": f"ConfigError: all_reduce {here}: argument tensor is a list of 2 "
            "tensors; exactly one is taken",
            "root": f"ConfigError: broadcast {here}: argument src is 5; the group has "
            "ranks 0 to 1",
            "gather": f"ConfigError: all_gather {here}: argument tensor_list has 1 "
            "tensors; 2 are needed",
            "gather dtype": f"ConfigError: all_gather {here}: argument tensor_list[1] "
            "has dtype Double but argument tensor has Float; use one dtype",
            "gather shape": f"ConfigError: all_gather {here}: argument tensor_list[1] "
            "has shape [5] (5 elements) but argument tensor has [4] (4)",
            "gather lists": f"ConfigError: all_gather_coalesced {here}: argument "
            "output_tensor_lists[1][1] has shape [5] (5 elements) but argument "
            "input_tensor_list[1] has [4] (4)",
            "into": f"ConfigError: all_gather_into_tensor {here}: argument "
            "output_tensor has shape [5] (5 elements) but 2 times argument "
            "input_tensor of shape [4] is needed (8)",
            "dst": f"ConfigError: send {here}: argument dst is 7; the group has ranks "
            "0 to 1",
        }


def call_differently(rank, size):
    """Rank 1 makes another call than the other ranks; returns the result of each."""
    ones, op = torch.ones, dist.ReduceOp
    ours = aikido_torch.all_reduce

    def pair(usual, other):
        return other if rank == 1 else usual

    calls = {
        "policy": pair(
            lambda: ours(ones(COUNT), policy=skip(floor_ms=10)),
            lambda: ours(ones(COUNT), policy=skip(floor_ms=11)),
        ),
        "strict": pair(
            lambda: ours(ones(COUNT), policy=skip()),
            lambda: ours(ones(COUNT), policy=WaitAll()),
        ),
        "shape": pair(lambda: ours(ones(40)), lambda: ours(ones(41))),
        "large shape": pair(lambda: ours(ones(COUNT)), lambda: ours(ones(7))),
        "dtype": pair(lambda: ours(ones(40)), lambda: ours(ones(40).double())),
        "op": pair(lambda: ours(ones(40)), lambda: ours(ones(40), op=op.MAX)),
        "order": pair(dist.barrier, lambda: dist.broadcast(ones(50_000), src=0)),
        "empty": pair(lambda: ours(ones(0)), lambda: ours(ones(50_000))),
        "kind": pair(
            lambda: dist.all_gather_into_tensor(ones(size * 5), ones(5)),
            lambda: ours(ones(5)),
        ),
    }
    seen = {}
    for name, call in calls.items():
        start = time.perf_counter()
        seen[name] = texts_of({name: call})[name]
        if time.perf_counter() - start > 5:
            seen[name] += " after long"
        # The group still works: the next collective is right.
        tensor = ones(COUNT)
        dist.all_reduce(tensor)
        if not bool((tensor == size).all()):
            seen[name] += " and spoilt"
    return seen


def test_calls_that_differ_fail_on_every_rank_with_both_calls_in_the_text():
    results = run_ranks(3, call_differently, group_timeout=20)
    both = {
        "policy": ("floor_ms=10,", "floor_ms=11,"),
        "strict": ("with SkipStraggler(", "all_reduce(sum, float32[100000]) "),
        "shape": ("float32[40]", "float32[41]"),
        "large shape": ("float32[100000]", "float32[7]"),
        "dtype": ("all_reduce(sum, float32[40])", "all_reduce(sum, float64[40])"),
        "op": ("all_reduce(sum, ", "all_reduce(max, "),
        "order": ("barrier()", "broadcast(src 0, float32[50000])"),
        "empty": ("float32[0]", "float32[50000]"),
        "kind": ("all_gather(float32[5])", "all_reduce(sum, float32[5])"),
    }
    for seen in results:
        assert seen.keys() == both.keys()
        for name, text in seen.items():
            assert text.startswith("ConfigError: rank "), (name, text)
            assert all(part in text for part in both[name]), (name, text)
            assert text.endswith(
                "; all ranks must make the same calls with the same shapes, dtypes and "
                "policies in the same order"
            ), (name, text)


def broadcast_from_two(rank, size):
    calls = {
        "it": lambda: dist.broadcast(torch.ones(9), src=min(rank, 1)),
        "next": lambda: dist.all_reduce(torch.ones(3)),
    }
    return texts_of(calls)


def test_two_roots_of_a_broadcast_are_reported_on_every_rank():
    for texts in run_ranks(3, broadcast_from_two):
        # A rank that already has all its data succeeds. Its next call fails.
        text = texts["next"] if texts["it"] == "taken" else texts["it"]
        assert "calls broadcast(src 0, float32[9])" in text
        assert "calls broadcast(src 1, float32[9])" in text


def init_with(rank, size, folder, per_rank):
    try:
        dist.init_process_group(
            "aikido",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=size,
            pg_options=per_rank[rank],
        )
    except AikidoError as error:
        return str(error)
    return "taken"


def test_options_that_differ_between_ranks_are_named_with_both_values(tmp_path):
    options = [Options(transport_eager_bytes=value) for value in (1000, 1000, 2000)]
    texts = run_ranks(3, init_with, str(tmp_path), options, backend=None)
    both = (
        "transport_eager_bytes=1000 and rank 2 has transport_eager_bytes=2000; give "
        "this option the same value on every rank"
    )
    assert both in texts[0]
    assert both in texts[2]
    # Rank 1 gets the error from rank 0, or finds that rank 0 is gone.
    assert both in texts[1] or "connecting to rank 0" in texts[1]


def call_everything(rank, size):
    """Calls with tensors, works and futures that Python owns; some are dropped."""
    kept = []
    for n in range(10):
        tensors = [torch.ones(1 + 5000 * n) for _ in range(4)]
        for tensor in tensors:
            tensor.note = object()
        dist.all_reduce(tensors[0], async_op=True)
        dropped = dist.all_reduce(tensors[1], async_op=True).get_future()
        dropped.then(lambda future: future.value()[0].sum())
        work = dist.broadcast(tensors[2], src=size - 1, async_op=True)
        kept.append((work, work.get_future().then(lambda future: future.value())))
        dist.isend(tensors[3], (rank + 1) % size, tag=n)
        dist.irecv(tensors[3].clone(), (rank - 1) % size, tag=n)
        dist.barrier(async_op=True)
    return kept


def reduce_while_python_is_locked(rank, size):
    """Rank 0 owns a shard; its Python lock is held while other ranks continue."""
    policy = skip(min_contributors=2, floor_ms=50, ceiling_ms=50)
    aikido_torch.all_reduce(torch.ones(COUNT), policy=policy)
    dist.barrier()
    if rank != 0:
        late(0.2)  # so that the calls of rank 0 end while the lock is held
    kept = call_everything(rank, size)
    slowest, skipped, held = 0.0, 0, 0.0
    if rank == 0:
        start = time.perf_counter()
        hold_python_lock(1.2)
        held = time.perf_counter() - start
    for _ in range(10):
        start = time.perf_counter()
        work = aikido_torch.all_reduce(torch.ones(COUNT), policy=policy)
        slowest = max(slowest, time.perf_counter() - start)
        skipped += 0 in work.outcome().skipped
    for work, future in kept:
        work.wait()
        future.wait()
    dist.barrier()
    return {"held": held, "slowest": slowest, "skipped": skipped}


def test_an_owner_with_a_held_python_lock_does_not_delay_the_others():
    owner, *others = run_ranks(3, reduce_while_python_is_locked)
    assert owner["held"] >= 1.2
    for seen in others:
        assert seen["skipped"] > 0
        assert seen["slowest"] < 0.5


def sum_in_full(rank, size):
    policy = WaitAll(rebalance=True)
    seen = []
    for op, dtype in (
        (dist.ReduceOp.SUM, torch.float32),
        (dist.ReduceOp.AVG, torch.float64),
        (dist.ReduceOp.MAX, torch.int32),
    ):
        tensor = torch.full((COUNT,), rank + 1).to(dtype)
        work = aikido_torch.all_reduce(tensor, op=op, policy=policy)
        outcome = work.outcome()
        assert repr(outcome.shards[0]).startswith("ShardOutcome(owner=0, contributors=")
        shards = [s.contributors for s in outcome.shards]
        assert all(ranks == list(range(size)) for ranks in shards)
        seen.append((tensor.unique().tolist(), outcome.kind, outcome.skipped))
    try:
        aikido_torch.all_reduce(torch.ones(COUNT), policy=WaitAll(rebalance=rank == 1))
    except AikidoError as error:
        return seen, str(error)
    return seen, None


def test_full_sums_accept_all_ops_and_a_difference_is_reported_to_all():
    for seen, text in run_ranks(3, sum_in_full):
        kinds = {str(kind).rpartition(".")[2].lower() for _, kind, _ in seen}
        assert kinds == {"complete"}
        assert [values for values, _, _ in seen] == [[6.0], [2.0], [3]]
        assert all(skipped == [] for _, _, skipped in seen)
        assert "WaitAll(rebalance=True)" in text


def count_in_whole(rank, size):
    policy = SkipStraggler(granularity="bucket", floor_ms=60, ceiling_ms=60)
    owners = []
    for _ in range(size):
        tensor = torch.ones(COUNT)
        outcome = aikido_torch.all_reduce(tensor, policy=policy).outcome()
        assert tensor.tolist() == [size] * COUNT
        owners += [shard.owner for shard in outcome.shards]
    return owners


def test_with_one_mask_for_the_bucket_owners_take_turns():
    for owners in run_ranks(3, count_in_whole):
        assert sorted(owners) == [0, 1, 2]
