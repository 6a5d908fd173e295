# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Without ranks; tests/python/multiproc/test_quiet_steps.py has trainings."""

from types import SimpleNamespace

import pytest

from aikido_torch.ddp import _quiet
from aikido_torch.ddp._quiet import leave_quiet_steps, take_quiet_steps


class Handle:
    """A handle in which nothing is due for some steps."""

    def __init__(self, until_look=90, until_digest=90):
        self._steps = 40
        self._policy = "policy"
        self._policies = SimpleNamespace(excludes=False)
        self._has_lost_step = False
        self._buckets = {0: "", 1: ""}
        self._exchange = SimpleNamespace(has_news=False, awaited=["message"])
        self._calls = SimpleNamespace(
            has_own_group=True,
            losses=SimpleNamespace(has_caught_up=True),
            on_quiet=self.note_calls,
        )
        self._carrying = SimpleNamespace(is_on=False)
        self._audit = SimpleNamespace(
            steps_before_look=lambda step: until_look,
            quiet_period=lambda step: 16,
            on_quiet_top=lambda: self.told.append("top"),
        )
        self._state_check = SimpleNamespace(
            has_work=False, steps_before_digest=lambda step: until_digest
        )
        self._batches = SimpleNamespace(is_plain=True)
        self._backups = SimpleNamespace(sampler=None)
        self._quiet = SimpleNamespace(allow=self.note, take=lambda: self.done)
        self._book = SimpleNamespace(
            end_quiet=lambda step, steps: self.told.append(("booked", step, steps))
        )
        self.done = ([], False)
        self.is_laid_out = True
        self.allowed, self.told = None, []

    def _is_laid_out(self):
        return self.is_laid_out

    def note(self, *allowed):
        self.allowed = allowed

    def note_calls(self, step, count, has_begun):
        self.told.append(("calls", step, count, has_begun))


@pytest.fixture(autouse=True)
def one_model(monkeypatch):
    """Models of earlier tests may not be collected yet."""
    one = SimpleNamespace(handles=lambda: ["one"])
    monkeypatch.setattr(_quiet, "stepped_together", one)


@pytest.mark.parametrize(
    ("until_look", "until_digest", "count"), [(7, 90, 7), (90, 5, 5), (90, 95, 24)]
)
def test_steps_are_quiet_until_something_is_due_or_to_a_multiple_of_32(
    until_look, until_digest, count
):
    handle = Handle(until_look, until_digest)
    leave_quiet_steps(handle)
    assert handle.allowed == (range(40, 40 + count), "policy", 2, ["message"], 16)


def test_no_step_is_quiet_if_something_is_due_in_the_next_one():
    for handle in (Handle(until_digest=0), Handle(until_look=0)):
        leave_quiet_steps(handle)
        assert handle.allowed is None


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("_policies", "excludes", True),
        ("", "_has_lost_step", True),
        ("", "is_laid_out", False),
        ("_calls", "has_own_group", False),
        ("_calls", "losses", SimpleNamespace(has_caught_up=False)),
        ("_carrying", "is_on", True),
        ("_backups", "sampler", "a sampler"),
        ("_batches", "is_plain", False),
        ("_state_check", "has_work", True),
        ("_exchange", "has_news", True),
    ],
)
def test_no_step_is_quiet_while_a_part_has_something_to_do(part, name, value):
    handle = Handle()
    setattr(getattr(handle, part) if part else handle, name, value)
    leave_quiet_steps(handle)
    assert handle.allowed is None


def test_no_step_is_quiet_beside_another_model(monkeypatch):
    handle = Handle()
    two = SimpleNamespace(handles=lambda: ["one", "another"])
    monkeypatch.setattr(_quiet, "stepped_together", two)
    leave_quiet_steps(handle)
    assert handle.allowed is None


def test_quiet_steps_are_booked_from_their_first_one():
    handle = Handle()
    steps = [(1.5, [("a", 3), ("b", 4)]), (2.5, [("c", 3), ("d", 4)])]
    handle.done = (steps, True)
    take_quiet_steps(handle)
    assert handle.told == [("calls", 40, 2, True), ("booked", 40, steps), "top"]
    assert handle._steps == 42


def test_a_top_that_python_passes_is_no_quiet_one():
    handle = Handle()
    handle.done = ([(1.5, [("a", 3)])], False)
    take_quiet_steps(handle)
    assert "top" not in handle.told


def test_nothing_is_booked_where_nothing_was_done():
    handle = Handle()
    take_quiet_steps(handle)
    assert handle.told == []
