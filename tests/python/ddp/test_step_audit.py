# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import contextlib
import copy
import linecache
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.straggler import WaitAll

CHANGED = "Gradients change between the backward and the optimizer's step"


class Loop:
    """A small training, of which register is told `told`."""

    def __init__(self, *, wrap=None, told=None, steps_at=1, fused=False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        self.model = DistributedDataParallel(net, bucket_cap_mb=1e-5, **(wrap or {}))
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=fused)
        self.steps_at = steps_at
        self.handle = ddp.register(
            self.model,
            optimizer=self.optimizer,
            batches_per_step=steps_at,
            **(told or {}),
        )

    def step(self, between=lambda: None, scaler=None):
        self.handle.catch_up()
        self.optimizer.zero_grad()
        for batch in range(self.steps_at):
            is_last = batch + 1 == self.steps_at
            with contextlib.nullcontext() if is_last else self.model.no_sync():
                loss = self.model(torch.ones(3, 4)).sum()
                (loss if scaler is None else scaler.scale(loss)).backward()
        between()
        self.optimizer.step() if scaler is None else scaler.step(self.optimizer)
        if scaler is not None:
            scaler.update()

    def clip(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), 1e-3)

    def clip_in_vain(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), 1e9)

    def clip_values(self):
        nn.utils.clip_grad_value_(self.model.parameters(), 1e-3)

    def replace(self):
        for p in self.model.parameters():
            p.grad = p.grad * 0.5


def warnings_of(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [w for w in caught if CHANGED in str(w.message)]


WRAPS = {
    "default": {},
    "views": {"gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "static views": {"static_graph": True, "gradient_as_bucket_view": True},
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_a_loop_that_only_steps_is_not_warned(group_of_one, wrap):
    loop = Loop(wrap=wrap)
    assert warnings_of(lambda: [loop.step() for _ in range(14)]) == []
    # Nor when its gradients are no numbers.
    loop = Loop(wrap=wrap)
    with torch.no_grad():
        loop.model.module[2].weight.fill_(torch.nan)
    assert warnings_of(lambda: [loop.step() for _ in range(3)]) == []


@pytest.mark.parametrize("wrap", ["default", "views"])
def test_a_loop_that_accumulates_is_looked_at_as_well(group_of_one, wrap):
    loop = Loop(wrap=WRAPS[wrap], steps_at=3)
    assert warnings_of(lambda: [loop.step() for _ in range(5)]) == []
    assert len(warnings_of(lambda: [loop.step(loop.clip) for _ in range(3)])) == 1


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize("way", ["clip", "clip_in_vain", "clip_values", "replace"])
def test_a_loop_that_changes_gradients_is_warned_once(group_of_one, wrap, way):
    loop = Loop(wrap=wrap)
    told = warnings_of(lambda: [loop.step(getattr(loop, way)) for _ in range(14)])
    assert len(told) == 1
    assert "register(..., apply=...)" in str(told[0].message)
    line = linecache.getline(told[0].filename, told[0].lineno)
    assert "self.optimizer.step()" in line


@pytest.mark.parametrize("fused", [False, True])
def test_the_scale_of_a_scaler_is_such_a_change(group_of_one, fused):
    loop = Loop(fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    told = warnings_of(lambda: [loop.step(scaler=scaler) for _ in range(3)])
    assert len(told) == 1


def test_a_change_that_comes_later_is_seen_in_the_first_ten_steps(group_of_one):
    for first, is_seen in ((9, True), (10, False)):
        loop = Loop()
        assert warnings_of(lambda n=first, x=loop: [x.step() for _ in range(n)]) == []
        told = warnings_of(lambda x=loop: x.step(x.clip))
        assert bool(told) == is_seen


@pytest.mark.parametrize(
    "told", [{"apply": lambda: None}, {"policy": WaitAll()}], ids=["apply", "WaitAll"]
)
def test_who_has_been_told_or_replays_nothing_is_not_warned(group_of_one, told):
    loop = Loop(told=told)
    assert warnings_of(lambda: [loop.step(loop.clip) for _ in range(3)]) == []


def test_a_step_that_the_loop_leaves_out_is_forgotten(group_of_one):
    loop = Loop()
    loop.model(torch.ones(3, 4)).sum().backward()
    loop.handle.catch_up()
    loop.replace()
    assert warnings_of(loop.optimizer.step) == []  # as one that is replayed


def test_a_copy_of_the_optimizer_looks_at_nothing(group_of_one):
    loop = Loop()
    other = copy.deepcopy(loop.optimizer)
    loop.step()
    assert warnings_of(other.step) == []
