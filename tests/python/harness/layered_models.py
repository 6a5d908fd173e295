# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Small models whose layers, sizes and times are known beforehand."""

import time

import torch
from torch import nn
from torch.nn import functional


class ManualClock:
    """Clock in seconds that advances only when spend() is called."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def spend(self, seconds):
        self.now += seconds


class _Spending(torch.autograd.Function):
    @staticmethod
    def forward(context, x, spend, seconds):
        context.spend, context.seconds = spend, seconds
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        context.spend(context.seconds)
        return gradient, None, None


class Spender(nn.Module):
    """A layer with given times of forward and backward; it computes almost nothing."""

    def __init__(self, forward_s, backward_s, *, spend=time.sleep):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.forward_s, self.backward_s, self.spend = forward_s, backward_s, spend

    def forward(self, x):
        self.spend(self.forward_s)
        return _Spending.apply(x * self.scale, self.spend, self.backward_s)


class Residual(nn.Module):
    """conv1, bn1, relu, conv2, bn2, plus the input, then the same relu again."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.bn2(self.conv2(inner))
        inner += x
        return self.relu(inner)


class BranchesInTime(nn.Module):
    """The sum of two branches with given times, and a layer after the sum."""

    def __init__(self, times, *, spend):
        super().__init__()
        left, right, after = times
        self.left = Spender(*left, spend=spend)
        self.right = Spender(*right, spend=spend)
        self.after = Spender(*after, spend=spend)

    def forward(self, x):
        return self.after(self.left(x) + self.right(x))


class ResNet(nn.Module):
    """A stem, a residual block, and a head after operations that are not modules."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(Residual(8))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.blocks(functional.relu(self.stem(x)))
        return self.head(x.mean((2, 3)).flatten(1))


class TwoTowers(nn.Module):
    """Two inputs with a layer each, and a layer for both."""

    def __init__(self):
        super().__init__()
        self.left = nn.Linear(4, 8)
        self.right = nn.Linear(6, 8)
        self.both = nn.Linear(16, 2)

    def forward(self, left, right):
        return self.both(torch.cat([self.left(left), self.right(right)], dim=1))


class Language(nn.Module):
    """Embedding of integers, two LSTMs that share a state, and a head."""

    def __init__(self, *, tied=False):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.position = nn.Parameter(torch.zeros(7, 16))
        self.first = nn.LSTM(16, 16, batch_first=True)
        self.second = nn.LSTM(16, 16, batch_first=True)
        self.head = nn.Linear(16, 50)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens, scale=None):
        x = self.embed(tokens) + self.position
        x, state = self.first(x)
        x, _ = self.second(x, state)
        if scale is not None:
            x = x * scale
        return {"logits": self.head(x), "state": state, "loss": None}


class BranchesOnData(nn.Module):
    """Model with a branch on values of its data; without `skips` it is a chain."""

    def __init__(self, *, skips):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.skips = skips

    def forward(self, x):
        inner = self.first(x)
        if inner.sum() > 1e9:
            inner = inner * 2
        return self.second(inner + x if self.skips else inner)
