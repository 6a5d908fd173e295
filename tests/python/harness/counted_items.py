# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Training with a `StepLoader` that counts how often each sample is in a sum."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.reassign import StepLoader

MICRO = 2


class Counting(nn.Module):
    """The gradient of parameter i is the share of sample i in the step."""

    def __init__(self, count):
        super().__init__()
        self.each = nn.Parameter(torch.zeros(count, dtype=torch.float64))

    def forward(self, indices):
        return self.each[indices].mean()


class Counts:
    """Number of sums with each sample; a copied state has them too."""

    def __init__(self, count):
        self.each = torch.zeros(count, dtype=torch.float64)

    def state_dict(self):
        return {"each": self.each}

    def load_state_dict(self, state):
        self.each.copy_(state["each"])


class CountedTraining:
    """Training of one rank.

    Args:
        num_samples: samples of the dataset.
        policy: policy of the model.
        options: further arguments of `register`.
        loader: further arguments of the loader.
    """

    def __init__(self, num_samples, policy, *, options=None, **loader):
        self.model = DistributedDataParallel(Counting(num_samples))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.counts = Counts(num_samples)
        self.steps = StepLoader(range(num_samples), micro_batch_size=MICRO, **loader)
        self.handle = ddp.register(
            self.model,
            optimizer=self.optimizer,
            policy=policy,
            steps=self.steps,
            apply=self.apply,
            state={"counts": self.counts},
            **(options or {}),
        )

    def apply(self):
        num_items = self.handle.outcomes[-1].weight
        self.counts.each.add_(self.model.module.each.grad * num_items * MICRO)
        self.optimizer.step()

    def backward(self, micro_batch):
        (self.model(micro_batch.data) * micro_batch.weight).backward()

    def update(self):
        self.apply()
        self.optimizer.zero_grad()

    def found(self):
        """Counts, samples of this rank that are to come, and dropped items."""
        labels = self.steps.state_dict()["pending"]
        pending = [i for label in labels for i in self.steps._plan.indices_of(label)]
        counts = self.counts.each.round(decimals=6).tolist()
        return counts, pending, self.steps._pending.num_dropped
