# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Backups for late ranks, call by call: three primaries and the backup rank 3."""

import time

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import _backend
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, Carry, SkipStraggler, WaitAll
from aikido_torch.testing import die, late, run_ranks
from harness.failures import failure_of

SIZE = 4
PRIMARIES = 3
BACKUP = 3
COUNT = 100_000  # one shard for each rank
BYTES = 4 * COUNT
GROUP_TIMEOUT = 60
# Deadlines are so short that all ranks must run on time.
pytestmark = pytest.mark.alone

SOON_S = 10.0
LATE_S = 0.6


def backed_up(**options):
    return ActiveBackup(
        **{"min_contributors": 1, "floor_ms": 60, "ceiling_ms": 60} | options
    )


def gradient(data_shard, step=0, count=COUNT):
    """Gradient with values of very different sizes, so that a sum shows its order."""
    random = torch.Generator().manual_seed(1000 * step + data_shard)
    return torch.randn(count, generator=random) * 10.0 ** (data_shard - 1)


def mean_of(data_shards, step=0):
    """Mean that a call without late ranks computes, computed in one process."""
    total = gradient(data_shards[0], step)
    for d in data_shards[1:]:
        total = total + gradient(d, step)
    return total / len(data_shards)


def reduce(rank, data_shard, *, step=0, tensor=None, policy=None, is_known=True):
    """One mean; only the backup names its data shard."""
    tensor = gradient(data_shard, step) if tensor is None else tensor
    work = aikido_torch.all_reduce(
        tensor,
        op=dist.ReduceOp.AVG,
        policy=policy or backed_up(),
        async_op=True,
        data_shard=data_shard if rank >= PRIMARIES and is_known else None,
    )
    work.wait()
    return tensor, work.outcome()


def facts(outcome):
    return {
        "kind": outcome.kind,
        "contributors": outcome.contributors,
        "skipped": outcome.skipped,
        "stand_ins": outcome.stand_ins,
        "shards": [(s.contributors, s.stand_ins, s.scale) for s in outcome.shards],
    }


def given_bytes():
    return _backend.backend_of(None).counters["given_bytes"]


# ---- Refused calls -------------------------------------------------------------------


def call_wrongly(rank, size):
    """Makes refused calls, equal on all ranks; the group is unchanged afterwards."""
    ours = aikido_torch.all_reduce

    def wrong(policy, data_shard=None, **more):
        tensor = torch.ones(COUNT)
        return failure_of(
            lambda: ours(tensor, policy=policy, data_shard=data_shard, **more)
        )

    block = torch.ones(COUNT // size)
    seen = {
        "more backups than primaries": wrong(ActiveBackup(backups=3)),
        "too few replicas": wrong(ActiveBackup(backups=1, mode="replicate")),
        "more contributors than primaries": wrong(ActiveBackup(min_contributors=4)),
        "out of range": wrong(ActiveBackup(), PRIMARIES),
        "no number": wrong(ActiveBackup(), "0"),
        "negative": wrong(ActiveBackup(), -1),
        "of a policy without backups": wrong(SkipStraggler(), 0),
        "of the default policy": wrong(None, 0),
        "carry": wrong(ActiveBackup(), carry=Carry()),
        "reduce_scatter": failure_of(
            lambda: aikido_torch.reduce_scatter(
                block, [block] * size, policy=ActiveBackup()
            )
        ),
    }
    dist.all_reduce(tensor := torch.ones(3))
    return seen, tensor.tolist()


WRONG = {
    "more backups than primaries": "ActiveBackup: backups is 3 but must be "
    "between 0 and 2: at most as many as there are primaries, and the world size of 4 "
    "holds both.",
    "too few replicas": "ActiveBackup: backups is 1 but must be half of the world size "
    'of 4 with mode="replicate": one for each primary.',
    "more contributors than primaries": "ActiveBackup: min_contributors is 4 but must "
    "be between 1 and the number of primaries of 3, or None for more than half of it.",
    "out of range": "argument data_shard is 3 on rank {rank}, but there are data "
    "shards 0 to 2, one for each primary",
    "no number": "rank {rank}: data_shard is '0'; pass the rank of a primary",
    "negative": "rank {rank}: data_shard is -1; pass the rank of a primary",
    "of a policy without backups": "argument data_shard is 0 on rank {rank}; only a "
    "policy ActiveBackup with backups that stand in for others takes one",
    "of the default policy": "argument data_shard is 0 on rank {rank}; only a policy ",
    "carry": " on rank {rank}: carry with a policy ActiveBackup: a backup has not ",
    "reduce_scatter": " is for all_reduce only",
}


def test_invalid_calls_are_refused_on_every_rank_with_a_clear_error():
    results = run_ranks(SIZE, call_wrongly, group_timeout=GROUP_TIMEOUT)
    for rank, (seen, after) in enumerate(results):
        assert after == [SIZE] * 3
        assert seen.keys() == WRONG.keys()
        for name, failure in seen.items():
            assert failure.name == "ConfigError", (name, failure)
            assert WRONG[name].format(rank=rank) in failure.text
            assert failure.seconds < SOON_S


def call_wrongly_on_one(rank, size, odd, data_shard):
    mine = data_shard if rank == odd else (0 if rank == BACKUP else None)
    tensor = torch.ones(COUNT)
    dist.barrier()
    if rank != odd:
        late(0.3)  # otherwise the call would end without the backup
    return failure_of(
        lambda: aikido_torch.all_reduce(
            tensor, policy=backed_up(min_contributors=3), data_shard=mine
        )
    )


@pytest.mark.parametrize(
    ("odd", "data_shard", "text"),
    [
        (1, 2, "data_shard is 2 on rank 1, a primary, whose data shard is 1"),
        (
            BACKUP,
            None,
            "data_shard is None on rank 3, a backup: say whose data it has ",
        ),
        (BACKUP, 3, "data_shard is 3 on rank 3, but there are data shards 0 to 2"),
    ],
)
def test_a_wrong_data_shard_of_one_rank_is_reported_to_all(odd, data_shard, text):
    for failure in run_ranks(
        SIZE, call_wrongly_on_one, odd, data_shard, group_timeout=GROUP_TIMEOUT
    ):
        assert failure.name == "ConfigError"
        assert text in failure.text
        assert failure.seconds < SOON_S


def disagree(rank, size, other):
    policy = backed_up(min_contributors=3, **(other if rank == 0 else {}))
    tensor = torch.ones(COUNT)
    return failure_of(
        lambda: aikido_torch.all_reduce(
            tensor, policy=policy, data_shard=0 if rank == size - 1 else None
        )
    )


@pytest.mark.parametrize(
    "other", [{"backups": 2}, {"mode": "substitute"}, {"verify_shadows": True}]
)
def test_ranks_with_different_backups_are_reported(other):
    for failure in run_ranks(5, disagree, other, group_timeout=GROUP_TIMEOUT):
        assert failure.name == "ConfigError"
        assert str(backed_up(min_contributors=3).native()) in failure.text
        assert str(backed_up(min_contributors=3, **other).native()) in failure.text
        assert failure.seconds < SOON_S


# ---- Contributions to the result -----------------------------------------------------


def reduce_with_late_ranks(rank, size, late_ranks, shadowed):
    """Two calls without and two with late ranks; both pairs have equal tensors."""
    seen = []
    for step in range(4):
        dist.barrier()
        if step >= 2 and rank in late_ranks:
            late(LATE_S)
        start = time.perf_counter()
        mine = shadowed if rank == BACKUP else rank
        tensor, outcome = reduce(rank, mine, step=step % 2)
        took_s = time.perf_counter() - start
        seen.append((tensor.numpy().tobytes(), facts(outcome), took_s, given_bytes()))
    dist.barrier()
    return seen, _backend.backend_of(None).counters["skipped_own"]


@pytest.mark.parametrize("shadowed", range(PRIMARIES))
def test_a_late_primary_is_covered_bit_for_bit(shadowed):
    results = run_ranks(SIZE, reduce_with_late_ranks, [shadowed], shadowed)
    for rank, (seen, skipped_own) in enumerate(results):
        clean, covered = seen[:2], seen[2:]
        assert skipped_own == 0
        for (bytes_, told, _, given), (late_bytes, late_told, took_s, _) in zip(
            clean, covered, strict=True
        ):
            assert bytes_ == late_bytes
            assert told["kind"] == late_told["kind"] == "complete"
            assert told["contributors"] == late_told["contributors"] == [0, 1, 2]
            assert told["stand_ins"] == []
            assert late_told["stand_ins"] == [(shadowed, BACKUP)]
            assert {tuple(stand_ins) for _, stand_ins, _ in late_told["shards"]} == {
                ((shadowed, BACKUP),)
            }
            assert took_s < LATE_S
            # In a call without a late rank, the backup sends nothing.
            assert given == 0
        # The backup sends at most one contribution in each call, without its own shard.
        given = seen[-1][3]
        assert given == 0 if rank != BACKUP else 0 < given <= 2 * BYTES
    expected = mean_of([0, 1, 2])
    first = torch.frombuffer(bytearray(results[0][0][0][0]), dtype=torch.float32)
    torch.testing.assert_close(first, expected)
    for seen, _ in results:
        assert [s[:2] for s in seen] == [s[:2] for s in results[0][0]]


def test_of_two_late_ranks_one_is_covered_one_is_skipped_and_both_are_named():
    results = run_ranks(SIZE, reduce_with_late_ranks, [1, 2], 1)
    for rank, (seen, skipped_own) in enumerate(results):
        for _, told, _, _ in seen[2:]:
            assert told["kind"] == "partial"
            assert told["skipped"] == [2]
            assert told["stand_ins"] == [(1, BACKUP)]
            assert told["contributors"] == [0, 1]
            assert all(scale == 0.5 for _, _, scale in told["shards"])
        assert skipped_own == (2 if rank == 2 else 0)
        assert [s[:2] for s in seen] == [s[:2] for s in results[0][0]]
    last = torch.frombuffer(bytearray(results[0][0][-1][0]), dtype=torch.float32)
    torch.testing.assert_close(last, mean_of([0, 1], step=1))


def shadow_wrongly(rank, size):
    policy = backed_up(verify_shadows=True)
    equal = failure_of(
        lambda: reduce(rank, 1 if rank == BACKUP else rank, policy=policy)
    )
    tensor = gradient(1 if rank == BACKUP else rank)
    if rank == BACKUP:
        tensor[COUNT // 2] += 1e-3
    return equal, failure_of(
        lambda: reduce(
            rank, 1 if rank == BACKUP else rank, tensor=tensor, policy=policy
        )
    )


def test_a_shadow_with_different_bits_is_named_on_every_rank():
    for equal, unequal in run_ranks(SIZE, shadow_wrongly, group_timeout=GROUP_TIMEOUT):
        assert equal.name == "nothing", equal
        assert unequal.name == "ConfigError"
        assert (
            "what backup rank 3 has computed for data shard 1 is not bit-equal to what "
            "its primary, rank 1, has: the user's code is not deterministic"
        ) in unequal.text
        assert unequal.seconds < SOON_S


def reduce_after_a_death(rank, size, dead):
    dist.barrier()
    if rank == dead:
        die()
    seen = []
    for step in range(3):
        mine = dead if rank == BACKUP else rank
        tensor, outcome = reduce(rank, mine, step=step, policy=backed_up())
        seen.append((tensor, facts(outcome)))
    return seen


def test_the_data_shard_of_a_dead_primary_comes_from_the_backup():
    results = run_ranks(SIZE, reduce_after_a_death, 1, may_die=[1])
    for rank in (0, 2, 3):
        # The first call may have ended before the death was known.
        for step, (tensor, told) in list(enumerate(results[rank]))[1:]:
            assert told["kind"] == "complete"
            assert told["stand_ins"] == [(1, BACKUP)]
            torch.testing.assert_close(tensor, mean_of([0, 1, 2], step))
            assert torch.equal(tensor, results[0][step][0])


# ---- The other modes -----------------------------------------------------------------


def reduce_in_mode(rank, size, mode, backups, late_rank):
    policy = backed_up(
        mode=mode,
        backups=backups,
        min_contributors=None if mode == "n_plus_b" else 1,
    )
    num = size - backups
    own = rank - num if mode == "replicate" and rank >= num else rank
    seen = []
    for step in range(2):
        dist.barrier()
        if rank == late_rank:
            late(LATE_S)
        start = time.perf_counter()
        tensor = gradient(own, step)
        work = aikido_torch.all_reduce(
            tensor, op=dist.ReduceOp.AVG, policy=policy, async_op=True
        )
        work.wait()
        seen.append((tensor, facts(work.outcome()), time.perf_counter() - start))
    dist.barrier()
    return seen


@pytest.mark.parametrize(
    ("mode", "backups", "counted", "stand_ins", "skipped"),
    [
        ("substitute", 1, [0, 3, 2], [(1, 3)], []),
        ("n_plus_b", 1, [0, 2, 3], [], [1]),
        ("replicate", 2, [0, 1], None, []),
    ],
)
def test_with_each_mode_the_late_rank_is_replaced(
    mode, backups, counted, stand_ins, skipped
):
    results = run_ranks(SIZE, reduce_in_mode, mode, backups, 1)
    for seen in results:
        for step, (tensor, told, _) in enumerate(seen):
            torch.testing.assert_close(tensor, mean_of(counted, step))
            assert torch.equal(tensor, results[0][step][0])
            assert told == results[0][step][1]
            assert told["skipped"] == skipped
            if stand_ins is not None:
                assert told["stand_ins"] == stand_ins
            else:  # the first copy of data shard 0 is random
                assert (1, 3) in told["stand_ins"]
    for rank in (0, 2, 3):
        assert all(took_s < LATE_S for _, _, took_s in results[rank])


def test_a_policy_without_backups_equals_skip_straggler():
    assert ActiveBackup(backups=0).native() == SkipStraggler().native()
    assert ActiveBackup().native() != SkipStraggler().native()
    assert ActiveBackup() != WaitAll()
    with pytest.raises(ConfigError, match="must be between 1 and 512"):
        ActiveBackup(backups=0, mode="replicate").native()
