# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Late contributions count later, exactly once, with real late ranks.

All values are integers or integers divided by powers of two, so that sums are exact.
"""

import random

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import aikido_torch
from aikido_torch import ddp
from aikido_torch.ddp import StateCopy
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import Carry, SkipStraggler
from aikido_torch.testing import late, run_ranks

SIZE = 4
LATE = 3
POLICY = SkipStraggler(min_contributors=2, floor_ms=30, ceiling_ms=30, divisor="world")
COUNT = 100_000  # four shards
CALLS = 60


def reduce_with_a_late_rank(rank, size):
    """Compares the given gradients of all ranks with results plus pending gradients."""
    carry, lateness = Carry(), random.Random(rank)
    generator = torch.Generator().manual_seed(rank)
    totals = {name: torch.zeros(COUNT) for name in ("given", "results", "pending")}
    num_carried, num_parts = 0, 0
    for call in range(CALLS):
        tensor = torch.randint(-9, 9, (COUNT,), generator=generator).float()
        totals["given"] += tensor
        if rank == LATE and call % 3 == 0:
            # Close to the deadline, so that only some owners have closed their shards.
            late(0.03 * lateness.choice([0.9, 1.0, 1.02, 3.0]))
        num_carried += carry.pending is not None
        work = aikido_torch.all_reduce(tensor, policy=POLICY, carry=carry)
        totals["results"] += tensor
        counted = [rank in s.contributors for s in work.outcome().shards]
        num_parts += any(counted) and not all(counted)
        late(0.002)
    if carry.pending is not None:
        totals["pending"] += carry.pending
    for name in ("given", "pending"):
        dist.all_reduce(totals[name])
    is_kept = torch.equal(totals["results"] + totals["pending"], totals["given"])
    return is_kept, num_carried, num_parts, totals["results"].sum().item()


def test_with_a_late_rank_every_contribution_counts_once_or_is_pending():
    results = run_ranks(SIZE, reduce_with_a_late_rank)
    assert [is_kept for is_kept, *_ in results] == [True] * SIZE
    assert len({total for *_, total in results}) == 1
    assert results[LATE][1] > 0


def refuse(rank, size):
    tensor, carry = torch.ones(6, 4), Carry()
    with pytest.raises(ConfigError, match=r"strides \[1, 4\]; only contiguous tens"):
        aikido_torch.all_reduce(tensor.t(), carry=carry)
    work = aikido_torch.all_reduce(tensor, policy=POLICY, carry=carry, async_op=True)
    work.wait()
    return carry.pending


def test_a_refused_call_with_a_carry_sends_nothing():
    assert run_ranks(2, refuse) == [None, None]


STEPS = 30
WIDTH = 50


class Weights(nn.Module):
    """Two parameters in a bucket each; their gradients equal the inputs."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(WIDTH))
        self.b = nn.Parameter(torch.zeros(2, WIDTH))

    def forward(self, x):
        return (self.a * x).sum() + (self.b * torch.stack([x, 2 * x])).sum()


class Training:
    """A training on integers; with a scaler, the scale of the gradients changes."""

    def __init__(self, rank, late_gradients, way, has_scaler, accumulate=1):
        self.rank = rank
        self.net = Weights()
        self.model = DistributedDataParallel(self.net, bucket_cap_mb=0.0001)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1.0)
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=4.0, growth_interval=3, enabled=has_scaler
        )
        self.handle = ddp.register(
            self.model,
            optimizer=self.optimizer,
            policy=POLICY,
            apply=self.apply,
            state={"scaler": self.scaler},
            copy=StateCopy(when=way),
            late=late_gradients,
            batches_per_step=accumulate,
        )
        self.given = torch.zeros(WIDTH)

    def apply(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def step(self, number, accumulate):
        generator = torch.Generator().manual_seed(100 * number + self.rank)
        self.optimizer.zero_grad()
        for part in range(accumulate):
            x = torch.randint(-9, 9, (WIDTH,), generator=generator).float()
            self.given += x
            self.model.require_backward_grad_sync = part == accumulate - 1
            self.scaler.scale(self.model(x)).backward()
        self.apply()

    def pending(self):
        """Pending gradients of both parameters, without the scale."""
        found = {id(p): torch.zeros_like(p) for p in self.net.parameters()}
        for index, carry in self.handle._carrying.carries.items():
            if carry.pending is None:
                continue
            for s in self.handle._buckets[index].slices:
                view = carry.pending.as_strided(s.size, s.stride, s.offset)
                found[id(s.parameter)] = view / carry._scale
        return found[id(self.net.a)], found[id(self.net.b)]

    def fall_behind(self):
        waited = 0.0
        while self.handle._steps_held() < 3 and waited < 5:
            late(0.01)
            waited += 0.01

    def run(self, accumulate):
        step = 0
        while (step := step + self.handle.catch_up()) < STEPS:
            if self.rank == LATE and step in (6, 7, 12, 18, 19, 20):
                self.fall_behind()
            self.step(step, accumulate)
            step += 1
            late(0.01)
        a, b = self.pending()
        totals = torch.cat([self.given, a, b.flatten()])
        dist.all_reduce(totals)
        given, a, b = totals[:WIDTH], totals[WIDTH : 2 * WIDTH], totals[2 * WIDTH :]
        both = torch.stack([given, 2 * given])
        return {
            "is_kept": bool(
                torch.equal(-SIZE * self.net.a, given - a)
                and torch.equal(-SIZE * self.net.b, both - b.view(2, WIDTH))
            ),
            "weights": self.net.b.tolist(),
            "carried": self.handle.carried_steps,
            "copied": self.handle.copied_steps,
            "replayed": self.handle.replayed_steps,
            "skipped": self.handle.skipped_steps,
        }


def train(rank, size, late_gradients, way, has_scaler, accumulate=1):
    training = Training(rank, late_gradients, way, has_scaler, accumulate)
    return training.run(accumulate)


@pytest.mark.parametrize(
    ("way", "has_scaler", "accumulate"),
    [("never", False, 1), ("never", True, 1), ("always", True, 3)],
)
def test_late_gradients_survive_replays_copies_and_changes_of_scale(
    way, has_scaler, accumulate
):
    results = run_ranks(SIZE, train, "carry", way, has_scaler, accumulate)
    assert [result["is_kept"] for result in results] == [True] * SIZE
    assert all(result["weights"] == results[0]["weights"] for result in results)
    last = results[LATE]
    assert last["skipped"] > 0
    assert last["carried"] > 0
    assert last["replayed" if way == "never" else "copied"] > 0


def test_late_gradients_are_dropped_by_default():
    results = run_ranks(SIZE, train, "drop", "never", False)
    assert [result["is_kept"] for result in results] == [False] * SIZE
    assert [result["carried"] for result in results] == [0] * SIZE


def overflow(rank, size):
    """The gradient of the late rank overflows; no step of another rank is affected."""
    training = Training(rank, "carry", "never", True)
    step = 0
    while (step := step + training.handle.catch_up()) < 12:
        if rank == LATE and step == 5:
            training.fall_behind()
            for carry in training.handle._carrying.carries.values():
                carry.add_to = _with_infinity(carry.add_to)
        training.step(step, 1)
        step += 1
        late(0.01)
    return training.scaler.get_scale(), bool(training.net.b.isfinite().all())


def _with_infinity(add_to):
    is_first = [True]

    def add(tensor, scale):
        if is_first.pop() if is_first else False:
            tensor[0] = float("inf")
        return add_to(tensor, scale)

    return add


def test_a_late_overflow_affects_no_later_step():
    results = run_ranks(SIZE, overflow)
    # The scale grows every three steps and never shrinks.
    assert set(results) == {(4.0 * 2**4, True)}
