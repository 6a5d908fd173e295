# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pipelines in one thread, and a reference without ranks and messages."""

import copy
import random
from collections import defaultdict

import torch
from torch import nn

from aikido_torch.pipeline.plan._schedule import Schedule
from aikido_torch.pipeline.runtime._executor import Executor, Program
from aikido_torch.pipeline.runtime._stage import StageRun

WIDTH = 5


class Ends:
    """A pending event with an action to do once when it happens."""

    def __init__(self, is_over, act=lambda: None):
        self._is_over = is_over
        self._act = act

    def is_done(self):
        if self._act is not None and self._is_over():
            self._act()
            self._act = None
        return self._act is None

    def wait(self):
        assert self.is_done(), "waited for what cannot end"

    def when_done(self, call):
        act = self._act or (lambda: None)
        self._act = lambda: (act(), call())


class Network:
    """Messages between ranks in one thread, and sums added in rank order."""

    def __init__(self, stages):
        self.stages = stages
        self.messages = defaultdict(list)
        self.sums = defaultdict(dict)
        self.num_sent = 0

    def channel(self, rank):
        return LocalChannel(self, rank)


class LocalChannel:
    """One rank's end of the network."""

    def __init__(self, network, rank):
        self._network = network
        self._rank = rank
        self._num_sums = defaultdict(int)

    def send(self, peer, tag, buffer):
        self._network.num_sent += 1
        self._network.messages[self._rank, peer, tag].append(buffer.clone())
        return Ends(lambda: True)

    def receive(self, peer, tag, buffer):
        box = self._network.messages[peer, self._rank, tag]

        def take():
            message = box.pop(0)
            assert message.numel() == buffer.numel(), (tag, message.numel())
            buffer.copy_(message)

        return Ends(lambda: bool(box), take)

    def reduce(self, stage, tensor):
        number = self._num_sums[stage]
        self._num_sums[stage] += 1
        parts = self._network.sums[stage, number, tensor.dtype]
        parts[self._rank] = tensor.clone()
        ranks = self._network.stages[stage]

        def take():
            total = parts[ranks[0]].clone()
            for rank in ranks[1:]:
                total += parts[rank]
            tensor.copy_(total)

        return Ends(lambda: len(parts) == len(ranks), take)


class BatchFeed:
    """The same list of (inputs, target, weight) for all ranks."""

    def __init__(self, batches):
        self._batches = batches

    def inputs(self, micro_batch):
        x, _, weight = self._batches[micro_batch]
        return (x,), weight

    def target(self, micro_batch, weight):
        return self._batches[micro_batch][1]


class LocalPipeline:
    """All ranks of a schedule in this thread; a random one runs next."""

    def __init__(self, modules, schedule, make_optimizer, loss_fn, seed=0):
        self.schedule = schedule
        self.dice = random.Random(seed)
        self.network = Network(schedule.stages)
        count = len(schedule.stages)
        self.runs = [
            {
                s: StageRun(
                    s,
                    copy.deepcopy(modules[s]),
                    make_optimizer=make_optimizer,
                    loss_fn=loss_fn if s + 1 == count else None,
                )
                for s, ranks in enumerate(schedule.stages)
                if rank in ranks
            }
            for rank in range(len(schedule.ranks))
        ]
        self.executors = [
            Executor(stages, self.network.channel(rank))
            for rank, stages in enumerate(self.runs)
        ]

    def program(self, rank):
        made = self.schedule
        return Program(made.ranks[rank], made.micro_batches, made.stages)

    def run(self, feed):
        left = {
            rank: (executor.run(self.program(rank), feed), None)
            for rank, executor in enumerate(self.executors)
        }
        while left:
            able = [r for r, (_, p) in left.items() if p is None or p.is_done()]
            assert able, "the ranks wait for each other"
            rank = self.dice.choice(able)
            steps, _ = left[rank]
            try:
                left[rank] = steps, next(steps)
            except StopIteration:
                del left[rank]
        assert not any(self.network.messages.values()), "a message is left"

    def module(self, stage, replica=0):
        return self.runs[self.schedule.stages[stage][replica]][stage].module

    def losses(self):
        found = {}
        for rank in self.schedule.stages[-1]:
            found |= self.runs[rank][len(self.schedule.stages) - 1].losses
        return [found.get(b) for b in range(self.schedule.micro_batches)]


class Reference:
    """The same training in one process.

    It takes two things from the schedule: the version that a micro-batch reads on each
    stage, and the micro-batches of each update. It does not use the order of the
    schedule. All stages of a micro-batch are one graph, and gradients are summed per
    update.
    """

    def __init__(self, modules, schedule: Schedule, make_optimizer, loss_fn):
        self.modules = [copy.deepcopy(module) for module in modules]
        self.loss_fn = loss_fn
        self.optimizers = [make_optimizer(list(m.parameters())) for m in self.modules]
        self.versions = {}  # (stage, micro-batch) -> version
        self.updates = [{} for _ in modules]  # update -> rank -> micro-batches
        for rank, program in enumerate(schedule.ranks):
            number = defaultdict(lambda: 1)
            for it in program:
                if it.kind == "forward":
                    self.versions[it.stage, it.micro_batch] = it.version
                if it.kind in ("backward", "weight_gradient"):
                    update = self.updates[it.stage].setdefault(number[it.stage], {})
                    update.setdefault(rank, []).append(it.micro_batch)
                is_replicated = len(schedule.stages[it.stage]) > 1
                if it.kind == ("reduce" if is_replicated else "step"):
                    number[it.stage] += 1

    def run(self, batches):
        self.batches = batches
        self.weights = [
            {0: [p.detach().clone() for p in m.parameters()]} for m in self.modules
        ]
        self.found = {}
        for stage, updates in enumerate(self.updates):
            self.weights_of(stage, len(updates))
        for stage, module in enumerate(self.modules):
            self.put(stage, self.weights[stage][len(self.updates[stage])], module)
        return [self.computed(b)[0] for b in range(len(batches))]

    def put(self, stage, weights, module):
        with torch.no_grad():
            for parameter, weight in zip(module.parameters(), weights, strict=True):
                parameter.copy_(weight)

    def weights_of(self, stage, version):
        if version not in self.weights[stage]:
            before = self.weights_of(stage, version - 1)
            parts = []
            for _, batches in sorted(self.updates[stage][version].items()):
                part = None
                for b in batches:
                    if self.batches[b][2] == 0:
                        continue
                    given = self.computed(b)[1][stage]
                    part = given if part is None else plus(part, given)
                if part is None:
                    part = [torch.zeros_like(weight) for weight in before]
                parts.append(part)
            total = parts[0]
            for part in parts[1:]:
                total = plus(total, part)
            every = [b for own in self.updates[stage][version].values() for b in own]
            weight = sum(self.batches[b][2] for b in every)
            self.weights[stage][version] = self.stepped(stage, before, total, weight)
        return self.weights[stage][version]

    def stepped(self, stage, before, total, weight):
        if weight == 0:
            return before
        module = self.modules[stage]
        self.put(stage, before, module)
        for parameter, gradient in zip(module.parameters(), total, strict=True):
            parameter.grad = gradient / weight
        self.optimizers[stage].step()
        return [p.detach().clone() for p in module.parameters()]

    def computed(self, b):
        """The loss, and the gradients by stage, multiplied by the batch weight."""
        if b not in self.found:
            x, target, weight = self.batches[b]
            if weight == 0:
                return None, None
            taken = []
            for stage, module in enumerate(self.modules):
                weights = self.weights_of(stage, self.versions[stage, b])
                leaves = [w.clone().requires_grad_() for w in weights]
                names = [name for name, _ in module.named_parameters()]
                taken.append(leaves)
                x = torch.func.functional_call(
                    module, dict(zip(names, leaves, strict=True)), (x,)
                )
            loss = self.loss_fn(x, target)
            flat = [leaf for leaves in taken for leaf in leaves]
            seed = torch.tensor(weight, dtype=loss.dtype)
            gradients = iter(torch.autograd.grad(loss, flat, seed))
            self.found[b] = (
                loss.detach(),
                [[next(gradients) for _ in leaves] for leaves in taken],
            )
        return self.found[b]


def plus(some, others):
    return [a + b for a, b in zip(some, others, strict=True)]


def layered(count, seed=1):
    """Stages of a small network in fp64."""
    generator = torch.Generator().manual_seed(seed)
    modules = []
    for _ in range(count):
        module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
        modules.append(module)
    return modules


def batches_of(rows, seed=2):
    """(inputs, target, weight) for each number of rows; a full batch has weight 1."""
    generator = torch.Generator().manual_seed(seed)
    full = max(rows)
    return [
        (
            torch.randn(r, WIDTH, generator=generator, dtype=torch.float64),
            torch.randn(r, WIDTH, generator=generator, dtype=torch.float64),
            r / full,
        )
        for r in rows
    ]


def squared(output, target):
    return ((output - target) ** 2).mean()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.05)
