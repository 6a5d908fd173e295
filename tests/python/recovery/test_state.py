# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import copy

import pytest
import torch
from torch import nn, optim

from aikido_torch.recovery._state import TrainingState

OPTIMIZERS = [
    lambda p: optim.SGD(p, lr=0.1),
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: optim.Adam(p, lr=torch.tensor(0.1), amsgrad=True, foreach=False),
    lambda p: optim.Adagrad(p, lr=0.1),
    lambda p: optim.RMSprop(p, lr=0.1, centered=True),
    lambda p: optim.NAdam(p, lr=0.1),
    lambda p: optim.Adafactor(p, lr=0.1),
]


class Side:
    """One rank's training, in this process."""

    def __init__(self, make_optimizer, width=3, has_rng=False, dtype=torch.float32):
        torch.manual_seed(1)
        self.net = nn.Sequential(
            nn.Linear(3, width, dtype=dtype), nn.BatchNorm1d(width, dtype=dtype)
        )
        self.net[0].weight.data = self.net[0].weight.data.t().contiguous().t()
        self.optimizer = make_optimizer(self.net.parameters())
        self.scheduler = optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 4])
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=2)
        others = {"scheduler": self.scheduler, "scaler": self.scaler}
        self.state = TrainingState(self.net, self.optimizer, others, has_rng=has_rng)

    def learn(self, steps):
        for i in range(steps):
            generator = torch.Generator().manual_seed(i)
            x = torch.randn(5, 3, generator=generator, dtype=self.net[0].weight.dtype)
            self.optimizer.zero_grad()
            self.scaler.scale(self.net(x).square().mean()).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
        return self

    def everything(self):
        return copy.deepcopy(
            [
                self.net.state_dict(),
                self.optimizer.state_dict(),
                self.scheduler.state_dict(),
                self.scaler.state_dict(),
            ]
        )


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return a == b


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("own_steps", [0, 1])
def test_what_was_taken_is_put_in_place_whole_and_both_go_on_alike(make, own_steps):
    there, here = Side(make).learn(5), Side(make).learn(own_steps)
    snapshot = there.state.take()
    before = there.everything()
    there.learn(1)  # the snapshot has memory of its own
    assert not same(there.everything(), before)
    weight = here.net[0].weight
    parts = here.state.read(snapshot)
    assert here.state.difference(parts) is None
    here.state.apply(parts)
    assert same(here.everything(), before)
    assert here.net[0].weight is weight
    assert same(here.learn(1).everything(), there.everything())


def test_the_size_is_that_of_the_tensors():
    side = Side(OPTIMIZERS[1])
    # 9 + 3 + 3 + 3 parameters and 3 + 3 statistics of 4 bytes, a count of 8.
    assert side.state.nbytes() == 24 * 4 + 8
    assert side.learn(1).state.nbytes() == 24 * 4 + 8 + 18 * 4


def test_the_scale_of_gradients_is_that_of_the_scalers():
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def state(**others):
        return TrainingState(net, optimizer, others, has_rng=False)

    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    assert state(scheduler=scheduler).gradient_scale() == 1.0
    assert state(scheduler=scheduler, scaler=scaler).gradient_scale() == 8.0


def test_random_generators_are_part_of_it_when_asked():
    for has_rng in (True, False):
        there, here = (Side(OPTIMIZERS[0], has_rng=has_rng) for _ in range(2))
        torch.manual_seed(7)
        snapshot = there.state.take()
        expected = torch.rand(3)
        torch.manual_seed(8)
        here.state.apply(here.state.read(snapshot))
        assert torch.equal(torch.rand(3), expected) == has_rng


@pytest.mark.parametrize(
    ("there", "here", "path", "own", "theirs"),
    [
        (
            Side(OPTIMIZERS[0], width=4),
            Side(OPTIMIZERS[0]),
            "model.0.weight",
            "torch.float32 [3, 3]",
            "torch.float32 [4, 3]",
        ),
        (
            Side(OPTIMIZERS[0], dtype=torch.float64),
            Side(OPTIMIZERS[0]),
            "model.0.weight",
            "torch.float32 [3, 3]",
            "torch.float64 [3, 3]",
        ),
        (
            Side(OPTIMIZERS[3]).learn(1),
            Side(OPTIMIZERS[1]).learn(1),
            "optimizer[0].options.momentum",
            "a float",
            "missing",
        ),
        (
            Side(OPTIMIZERS[0]).learn(1),
            Side(lambda p: optim.SGD([{"params": [q]} for q in p], lr=0.1)),
            "optimizer",
            "a list of 4",
            "a list of 1",
        ),
    ],
)
def test_the_first_difference_is_named(there, here, path, own, theirs):
    found = here.state.difference(here.state.read(there.state.take()))
    assert found.sentence(1, 2).startswith("catch_up: ")
    assert "on rank 1 but " in found.sentence(1, 2)
    assert " on rank 2; nothing was copied; give " in found.sentence(1, 2)
    assert found == (path, own, theirs)


def test_other_objects_differ_by_their_keys():
    there, here = Side(OPTIMIZERS[0]), Side(OPTIMIZERS[0])
    snapshot = there.state.take()
    parts = here.state.read(snapshot)
    del parts["state"]["scaler"]["scale"]
    found = here.state.difference(parts)
    assert found == ("state.scaler.scale", "present", "missing")


class _Unwilling:
    def __init__(self, name):
        self.name = name
        self.loaded = []

    def state_dict(self):
        return {"name": self.name}

    def load_state_dict(self, state):
        self.loaded.append(state["name"])
        if self.name == "b here":
            raise RuntimeError("not this")


def test_an_object_that_does_not_load_leaves_everything_as_it_was():
    sides = {}
    for place in ("there", "here"):
        side = Side(OPTIMIZERS[1]).learn(2 if place == "there" else 1)
        others = {name: _Unwilling(f"{name} {place}") for name in ("a", "b", "c")}
        state = TrainingState(side.net, side.optimizer, others, has_rng=False)
        sides[place] = (side, others, state)
    side, others, state = sides["here"]
    before = side.everything()
    with pytest.raises(RuntimeError, match="not this"):
        state.apply(state.read(sides["there"][2].take()))
    assert same(side.everything(), before)
    assert [other.loaded for other in others.values()] == [
        ["a there", "a here"],
        ["b there"],
        [],
    ]
