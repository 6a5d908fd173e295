# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""reduce_scatter with a late or killed rank: each rank decides for its own block."""

import time

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import Options, _backend
from aikido_torch.errors import AikidoError
from aikido_torch.straggler import SkipStraggler, WaitAll, report
from aikido_torch.testing import die, late, run_ranks

SIZE = 4
ODD = 3
COUNT = 50_000


def skip(**options):
    return SkipStraggler(
        **{"min_contributors": 3, "floor_ms": 60, "ceiling_ms": 60} | options
    )


def blocks(rank, size, count=COUNT):
    """A different block for each rank; its value names giver and taker."""
    return [torch.full((count,), 10.0 * (rank + 1) + to) for to in range(size)]


def scatter(rank, size, form, count=COUNT, **options):
    output, given = torch.empty(count), blocks(rank, size, count)
    if form == "list":
        work = aikido_torch.reduce_scatter(output, given, **options)
    else:
        given = torch.cat(given)
        work = aikido_torch.reduce_scatter_tensor(output, given, **options)
    return output, work.outcome()


def mean_of(ranks, to):
    return sum(10.0 * (rank + 1) + to for rank in ranks) / len(ranks)


def call_late(rank, size):
    seen = {}
    for form in ("list", "tensor"):
        for op in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            dist.barrier()
            if rank == ODD:
                late(0.4)
            start = time.perf_counter()
            output, outcome = scatter(rank, size, form, op=op, policy=skip())
            seen[form, op.name] = {
                "s": time.perf_counter() - start,
                "values": output.unique().tolist(),
                "own": {s.owner: s.contributors for s in outcome.shards}[rank],
                "kind": outcome.kind,
                "skipped": outcome.skipped,
                "skipped_by": outcome.skipped_by,
                "reason": outcome.reason,
                "table": report([outcome]),
            }
    dist.barrier()
    counters = _backend.backend_of(None).counters
    return seen, counters["partial_operations"], counters["skipped_own"]


@pytest.mark.alone
def test_a_late_rank_is_skipped_by_the_others_and_told_by_whom():
    for rank, (seen, partial, skipped_own) in enumerate(run_ranks(SIZE, call_late)):
        others = [r for r in range(SIZE) if r != ODD]
        assert (partial, skipped_own) == (4, 4 if rank == ODD else 0)
        for (form, op), call in seen.items():
            own = others if rank != ODD else list(range(SIZE))
            mean = mean_of(own, rank)
            expected = mean if op == "AVG" else SIZE * mean
            assert call["values"] == [pytest.approx(expected)], (form, op)
            assert call["own"] == own
            assert (call["kind"], call["skipped"]) == ("partial", [ODD])
            assert call["skipped_by"] == (others if rank == ODD else [])
            assert call["reason"] == "deadline"
            assert call["table"] == {ODD: {"deadline": 1}}
            assert call["s"] < 0.3


def go_on(rank, size, form):
    patient = skip(min_contributors=2, floor_ms=500, ceiling_ms=500)
    dist.barrier()
    if rank == ODD:
        die(after=0.3)
    results, slowest = [], 0.0
    for _ in range(40):
        late(0.02)
        start = time.perf_counter()
        output, outcome = scatter(
            rank, size, form, op=dist.ReduceOp.AVG, policy=patient
        )
        slowest = max(slowest, time.perf_counter() - start)
        results.append((output.unique().tolist(), outcome.contributors))
    return results, slowest


@pytest.mark.parametrize("form", ["list", "tensor"])
def test_the_others_continue_without_a_killed_rank(form):
    results = run_ranks(SIZE, go_on, form, group_timeout=60, may_die={ODD})
    for rank in range(ODD):
        values, slowest = results[rank]
        for value, contributors in values:
            assert value == [pytest.approx(mean_of(contributors, rank))]
        assert values[-1][1] == [0, 1, 2]
        assert slowest < 2.5


def failure_of(call):
    start = time.perf_counter()
    try:
        call()
    except AikidoError as error:
        return type(error).__name__, str(error), time.perf_counter() - start
    return "taken", "", time.perf_counter() - start


def lose_too_many(rank, size):
    dist.barrier()
    if rank >= 2:
        die()
    return failure_of(lambda: scatter(rank, size, "list", policy=skip()))


def test_fewer_than_min_contributors_fail_long_before_the_timeout():
    results = run_ranks(4, lose_too_many, group_timeout=60, may_die={2, 3})
    for name, text, seconds in results[:2]:
        assert name == "PeerLostError", text
        assert "of 4 members are left, " in text
        assert seconds < 15


def call_badly(rank, size):
    own, usual = blocks(rank, size, 8), skip(min_contributors=None)
    out, policies = torch.empty(8), (usual, skip(min_contributors=None, slack=3))
    ours = aikido_torch.reduce_scatter
    integers = [block.int() for block in own]
    calls = {
        "max": lambda: ours(out, own, op=dist.ReduceOp.MAX, policy=usual),
        "integers": lambda: ours(out.int(), integers, policy=usual),
        "policy": lambda: ours(out, own, policy="skip"),
        "list": lambda: ours(out, own[:1], policy=usual),
        "no tensor": lambda: ours(out, [out, 3], policy=usual),
        "world": lambda: aikido_torch.reduce_scatter_tensor(
            out, torch.cat(own), policy=skip(min_contributors=3)
        ),
        "differs": lambda: ours(out, own, policy=policies[rank]),
        "strict": lambda: ours(out, own, policy=(WaitAll(), usual)[rank]),
    }
    texts = {name: failure_of(call)[:2] for name, call in calls.items()}
    output, outcome = scatter(rank, size, "list", 8, policy=usual)
    return texts, output.unique().tolist(), outcome.kind


def test_impossible_calls_give_a_clear_error_and_the_group_still_works():
    for rank, (texts, values, kind) in enumerate(run_ranks(2, call_badly)):
        assert (values, kind) == ([30.0 + 2 * rank], "complete")
        here = f"on rank {rank}: "
        parts = {
            "max": "with op max: a member may be left out of a sum or a mean only",
            "integers": "a member may be left out of floating point data only",
            "policy": f"{here}policy is 'skip'; pass WaitAll() or SkipStraggler",
            "list": f"reduce_scatter {here}argument input_list has 1 tensors; 2 are",
            "no tensor": f"{here}input_list[1] is a int; pass a torch.Tensor",
            "world": f"reduce_scatter_tensor {here}SkipStraggler: min_contributors is ",
            "differs": "slack=3",
            "strict": "with SkipStraggler(",
        }
        assert texts.keys() == parts.keys()
        for name, (error, text) in texts.items():
            assert error == "ConfigError", (name, text)
            assert parts[name] in text, (name, text)


def overwrite_at_once(rank, size):
    """Rank 0 overwrites its input long before the last rank takes its blocks."""
    policy = skip(min_contributors=2, floor_ms=20, ceiling_ms=20, warmup_operations=1)
    count, calls, values, slowest = 500_000, 12, [], 0.0
    dist.barrier()
    if rank == ODD:
        late(1.0)
    given = torch.empty(size, count)
    for n in range(calls):
        given.fill_(n + 1.0)
        output = torch.empty(count)
        start = time.perf_counter()
        aikido_torch.reduce_scatter_tensor(
            output, given.view(-1), op=dist.ReduceOp.AVG, policy=policy
        )
        slowest = max(slowest, time.perf_counter() - start)
        given.fill_(-1e6)
        values.append(output.unique().tolist())
    dist.barrier()
    return values, slowest


@pytest.mark.alone
def test_the_input_can_be_overwritten_before_a_late_rank_has_taken_it():
    # Most of the 24 MiB for the late rank wait at their senders.
    options = Options(transport_window_bytes=4 << 20)
    results = run_ranks(SIZE, overwrite_at_once, options=options, group_timeout=60)
    for values, slowest in results:
        assert values == [[n + 1.0] for n in range(12)]
        assert slowest < 0.8
