# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Invalid policies: every rank gets an error in time that gives the reason."""

import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import aikido_torch
from aikido_torch import ddp
from aikido_torch.errors import AikidoError, ConfigError
from aikido_torch.straggler import Carry, SkipStraggler
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
    # Nothing was sent: the group is unchanged.
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return texts, tensor.tolist()


def test_a_value_out_of_range_is_named_on_every_rank():
    for failures, after in run_ranks(3, call_wrongly, group_timeout=GROUP_TIMEOUT):
        assert after == [3, 3, 3]
        for name, failure in failures.items():
            assert failure.name == "ConfigError"
            assert f"SkipStraggler: {WRONG[name][1]}" in failure.text
            assert failure.seconds < SOON_S


def call_wrongly_on_one(rank, size, options):
    """The odd rank catches its error and continues with the other ranks."""
    dist.barrier()
    mine = options if rank == ODD else {}
    failures = [
        failure_of(lambda: reduce_with(**mine)),
        failure_of(lambda: ddp_with(SkipStraggler(**mine))),
    ]
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return failures, tensor.tolist()


def ddp_with(policy):
    net = nn.Linear(3, 3)
    ddp.register(
        DistributedDataParallel(net),
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        policy=policy,
    )


@pytest.mark.parametrize("name", WRONG)
def test_a_value_out_of_range_on_one_rank_is_named_on_all(name):
    options, text = WRONG[name]
    value = float(text.split()[2])
    results = run_ranks(3, call_wrongly_on_one, options, group_timeout=GROUP_TIMEOUT)
    for (called, registered), after in results:
        for failure in (called, registered):
            assert failure.name == "ConfigError"
            assert failure.seconds < SOON_S
        assert called.rank == ODD
        assert f"all_reduce on rank 1: SkipStraggler: {text}" in called.text
        assert "register: policy differs between ranks: policy." in registered.text
        told = registered.text.partition(" on rank 0 but ")[2]
        assert float(told.split()[0]) == value
        assert "on rank 1; give all ranks the same policy." in told
        assert after == [3, 3, 3]


WRONG_ARGUMENTS = {
    "priority": ({"priority": 5000}, "priority is 5000; it takes a whole number from "),
    "timeout": ({"timeout": 5}, "timeout is 5; pass a datetime.timedelta"),
    "carry": ({"carry": 1}, "carry is 1; pass an aikido_torch.straggler.Carry()"),
    "op": ({"op": "sum"}, "op is 'sum'; pass a dist.ReduceOp"),
    "data_shard": ({"data_shard": -3}, "data_shard is -3; pass the rank of a primary"),
    "ceiling": (
        {"policy": SkipStraggler(ceiling_ms=3_000_000)},
        "SkipStraggler: ceiling_ms is 3e+06 but the timeout of the call is 60000 ms",
    ),
}


def call_with_wrong_arguments(rank, size):
    seen = {}
    for name, (arguments, _) in WRONG_ARGUMENTS.items():
        mine = arguments if rank == ODD else {}
        seen[name] = failure_of(lambda a=mine: aikido_torch.all_reduce(ones(), **a))
    scatter = aikido_torch.reduce_scatter_tensor
    mine = {"policy": 3} if rank == ODD else {}
    seen["scatter"] = failure_of(lambda: scatter(torch.ones(1), ones(), **mine))
    scatter_list = aikido_torch.reduce_scatter
    seen["list"] = failure_of(lambda: scatter_list(torch.ones(3), [ones()] * 3, **mine))
    tensor = ones()
    dist.all_reduce(tensor)
    return seen, tensor.tolist()


def ones():
    return torch.ones(3)


def call_with_carries(rank, size):
    """Only the odd rank has a pending gradient, which fits no other shape."""
    carry = Carry()
    if rank == ODD:
        carry.add_to(torch.ones(7))
        carry._is_pending = True
    failure = failure_of(lambda: aikido_torch.all_reduce(ones(), carry=carry))
    dist.all_reduce(tensor := ones())
    return failure, tensor.tolist()


def test_a_carry_that_does_not_fit_on_one_rank_is_reported_to_all():
    results = run_ranks(3, call_with_carries, group_timeout=GROUP_TIMEOUT)
    for failure, after in results:
        assert (failure.name, failure.rank) == ("ConfigError", ODD), failure
        assert "all_reduce on rank 1: " in failure.text
        assert after == [3, 3, 3]


def test_a_wrong_argument_of_one_rank_is_reported_to_all():
    texts = {
        name: f"all_reduce on rank 1: {t}" for name, (_, t) in WRONG_ARGUMENTS.items()
    }
    texts["scatter"] = "reduce_scatter_tensor on rank 1: policy is 3; pass WaitAll()"
    texts["list"] = "reduce_scatter on rank 1: policy is 3; pass WaitAll()"
    results = run_ranks(3, call_with_wrong_arguments, group_timeout=GROUP_TIMEOUT)
    for seen, after in results:
        assert after == [3, 3, 3]
        assert seen.keys() == texts.keys()
        for name, failure in seen.items():
            assert (failure.name, failure.rank) == ("ConfigError", ODD), failure
            assert texts[name] in failure.text
            assert failure.seconds < SOON_S


def register_wrongly(rank, size, options, wrong_ranks):
    mine = options if rank in wrong_ranks else {"min_contributors": 2}
    with pytest.raises(ConfigError) as caught:
        ddp_with(SkipStraggler(**mine))
    return str(caught.value)


@pytest.mark.parametrize("name", WRONG)
def test_registration_with_a_value_out_of_range_is_refused(name):
    options, text = WRONG[name]
    texts = run_ranks(3, register_wrongly, options, [0, 1, 2])
    assert len(set(texts)) == 1
    assert texts[0].startswith(f"register: SkipStraggler: {text}")


def test_ranks_that_register_different_policies_learn_the_difference():
    wrong = {"min_contributors": 4}
    texts = run_ranks(3, register_wrongly, wrong, [ODD], group_timeout=GROUP_TIMEOUT)
    text = (
        "register: policy differs between ranks: policy.min_contributors is 2 on rank "
        "0 but 4 on rank 1; give all ranks the same policy."
    )
    assert texts == [text] * 3


# ---- Calls that must not skip -------------------------------------------------------


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
        # First all ranks call wrongly, then one rank alone. The others get its error.
        seen[name] = (
            failure_of(call),
            failure_of(call if rank == ODD else lambda: ours(torch.ones(9))),
        )
    return seen


def test_a_policy_on_a_call_that_must_not_skip_is_refused_on_every_rank():
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


# ---- Too few contributors -----------------------------------------------------------


def go_on_with_too_few(rank, size, least, victims):
    """Some ranks die. The others call until one of their calls fails."""
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
def test_fewer_ranks_than_min_contributors_give_an_error_and_no_smaller_sum(
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
