# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Training with a `StepLoader`: equal to one process over the same batches."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.ddp._step_training import StepTraining
from aikido_torch.errors import ConfigError
from aikido_torch.reassign import StepLoader
from aikido_torch.reassign._items import OwnItems
from aikido_torch.straggler import WaitAll
from aikido_torch.testing import run_ranks

SIZE = 3
EPOCHS = 2


def samples_of(count=40):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 8, generator=generator, dtype=torch.float64)


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def loss_of(model, samples):
    return model(samples).square().mean()


class Training:
    """Model of this rank, registered with a loader."""

    def __init__(self, steps, *, as_views=False, **options):
        self.model = DistributedDataParallel(
            make_net(), bucket_cap_mb=0.0005, gradient_as_bucket_view=as_views
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps = steps
        options = {"policy": WaitAll()} | options
        self.handle = ddp.register(
            self.model, optimizer=self.optimizer, steps=steps, **options
        )

    def backward(self, micro_batch):
        (loss_of(self.model, micro_batch.data) * micro_batch.weight).backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def epoch(self):
        for step in self.steps:
            for micro_batch in step:
                self.backward(micro_batch)
            self.update()

    def parameters(self):
        return [p.detach() for p in self.model.parameters()]


def loader_of(samples=None, **options):
    options = {"batch_size": 10, "micro_batch_size": 2} | options
    return StepLoader(samples_of() if samples is None else samples, **options)


def train_alone(samples, batch_size=10):
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(len(samples), generator=generator)
        for batch in order.split(batch_size):
            loss_of(net, samples[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach() for p in net.parameters()]


def assert_equals_one_process(training, samples):
    for own, alone in zip(training.parameters(), train_alone(samples), strict=True):
        torch.testing.assert_close(own, alone, rtol=1e-12, atol=1e-14)


def train(rank, size):
    """With 5 items for 3 ranks, and with a last step of 1.5 items."""
    for count, options in (
        (40, {}),
        (43, {"drop_last": False}),
        (40, {"cost": lambda sample: float(sample.abs().sum())}),
    ):
        for as_views in (False, True):
            samples = samples_of(count)
            training = Training(loader_of(samples, **options), as_views=as_views)
            for _ in range(EPOCHS):
                training.epoch()
            assert_equals_one_process(training, samples)


def test_a_training_equals_one_process_over_the_same_batches():
    run_ranks(SIZE, train)


def train_as_ddp_does(rank, size):
    """Equal items: bits of a registered model that accumulates under no_sync."""
    training = Training(loader_of(batch_size=12, shuffle=False, helpers=0))
    training.epoch()
    model = DistributedDataParallel(make_net(), bucket_cap_mb=0.0005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ddp.register(model, optimizer=optimizer, policy=WaitAll(), batches_per_step=2)
    for batch in samples_of()[:36].split(12):
        first, last = batch.split(2)[2 * rank : 2 * rank + 2]
        with model.no_sync():
            (loss_of(model, first) / 2).backward()
        (loss_of(model, last) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    for own, other in zip(training.parameters(), model.parameters(), strict=True):
        assert torch.equal(own, other)


def test_equal_items_have_the_bits_of_accumulation():
    run_ranks(SIZE, train_as_ddp_does)


# ---- items that move ----


class Scripted(OwnItems):
    """Rank 1 gives all its items to rank 0, and rank 2 gives its last one to rank 1."""

    def __init__(self, rank, loader, *, knows_last):
        super().__init__(rank)
        self._loader, self._is_last_known = loader, knows_last

    def begin(self, step, labels, costs):
        plan = self._loader._plan
        epoch, number = divmod(step, len(self._loader))
        first, second, third = plan.lists_of(epoch, number)
        lists = [[*first, *second], third[-1:], third[:-1]]
        items = [(self._rank, label) for label in lists[self._rank]]
        self._begin(items, knows_last=self._is_last_known)


def train_moved(rank, size):
    for knows_last in (True, False):
        for as_views in (False, True):
            steps = loader_of()
            items = Scripted(rank, steps, knows_last=knows_last)
            StepTraining.exchange = lambda *_, items=items: items
            training = Training(steps, as_views=as_views)
            for _ in range(EPOCHS):
                training.epoch()
            assert_equals_one_process(training, samples_of())
            assert training.handle.steps == len(steps) * EPOCHS


def test_items_that_move_count_as_on_their_own_rank():
    run_ranks(SIZE, train_moved)


def train_again(rank, size):
    """A replay has the bits of the run, in which items moved."""
    given = StepTraining.exchange
    runs = []
    log = None
    for knows_last in (True, False):
        for replay in (False, True):
            steps = loader_of(replay=log if replay else None)
            items = Scripted(rank, steps, knows_last=knows_last)
            StepTraining.exchange = given if replay else lambda *_, items=items: items
            training = Training(steps)
            for _ in range(EPOCHS):
                training.epoch()
            log = steps.log()
            runs.append(
                (training.parameters(), [r["computed"] for r in log["records"]])
            )
        (one, items), (again, items_again) = runs[-2:]
        assert items == items_again
        for own, other in zip(one, again, strict=True):
            assert torch.equal(own, other)


def test_a_replay_has_the_bits_of_the_run():
    run_ranks(SIZE, train_again)


# ---- errors ----


def leave_early(rank, size):
    """An error of one rank in a loss, and a break: each item counts once in the end."""
    steps = loader_of(batch_size=12, shuffle=False)
    training = Training(steps)
    found = []
    for step in steps:
        try:
            for micro_batch in step:
                if (rank, step.number) == (1, 1):
                    raise ArithmeticError
                training.backward(micro_batch)
                found.append(micro_batch.label)
                if (rank, step.number) == (2, 0):
                    break
        except ArithmeticError:
            pass
        training.update()
    assert training.handle.steps == 3
    return found, [p.numpy().tobytes() for p in training.parameters()]


def test_a_rank_that_leaves_a_step_early_computes_the_rest_later():
    results = run_ranks(SIZE, leave_early)
    assert len({tuple(parameters) for _, parameters in results}) == 1
    assert sorted(label for found, _ in results for label in found) == list(range(18))


def refuse(rank, size):
    """Sentences of errors on this rank, although only some ranks are wrong."""
    cases = {
        "length": {"samples": samples_of(40 + rank)},
        "micro": {"micro_batch_size": 1 if rank == 1 else 2},
        "seed": {"seed": rank},
        "few": {"batch_size": 4},
        "function": {"cost": lambda sample: -1.0 if rank == 2 else 1.0},
        "list": {"cost": [1.0 + rank] * 40},
        "some": {"cost": [1.0] * 40 if rank else None},
    }
    said = {}
    for name, options in cases.items():
        with pytest.raises(ConfigError) as error:
            Training(loader_of(**options))
        said[name] = str(error.value)
    with pytest.raises(ConfigError) as error:
        Training(loader_of() if rank else None)
    said["none"] = str(error.value)
    Training(loader_of()).epoch()  # the group still works
    return said


REFUSALS = {
    "length": "steps.num_samples is 40 on rank 0 but 41 on rank 1",
    "micro": "steps.micro_batch_size is 2 on rank 0 but 1 on rank 1",
    "seed": "steps.seed is 0 on rank 0 but 1 on rank 1",
    "few": "has 2 micro-batches (batch_size 4, micro_batch_size 2), fewer than the 3",
    "function": "the cost of sample 28 is -1.0",
    "list": "steps.cost is",
    "some": "steps.cost is None on rank 0",
    "none": "steps differs between ranks",
}


def test_wrong_arguments_on_some_ranks_are_refused_on_all_ranks():
    for said in run_ranks(SIZE, refuse):
        for name, part in REFUSALS.items():
            assert part in said[name], (name, said[name])
