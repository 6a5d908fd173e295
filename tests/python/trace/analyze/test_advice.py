# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.trace.analyze._advice import Memory, advice_of
from aikido_torch.trace.analyze._verdict import Verdict


def verdict(cause, rank, pattern="steady", step=0):
    return Verdict(cause, rank, pattern, 0.1, step, step + 4, "A sentence.")


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("network in", "link"),
        ("network out", "link"),
        ("compute", "caller"),
        ("input", "caller"),
        ("host stopped", None),
        ("network", None),
        ("none", None),
    ],
)
def test_a_steady_loss_gives_advice_by_its_cause(cause, advice):
    assert advice_of([verdict(cause, 2)]).get(2) == advice
    assert advice_of([verdict(cause, 2, "transient")]) == {}
    assert advice_of([verdict(cause, None, "rotating")]) == {}


def test_the_last_verdict_on_each_rank_counts():
    said = [verdict("compute", 1), verdict("network in", 1), verdict("input", 0)]
    assert advice_of(said) == {1: "link", 0: "caller"}


def test_a_slow_link_is_remembered_and_a_late_caller_is_not():
    memory = Memory()
    nobody = verdict("none", None, "none")
    assert memory.add(verdict("network out", 2)) == {2: "link"}
    assert memory.add(verdict("compute", 1)) == {1: "caller", 2: "link"}
    for _ in range(8):
        assert memory.add(nobody) == {2: "link"}
    assert memory.add(nobody) == {}
    memory.add(verdict("network in", 3))
    assert memory.add(verdict("compute", 3)) == {3: "caller"}
    assert memory.add(nobody) == {}
