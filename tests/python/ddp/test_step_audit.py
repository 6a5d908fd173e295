# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import contextlib
import copy
import linecache
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.ddp import _step_audit
from aikido_torch.ddp._step_audit import StepAudit
from aikido_torch.errors import RanksDifferError, RanksMayDifferWarning
from aikido_torch.straggler import WaitAll

CHANGED = "Gradients change between the backward and the optimizer's step"


class Loop:
    """A small training; `told` has the arguments of register."""

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


def warnings_of(run, text=CHANGED):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    ours = [w for w in caught if w.category is RanksMayDifferWarning]
    assert all(text in str(w.message) for w in ours), ours
    return ours


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
    # Also if its gradients are NaN.
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


def test_a_change_that_comes_later_is_seen_within_eight_steps(group_of_one):
    loop = Loop()
    assert warnings_of(lambda: [loop.step() for _ in range(21)]) == []
    assert len(warnings_of(lambda: [loop.step(loop.clip) for _ in range(8)])) == 1


def test_a_change_that_comes_after_many_steps_is_seen_within_32_steps(group_of_one):
    loop = Loop()
    assert warnings_of(lambda: [loop.step() for _ in range(130)]) == []
    assert len(warnings_of(lambda: [loop.step(loop.clip) for _ in range(32)])) == 1


@pytest.mark.parametrize(
    "told", [{"apply": lambda: None}, {"policy": WaitAll()}], ids=["apply", "WaitAll"]
)
def test_a_loop_that_has_told_or_replays_nothing_is_not_warned(group_of_one, told):
    loop = Loop(told=told)
    assert warnings_of(lambda: [loop.step(loop.clip) for _ in range(3)]) == []


def test_a_step_that_the_loop_leaves_out_is_forgotten(group_of_one):
    loop = Loop()
    loop.model(torch.ones(3, 4)).sum().backward()
    loop.handle.catch_up()
    loop.replace()
    assert warnings_of(loop.optimizer.step) == []  # as in a replayed step


def test_a_copy_of_the_optimizer_looks_at_nothing(group_of_one):
    loop = Loop()
    other = copy.deepcopy(loop.optimizer)
    loop.step()
    assert warnings_of(other.step) == []


def set_rate(loop):
    loop.optimizer.param_groups[0]["lr"] *= 0.5


def clamp(loop):
    with torch.no_grad():
        for p in loop.model.parameters():
            p.clamp_(-0.01, 0.01)


OPTIONS = "Options of the optimizer change"
PARAMETERS = "Parameters change"


@pytest.mark.parametrize(
    ("change", "text"), [(set_rate, OPTIONS), (clamp, PARAMETERS)], ids=["lr", "clamp"]
)
@pytest.mark.parametrize("first", [3, 20])
def test_options_and_parameters_that_change_between_steps_are_told(
    group_of_one, change, text, first
):
    loop = Loop()
    assert warnings_of(lambda: [loop.step() for _ in range(first)]) == []

    def run():
        for _ in range(9):
            change(loop)
            loop.step()

    (told,) = warnings_of(run, text)
    assert "between two steps of the optimizer" in str(told.message)
    assert ("param_groups[0].lr from" in str(told.message)) == (change is set_rate)


@pytest.mark.parametrize(
    ("change", "text"), [(set_rate, OPTIONS), (clamp, PARAMETERS)], ids=["lr", "clamp"]
)
@pytest.mark.parametrize("is_in_apply", [True, False])
def test_with_apply_only_changes_before_the_end_of_the_backward_are_told(
    group_of_one, change, text, is_in_apply
):
    def apply():
        loop.optimizer.step()
        if is_in_apply:
            change(loop)

    loop = Loop(told={"apply": apply, "state": {}})

    def step():
        loop.handle.catch_up()
        if not is_in_apply:
            change(loop)
        loop.optimizer.zero_grad()
        loop.model(torch.ones(3, 4)).sum().backward()
        apply()

    told = warnings_of(lambda: [step() for _ in range(6)], text)
    assert len(told) == (0 if is_in_apply else 1)


def test_with_apply_a_rate_that_changes_once_in_an_epoch_is_told(group_of_one):
    loop = Loop(told={"apply": lambda: None, "state": {}})

    def step(number):
        loop.handle.catch_up()
        if number == 21:  # in a step that is not examined otherwise
            set_rate(loop)
        loop.optimizer.zero_grad()
        loop.model(torch.ones(3, 4)).sum().backward()
        loop.optimizer.step()

    assert len(warnings_of(lambda: [step(i) for i in range(24)], OPTIONS)) == 1


@pytest.fixture
def audited(monkeypatch):
    """An audit of a loop with apply, its optimizer and the one parameter."""
    # There is no backward to wait for.
    monkeypatch.setattr(_step_audit, "after_backward", lambda call: call())
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    audit = StepAudit(optimizer, check="warn", has_apply=True, has_after_step=False)
    return audit, optimizer, weight


@pytest.mark.parametrize("top", [11, 16])
def test_notes_of_an_earlier_top_are_not_compared(audited, top):
    audit, optimizer, weight = audited
    audit.on_top(top, has_moved=False)

    def run():
        # In quiet steps, as apply() does.
        optimizer.param_groups[0]["lr"] *= 0.5
        with torch.no_grad():
            weight.mul_(0.5)
        audit.on_quiet_top()
        audit.on_backward(24, set())

    assert warnings_of(run) == []


def test_a_step_that_is_looked_at_is_found_by_its_own_number(audited):
    audit, _, weight = audited
    audit.on_top(8, has_moved=False)
    audit.on_backward(8, set())
    with torch.no_grad():
        weight.mul_(0.5)
    # Quiet and replayed steps have passed without calls of the audit.
    audit.on_top(16, has_moved=True)

    def run():
        with torch.no_grad():
            weight.mul_(0.5)
        audit.on_backward(16, set())

    assert len(warnings_of(run, "Parameters change")) == 1


class QuietSteps:
    """Records the calls that an audit makes."""

    def __init__(self):
        self.looks = []

    def look(self, call, rates):
        self.looks.append(rates)


def audit_of(check, has_apply):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], lr=0.1)
    audit = StepAudit(optimizer, check=check, has_apply=has_apply, has_after_step=False)
    quiet = QuietSteps()
    audit.follow(quiet)
    return audit, optimizer, quiet


ALL = sys.maxsize


@pytest.mark.parametrize(
    ("check", "has_apply", "step", "before_look", "period"),
    [
        ("warn", False, 2, 8, 1),
        ("warn", False, 9, 1, 1),
        ("warn", False, 10, ALL, 8),
        ("warn", False, 32, ALL, 16),
        ("error", False, 64, ALL, _step_audit.AUDIT_PERIOD),
        ("warn", True, 9, 0, 0),
        ("warn", True, 10, 6, 0),
        ("warn", True, 33, 15, 0),
        ("warn", True, 70, 26, 0),
        ("off", False, 5, ALL, 0),
        ("off", True, 5, ALL, 0),
    ],
)
def test_the_audit_limits_or_examines_quiet_steps(
    check, has_apply, step, before_look, period
):
    audit, optimizer, quiet = audit_of(check, has_apply)
    told = list(quiet.looks)
    assert audit.steps_before_look(step) == before_look
    assert audit.quiet_period(step) == period
    # A question changes nothing.
    assert quiet.looks == told
    if check == "off":
        assert told == []
    else:
        assert told == [optimizer if has_apply else None]


def test_an_after_step_may_change_options(group_of_one):
    loop = Loop(told={"after_step": lambda: None})

    def run():
        for _ in range(6):
            loop.step()
            set_rate(loop)

    assert warnings_of(run) == []


def test_two_backwards_for_one_step_are_told(group_of_one):
    loop = Loop()

    def backward():
        loop.model(torch.ones(3, 4)).sum().backward()

    (told,) = warnings_of(lambda: [loop.step(backward) for _ in range(3)], "2 backwar")
    assert "under no_sync()" in str(told.message)


def test_a_parameter_that_comes_later_is_told(group_of_one):
    loop = Loop()
    for _ in range(4):
        loop.step()
    late = nn.Parameter(torch.ones(3))
    loop.optimizer.add_param_group({"params": [late]})

    loop.model.register_forward_hook(lambda *args: args[-1] + late.sum())
    text = "a parameter of size [3] whose gradient DistributedDataParallel does not"
    assert len(warnings_of(lambda: [loop.step() for _ in range(6)], text)) == 1


def test_another_optimizer_in_apply_is_told_when_a_step_is_replayed(group_of_one):
    other = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    loop = Loop()

    def replay():
        with loop.handle._audit.replaying():
            loop.optimizer.step()
            other.step()

    (told,) = warnings_of(lambda: [replay(), replay()], "another optimizer, SGD")
    assert linecache.getline(told.filename, told.lineno).strip() == "other.step()"


@pytest.mark.parametrize("check", ["error", "off"])
def test_a_report_may_be_an_error_or_nothing(group_of_one, check):
    loop = Loop(told={"check": check})
    loop.step()
    if check == "off":
        assert warnings_of(lambda: [loop.step(loop.clip) for _ in range(4)]) == []
        return
    with pytest.raises(RanksDifferError, match=CHANGED):
        loop.step(loop.clip)
