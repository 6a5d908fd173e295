# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Delayed updates on real ranks: equal bits, and pauses that delay no other rank."""

import contextlib
from datetime import timedelta

import pytest
import torch
from torch.distributed.distributed_c10d import _get_default_store

from aikido_torch.errors import ConfigError, PeerLostError
from aikido_torch.reassign import StepLoader
from aikido_torch.testing import die, run_ranks
from harness.delayed_training import (
    STEPS,
    adam_of,
    batch_of,
    loss_of,
    start,
    train_alone,
    values_of,
)
from harness.failures import failure_of

LATE = 1
WAIT_S = timedelta(seconds=20)
SOON_S = 10.0


def digest(tensors):
    return [tensor.numpy().tobytes() for tensor in tensors]


# ---- bits ----


def one_of(step):
    """Only one rank counts, in turns; the others have weight 0."""
    return (4.0, 0.0) if step % 2 == 0 else (0.0, 2.0)


def train(rank, size, slack, is_weighted, are_views):
    wrap = {"gradient_as_bucket_view": are_views}
    model, optimizer, handle = start(slack, optimizer_of=adam_of, wrap=wrap)
    for step in range(STEPS):
        handle.catch_up()
        if is_weighted:
            handle.weight = one_of(step)[rank]
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    handle.close()
    assert {outcome.kind for outcome in handle.outcomes} == {"complete"}
    return digest(values_of(model.module, optimizer))


@pytest.mark.parametrize("slack", [0, 1, 3])
@pytest.mark.parametrize(
    ("is_weighted", "are_views"), [(False, False), (False, True), (True, False)]
)
def test_the_ranks_have_the_bits_of_late_updates_in_one_process(
    slack, is_weighted, are_views
):
    weights = one_of if is_weighted else None
    alone = train_alone(slack, 2, optimizer_of=adam_of, weights=weights)
    results = run_ranks(2, train, slack, is_weighted, are_views)
    assert results == [digest(alone)] * 2


# ---- pauses ----

PAUSES = (4, 9)


def pause(rank, size, slack):
    """In some steps one rank waits until another rank is `slack` steps ahead."""
    store = _get_default_store()
    model, optimizer, handle = start(slack)
    for step in range(STEPS):
        assert handle.catch_up() == 0
        store.set(f"rank {rank} begins {step}", "yes")
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        if rank == LATE and step in PAUSES:
            store.wait([f"rank 0 begins {step + slack}"], WAIT_S)
            store.set(f"pause {step} is over", "yes")
        loss.backward()
        optimizer.step()
        waited_for = step - slack
        if rank == 0 and waited_for in PAUSES:
            assert store.check([f"pause {waited_for} is over"])
    handle.close()
    return digest(values_of(model.module, optimizer))


@pytest.mark.parametrize("slack", [1, 2])
def test_a_rank_that_pauses_holds_up_no_step_before_the_bound(slack):
    results = run_ranks(2, pause, slack)
    assert results == [digest(train_alone(slack, 2))] * 2


def with_a_loader(rank, size, helpers):
    """The late rank publishes its list of a step after others have begun the next."""
    store = _get_default_store()
    samples = torch.cat([batch_of(0, step) for step in range(2 * STEPS)])
    steps = StepLoader(
        samples,
        batch_size=8,
        micro_batch_size=2,
        shuffle=False,
        helpers=helpers,
        slack=2,
        debug=True,
    )
    model, optimizer, handle = start(None, steps=steps)
    for step in steps:
        store.set(f"rank {rank} begins {step.number}", "yes")
        if rank == LATE and step.number in PAUSES:
            store.wait([f"rank 0 begins {step.number + 2}"], WAIT_S)
        for micro_batch in step:
            loss = model(micro_batch.data).square().mean()
            (loss * micro_batch.weight).backward()
        optimizer.step()
        optimizer.zero_grad()
    handle.close()
    assert (handle.steps, steps._proof.num_counted) == (STEPS, 4 * (STEPS - 3))

    other, second, handle = start(2, batches_per_step=2)
    for batch in samples.split(8):
        for number, part in enumerate(batch.split(2)[2 * rank : 2 * rank + 2]):
            with other.no_sync() if number == 0 else contextlib.nullcontext():
                (other(part).square().mean() / 2).backward()
        second.step()
        second.zero_grad()
    handle.close()
    return values_of(model.module, optimizer), values_of(other.module, second)


@pytest.mark.parametrize("helpers", [0, 1])
def test_a_loader_with_slack_trains_as_a_loop_that_accumulates(helpers):
    results = run_ranks(2, with_a_loader, helpers)
    assert digest(results[0][0]) == digest(results[1][0])
    for own, expected in zip(*results[0], strict=True):
        # The sum has another order if micro-batches move.
        bound = 0 if helpers == 0 else 1e-5
        torch.testing.assert_close(own, expected, rtol=bound, atol=bound)


# ---- errors ----


def differ(rank, size):
    with pytest.raises(ConfigError) as error:
        start(2 if rank == LATE else 1)
    return str(error.value)


def test_ranks_that_differ_in_slack_all_say_so():
    for text in run_ranks(2, differ):
        assert "slack is 1 on rank 0 but 2 on rank 1" in text


def flush_alone(rank, size):
    model, optimizer, handle = start(1)

    def train(num_steps):
        for step in range(num_steps):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()

    train(4)
    before = [p.detach().clone() for p in model.parameters()]
    failure = failure_of(handle.flush if rank == LATE else lambda: train(3))
    if rank == LATE:
        after = [p.detach() for p in model.parameters()]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return failure


def test_a_flush_of_one_rank_only_is_an_error_on_all():
    failures = run_ranks(2, flush_alone)
    for failure in failures:
        assert failure.name == "ConfigError"
        assert "rank 1 calls barrier()" in failure.text
        assert failure.seconds < SOON_S
    assert "Call it on all ranks, after the same step." in failures[LATE].text


def die_early(rank, size):
    model, optimizer, _handle = start(2)
    for step in range(STEPS):
        if rank == LATE and step == 6:
            die()
        optimizer.zero_grad()
        failure = failure_of(loss_of(model, rank, step).backward)
        if failure.name != "nothing":
            return failure, step
        optimizer.step()
    return None


def test_a_dead_rank_is_named_after_at_most_the_steps_of_slack():
    failure, step = run_ranks(2, die_early, may_die=[LATE])[0]
    assert failure.name == PeerLostError.__name__
    assert 6 <= step <= 8
    assert failure.seconds < SOON_S
