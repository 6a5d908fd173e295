# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Policies that cannot be had: an error on every rank, in time, that says why."""

import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import aikido_torch
from aikido_torch import ddp
from aikido_torch.errors import AikidoError, ConfigError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import die, late, run_ranks
from harness.failures import failure_of

GROUP_TIMEOUT = 60
SOON_S = 10.0
ODD = 1


def reduce_with(**options):
    tensor = torch.ones(100_000)
    return aikido_torch.all_reduce(tensor, policy=SkipStraggler(**options))


# ---- Values out of their range ------------------------------------------------------

WRONG = {
    "min_contributors above the world": (
        {"min_contributors": 4},
        "min_contributors is 4 but must be between 1 and the world size of 3, or ",
    ),
    "min_contributors of none": (
        {"min_contributors": 0},
        "min_contributors is 0 but must be at least 1, or None for more than half",
    ),
    "min_contributors below none": (
        {"min_contributors": -1},
        "min_contributors is -1 but must be at least 1, or None for more than half",
    ),
    "negative floor": (
        {"floor_ms": -5.0},
        "floor_ms is -5 ms but must be between 0 ms",
    ),
    "negative ceiling": (
        {"floor_ms": 0.0, "ceiling_ms": -5.0},
        "ceiling_ms is -5 ms but must be between the floor_ms of 0 ms ",
    ),
}


def call_wrongly(rank, size):
    texts = {
        name: failure_of(lambda w=w: reduce_with(**w)) for name, (w, _) in WRONG.items()
    }
    # Nothing was sent: the group is as it was.
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return texts, tensor.tolist()


def test_a_value_out_of_its_range_is_named_on_every_rank():
    for failures, after in run_ranks(3, call_wrongly, group_timeout=GROUP_TIMEOUT):
        assert after == [3, 3, 3]
        for name, failure in failures.items():
            assert failure.name == "ConfigError"
            assert f"SkipStraggler: {WRONG[name][1]}" in failure.text
            assert failure.seconds < SOON_S


def call_wrongly_on_one(rank, size, options):
    """The odd rank leaves with its error; all are needed, so nobody goes on."""
    dist.barrier()
    start = time.monotonic()
    mine = options if rank == ODD else {"min_contributors": 3}
    failure = failure_of(lambda: reduce_with(**mine))
    seconds = time.monotonic() - start
    if rank == ODD:
        dist.destroy_process_group()
    return failure, seconds


@pytest.mark.parametrize("name", WRONG)
def test_a_value_out_of_its_range_on_one_rank_ends_the_call_on_all(name):
    options, text = WRONG[name]
    options = {"min_contributors": 3} | options
    results = run_ranks(3, call_wrongly_on_one, options, group_timeout=GROUP_TIMEOUT)
    for rank, (failure, seconds) in enumerate(results):
        assert seconds < SOON_S, failure
        if rank == ODD or name == "min_contributors above the world":
            # What the engine refuses is told to all.
            assert failure.name == "ConfigError"
            assert text in failure.text
        else:
            # A policy that cannot be made is its maker's error: it leaves.
            assert (failure.name, failure.rank) == ("PeerLostError", ODD), failure
            assert "rank 1" in failure.text
            assert "min_contributors=3" in failure.text


def register_wrongly(rank, size, wrong_ranks):
    net = nn.Linear(3, 3)
    least = size + 1 if rank in wrong_ranks else 2
    with pytest.raises(ConfigError) as caught:
        ddp.register(
            DistributedDataParallel(net),
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            policy=SkipStraggler(min_contributors=least),
        )
    return str(caught.value)


def test_a_model_is_not_registered_with_more_contributors_than_ranks():
    text = (
        "register: SkipStraggler: min_contributors is 4 but the group has ranks 0 to "
        "2; it must be at most 3."
    )
    assert run_ranks(3, register_wrongly, [0, 1, 2]) == [text] * 3
    texts = set(run_ranks(3, register_wrongly, [ODD], group_timeout=GROUP_TIMEOUT))
    assert len(texts) == 1
    text = texts.pop()
    assert text.startswith("register: policy differs between ranks: policy is Skip")
    assert "min_contributors=2" in text.partition("on rank 0 but")[0]
    assert "min_contributors=4" in text.partition("on rank 0 but")[2]


# ---- Calls that may not be skipped --------------------------------------------------


def skip_what_may_not_be(rank, size):
    policy = SkipStraggler()
    ours, op = aikido_torch.all_reduce, dist.ReduceOp
    calls = {
        "integers": lambda: ours(torch.ones(9, dtype=torch.int64), policy=policy),
        "maximum": lambda: ours(torch.ones(9), op=op.MAX, policy=policy),
        "product": lambda: ours(torch.ones(9), op=op.PRODUCT, policy=policy),
    }
    seen = {}
    for name, call in calls.items():
        # On all, then on one alone: that is told to the others.
        seen[name] = (
            failure_of(call),
            failure_of(call if rank == ODD else lambda: ours(torch.ones(9))),
        )
    return seen


def test_a_policy_on_a_call_that_may_not_be_skipped_is_refused_on_every_rank():
    texts = {
        "integers": "with dtype int64: a member may be left out of floating point data",
        "maximum": "with op max: a member may be left out of a sum or a mean only",
        "product": "with op product: a member may be left out of a sum or a mean only",
    }
    results = run_ranks(3, skip_what_may_not_be, group_timeout=GROUP_TIMEOUT)
    for rank, seen in enumerate(results):
        for name, (own, told) in seen.items():
            for failure, culprit in ((own, rank), (told, ODD)):
                assert failure.name == "ConfigError"
                assert f"on rank {culprit}: policy SkipStraggler(" in failure.text
                assert texts[name] in failure.text
                assert failure.seconds < SOON_S


# ---- Too few left -------------------------------------------------------------------


def go_on_with_too_few(rank, size, least, victims):
    """Some die; the others call until one of their calls fails."""
    policy = SkipStraggler(min_contributors=least, floor_ms=100, ceiling_ms=100)
    tensor = torch.full((100_000,), rank + 1.0)
    dist.barrier()
    if rank in victims:
        die(after=0.3 + 0.2 * victims.index(rank))
    fewest, start = size, time.monotonic()
    while time.monotonic() - start < 30:
        try:
            work = aikido_torch.all_reduce(tensor.clone(), policy=policy)
        except AikidoError as error:
            took = time.monotonic() - start
            return fewest, type(error).__name__, str(error), took
        counts = [len(s.contributors) for s in work.outcome().shards]
        fewest = min([fewest, *counts])
        late(0.02)
    return fewest, "nothing", "", 0.0


@pytest.mark.parametrize(
    ("size", "least", "victims"), [(3, 3, [1]), (5, 4, [1, 3]), (4, 3, [0, 2])]
)
def test_with_fewer_left_than_must_contribute_no_smaller_sum_comes(
    size, least, victims
):
    results = run_ranks(
        size,
        go_on_with_too_few,
        least,
        victims,
        group_timeout=GROUP_TIMEOUT,
        may_die=set(victims),
    )
    left = size - len(victims)
    for rank, result in enumerate(results):
        if rank in victims:
            continue
        fewest, name, text, seconds = result
        assert fewest >= least
        assert name == "PeerLostError", (name, text)
        assert f"only {left} of {size} members are left" in text
        assert f"min_contributors={least}" in text
        assert seconds < 0.3 + 0.2 + SOON_S
