# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A late rank replays steps of many kinds of models and loops with equal bits."""

import hashlib
from types import MappingProxyType

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks

LATE_RANK = 2
LATE_STEP = 6
STEPS_BEHIND = 4
STEPS = 16
POLICY = SkipStraggler(min_contributors=2, floor_ms=40, ceiling_ms=40)


def bits(*tensors):
    """A digest of the values, independent of the memory layout."""
    found = hashlib.sha256()
    for tensor in tensors:
        values = tensor.detach().contiguous().flatten().view(torch.uint8)
        found.update(bytes(values.tolist()))
    return found.hexdigest()


def fall_behind(handle, most_s=10.0):
    """Waits until the others are some steps ahead, on a slow machine too."""
    waited = 0.0
    while handle._steps_held() < STEPS_BEHIND and waited < most_s:
        late(0.01)
        waited += 0.01


class Training:
    """A loop in which rank 2 is late once. Subclasses define the training.

    Attributes:
        told: arguments for `register`, besides model, optimizer and policy.
    """

    wrap = MappingProxyType({})
    is_unregistered = False

    def __init__(self, rank):
        torch.manual_seed(0)
        self.rank = rank
        self.net = self.make()
        self.model = DistributedDataParallel(self.net, **self.wrap)
        self.optimizer = self.make_optimizer()
        self.told = {}
        self.prepare()
        self.told = {"policy": POLICY, **self.told}
        self.handle = ddp.register(self.model, optimizer=self.optimizer, **self.told)

    def make(self):
        return nn.Linear(8, 8)

    def make_optimizer(self):
        return torch.optim.AdamW(self.net.parameters(), lr=0.01, weight_decay=0.1)

    def prepare(self):
        pass

    def batch(self, step):
        generator = torch.Generator().manual_seed(100 * step + self.rank)
        return torch.randn(4, 8, generator=generator)

    def loss(self, step):
        return self.model(self.batch(step)).square().mean()

    def step(self, step):
        self.optimizer.zero_grad()
        self.loss(step).backward()
        self.optimizer.step()

    def run(self):
        step, was_late = 0, False
        # Loops with work unknown to `register` need more steps until they are repaired.
        while (
            step := step + self.handle.catch_up()
        ) < STEPS + 16 * self.is_unregistered:
            if self.rank == LATE_RANK and step >= LATE_STEP and not was_late:
                was_late = True
                fall_behind(self.handle)
            self.step(step)
            step += 1
            late(0.01)
        self.handle.close()
        num_repairs = self.handle._state_check.num_repairs
        assert self.is_unregistered or num_repairs == 0, type(self).__name__
        return self.handle.replayed_steps, bits(*self.net.parameters())


class _Images(Training):
    def batch(self, step):
        generator = torch.Generator().manual_seed(100 * step + self.rank)
        images = torch.randn(2, 3, *[6] * self.dimensions, generator=generator)
        return images.to(memory_format=self.memory_format)

    def make(self):
        convolution = nn.Conv2d if self.dimensions == 2 else nn.Conv3d
        net = convolution(3, 8, 3)
        return net.to(memory_format=self.memory_format)


class ChannelsLast(_Images):
    dimensions, memory_format = 2, torch.channels_last


class ChannelsLast3d(_Images):
    dimensions, memory_format = 3, torch.channels_last_3d


class ChannelsLastViews(ChannelsLast):
    wrap = MappingProxyType({"gradient_as_bucket_view": True})


class Permuted(Training):
    def make(self):
        net = nn.Linear(8, 8)
        net.weight = nn.Parameter(torch.randn(8, 8).t())
        net.bias = nn.Parameter(torch.randn(16)[::2])
        return net


class ChannelsLastLater(ChannelsLast):
    """The layout changes after the buckets are made."""

    memory_format = torch.contiguous_format

    def step(self, step):
        # A rank that skips step 4 changes later, because digests read memory as it is.
        if step >= 4 and self.memory_format is torch.contiguous_format:
            self.memory_format = torch.channels_last
            self.net.to(memory_format=self.memory_format)
        super().step(step)


class _Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(8, 8)
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self.used(x)


class StaticScaler(Training):
    """The scaler skips the first steps, in which parameter usage was once learned."""

    wrap = MappingProxyType({"static_graph": True})

    def make(self):
        return _Unused()

    def prepare(self):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        self.told = {"apply": self.apply, "state": {"scaler": self.scaler}}

    def apply(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def step(self, step):
        self.optimizer.zero_grad()
        self.scaler.scale(100 * self.loss(step)).backward()
        self.apply()


class StepsInApply(Training):
    """A schedule that depends on the number of steps of the handle."""

    def prepare(self):
        self.told = {"apply": self.apply, "state": {}}

    def apply(self):
        for group in self.optimizer.param_groups:
            group["lr"] = 0.1 / self.handle.steps
        self.optimizer.step()

    def step(self, step):
        self.optimizer.zero_grad()
        self.loss(step).backward()
        assert self.handle.steps == step + 1
        self.apply()


class Unregistered(Training):
    """Work of the loop unknown to `register` is found and repaired."""

    is_unregistered = True

    def prepare(self):
        self.told = {"check_every": 8}

    def between(self, step):
        raise NotImplementedError

    def step(self, step):
        self.optimizer.zero_grad()
        self.loss(step).backward()
        self.between(step)
        self.optimizer.step()


class Clipped(Unregistered):
    def between(self, step):
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.01)


class Scheduled(Unregistered):
    def between(self, step):
        self.optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)


class LoopsOwnCount(Unregistered):
    """apply() reads a variable of the loop, which does not change during a replay."""

    def prepare(self):
        self.told = {"check_every": 8, "apply": self.apply, "state": {}}

    def apply(self):
        self.optimizer.param_groups[0]["lr"] = 0.1 / (1 + self.at)
        self.optimizer.step()

    def step(self, step):
        self.at = step
        self.optimizer.zero_grad()
        self.loss(step).backward()
        self.apply()


class Adversarial(Training):
    """Two models with a handle each. The loop counts each iteration once."""

    def prepare(self, **told):
        self.other = nn.Linear(8, 8)
        self.second = DistributedDataParallel(
            self.other, process_group=dist.new_group()
        )
        self.optimizers = [
            self.optimizer,
            torch.optim.AdamW(self.other.parameters(), lr=0.01),
        ]
        told = {"policy": POLICY, **told}
        self.other_handle = ddp.register(
            self.second, optimizer=self.optimizers[1], **told
        )

    def step(self, step):
        models = (self.model, self.second)
        for model, optimizer in zip(models, self.optimizers, strict=True):
            optimizer.zero_grad()
            model(self.batch(step)).square().mean().backward()
            optimizer.step()
            late(0.01)

    def run(self):
        step, was_late, handles = 0, False, (self.handle, self.other_handle)
        while True:
            ups = [handle.catch_up() for handle in handles]
            assert ups[0] == ups[1], (step, ups)
            step += ups[0]
            if step >= STEPS:
                break
            if self.rank == LATE_RANK and step >= LATE_STEP and not was_late:
                was_late = True
                fall_behind(self.handle)
            if self.rank == LATE_RANK and step >= STEPS - 3:
                # Waits until the others have done only the first model's part of the
                # last step.
                while self.handle._steps_held() < STEPS - step:
                    late(0.0005)
                continue
            self.step(step)
            step += 1
        for handle in handles:
            handle.close()
            assert handle._state_check.num_repairs == 0
        both = [*self.net.parameters(), *self.other.parameters()]
        return sum(handle.replayed_steps for handle in handles), bits(*both)


TRAININGS = [
    ChannelsLast,
    ChannelsLast3d,
    ChannelsLastViews,
    ChannelsLastLater,
    Permuted,
    StaticScaler,
    StepsInApply,
    Clipped,
    Scheduled,
    LoopsOwnCount,
    Adversarial,
]


def train_all(rank, size):
    return {training.__name__: training(rank).run() for training in TRAININGS}


@pytest.mark.beside
def test_a_replayed_step_equals_the_missed_step():
    by_rank = run_ranks(3, train_all, deadline=100.0)
    for name in by_rank[0]:
        assert by_rank[LATE_RANK][name][0] > 0, name
        assert len({found[name][1] for found in by_rank}) == 1, name
