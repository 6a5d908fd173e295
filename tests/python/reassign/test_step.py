# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import default_collate

from aikido_torch.errors import ConfigError, TimedOutError
from aikido_torch.reassign._gradient import StepGradient
from aikido_torch.reassign._items import OwnItems
from aikido_torch.reassign._pending import PendingItems
from aikido_torch.reassign._plan import Plan
from aikido_torch.reassign._reader import ItemReader
from aikido_torch.reassign._staging import StagedItems
from aikido_torch.reassign._step import Step, StepParts

SAMPLES = torch.arange(24.0).reshape(12, 2)
PLAN = Plan(
    num_samples=12,
    batch_size=6,
    micro_batch_size=2,
    num_ranks=1,
    shuffle=False,
    seed=0,
    drop_last=True,
)


class Training:
    """One rank without a group's handle."""

    place = (0, 1)
    timeout_s = 1.0
    steps = 0

    def __init__(self, model):
        self.model = model
        self.taken = []

    def on_taken(self, owner, label, begin_ns, seconds):
        assert begin_ns > 0 <= seconds
        self.taken.append((owner, label))


@pytest.fixture
def parts(group_of_one):
    return make_parts(OwnItems(0))


def make_parts(exchange):
    model = DistributedDataParallel(nn.Linear(2, 1))
    weights = []
    gradient = StepGradient(model, weights.append)
    gradient.weights = weights
    return StepParts(
        training=Training(model),
        plan=PLAN,
        reader=ItemReader(SAMPLES, 0, default_collate),
        exchange=exchange,
        gradient=gradient,
        pending=PendingItems(reissues=True),
        seed=3,
    )


def step_of(parts, labels=(0, 1, 2)):
    return Step(parts, 0, 0, list(labels))


def backward(parts, micro_batch):
    loss = parts.training.model(micro_batch.data).sum()
    (loss * micro_batch.weight).backward()


def run(parts, step, fail_at=None):
    for micro_batch in step:
        if micro_batch.label == fail_at:
            raise ArithmeticError
        backward(parts, micro_batch)


def lost(parts):
    parts.pending.on_outcome(0, has_counted=True)
    return parts.pending.take(100)


def test_a_step_gives_its_items(parts):
    step = step_of(parts)
    assert step.state == "new"
    found = []
    for micro_batch in step:
        assert step.state == "open"
        found.append(micro_batch)
        backward(parts, micro_batch)
    assert step.state == "over"
    assert [m.label for m in found] == [0, 1, 2]
    assert [m.indices for m in found] == [[0, 1], [2, 3], [4, 5]]
    assert [m.weight for m in found] == [1 / 3] * 3
    assert torch.equal(found[1].data, SAMPLES[2:4])
    assert {(m.owner, m.is_taken) for m in found} == {(0, False)}
    assert step.computed == [(0, 0), (0, 1), (0, 2)]
    assert parts.gradient.weights == [3.0]
    assert lost(parts) == []


def test_random_numbers_follow_the_item(parts):
    def draw():
        return float(torch.rand(())), float(np.random.rand()), random.random()

    drawn = {}
    for micro_batch in step_of(parts):
        drawn[micro_batch.label] = draw()
        backward(parts, micro_batch)
    after = draw()
    torch.manual_seed(77)
    for micro_batch in step_of(parts, [2, 0]):
        assert draw() == drawn[micro_batch.label]
        draw()
        backward(parts, micro_batch)
    assert draw() == after


def test_the_reader_knows_own_and_likely_items(parts, monkeypatch):
    seen = []
    monkeypatch.setattr(parts.reader, "expect", lambda *items: seen.extend(items))
    Step(parts, 0, 0, [0, 1], likely=[5])
    assert seen == [[PLAN.item(0), PLAN.item(1)], [PLAN.item(5)]]


@pytest.mark.parametrize("is_computed", [True, False])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_loop_that_breaks_gives_the_rest_back(parts, is_computed, at):
    step = step_of(parts)
    for micro_batch in step:
        if micro_batch.label == at:
            if is_computed:
                backward(parts, micro_batch)
            break
        backward(parts, micro_batch)
    assert step.state == "over"
    count = at + is_computed
    assert [label for _, label in step.computed] == list(range(count))
    assert parts.gradient.weights[-1] == count
    assert lost(parts) == list(range(count, 3))
    assert parts.training.model.require_backward_grad_sync


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_error_in_the_loss_gives_the_rest_back(parts, at):
    step = step_of(parts)
    with pytest.raises(ArithmeticError):
        run(parts, step, fail_at=at)
    assert step.state == "over"
    assert parts.gradient.weights[-1] == at
    assert lost(parts) == list(range(at, 3))


def test_an_error_of_the_dataset_gives_the_rest_back(parts):
    step = step_of(parts, [0, 9, 2])  # label 9 has no samples
    with pytest.raises(IndexError):
        run(parts, step)
    assert step.state == "over"
    assert parts.gradient.weights[-1] == 1.0
    assert lost(parts) == [9, 2]


def test_an_error_within_a_backward_breaks_the_step(parts):
    def fail(_):
        if len(step.computed) == 1:
            raise ArithmeticError

    step = step_of(parts)
    # The bias comes first in the backward.
    weight, _ = parts.training.model.parameters()
    weight.register_hook(fail)
    with pytest.raises(ArithmeticError):
        run(parts, step)
    assert step.state == "broken"
    assert parts.gradient.weights == []
    assert parts.training.model.require_backward_grad_sync
    # Its contribution is missing, so the computed item is lost as well.
    parts.pending.on_outcome(0, has_counted=False)
    assert parts.pending.take(100) == [1, 2, 0]


def test_an_error_of_the_exchange_breaks_the_step(group_of_one):
    class Failing(OwnItems):
        def claim(self, timeout_s):
            claim = super().claim(timeout_s)
            if claim.index == 1:
                raise TimedOutError("no answer")
            return claim

    parts = make_parts(Failing(0))
    step = step_of(parts)
    with pytest.raises(TimedOutError):
        run(parts, step)
    assert step.state == "broken"
    assert parts.gradient.weights == []


def test_a_step_is_iterated_once(parts):
    step = step_of(parts)
    for micro_batch in step:
        backward(parts, micro_batch)
    with pytest.raises(ConfigError, match="iterated a second time"):
        iter(step)
    late = step_of(parts)
    parts.training.steps = 1
    with pytest.raises(ConfigError, match="after step 1 has begun"):
        iter(late)
    assert late.state == "new"


def test_a_taken_item_is_told(group_of_one):
    class Helping(OwnItems):
        def claim(self, timeout_s):
            claim = super().claim(timeout_s)
            if claim is not None and claim.index == 2:
                return type(claim)(owner=4, index=0, label=5, is_last=True)
            return claim

    parts = make_parts(Helping(0))
    step = step_of(parts)
    found = []
    for micro_batch in step:
        found.append((micro_batch.owner, micro_batch.label, micro_batch.is_taken))
        backward(parts, micro_batch)
    assert found == [(0, 0, False), (0, 1, False), (4, 5, True)]
    assert parts.training.taken == [(4, 5)]
    # The owner of an item decides whether it is lost.
    parts.pending.on_outcome(0, has_counted=False)
    assert parts.pending.take(100) == [0, 1]


class Clock:
    """Manual clock, in the place of the module `time`."""

    now = 0.0

    def monotonic(self):
        return self.now


def test_the_wait_for_other_ranks_is_no_computation(parts, monkeypatch):
    """It comes after the gradients of the last item."""
    clock = Clock()
    for module in ("_step", "_gradient"):
        monkeypatch.setattr(f"aikido_torch.reassign.{module}.time", clock)

    def wait(_, bucket):
        clock.now += 100
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    finished = []
    parts.exchange.finished = finished.append
    parts.training.model.register_comm_hook(None, wait)
    step = step_of(parts)
    for micro_batch in step:
        clock.now += 2
        backward(parts, micro_batch)
    assert finished == [2, 2, 2]
    assert step.seconds == 6


class TakenItems(OwnItems):
    """Exchange in which this rank takes items 4 and 5 of rank 1 first."""

    def begin(self, step, labels, costs):
        self._begin([(1, 4), (1, 5), *((0, label) for label in labels)])


def test_a_step_ends_early_if_an_owner_does_not_send_an_item(group_of_one, caplog):
    parts = make_parts(TakenItems(0))
    staged = StagedItems(parts.reader.read)
    staged.fetch = lambda owner, label, timeout_s: (
        pickle.dumps(SAMPLES[8:10]) if label == 4 else None
    )
    parts = replace(parts, reader=staged)
    step = step_of(parts)
    run(parts, step)
    assert step.state == "over"
    assert step.computed == [(1, 4)]
    assert lost(parts) == [0, 1, 2]
    assert "rank 1 has not sent the data of its micro-batch 5" in caplog.text
