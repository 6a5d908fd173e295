# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.ddp import StateCopy
from aikido_torch.errors import ConfigError
from aikido_torch.recovery._catch_up_policy import Situation, decide

MIB = 1 << 20
USUAL = StateCopy()
ALWAYS = StateCopy(when="always")
NEVER = StateCopy(when="never")
SMALL = StateCopy(least_bytes=0)


@pytest.mark.parametrize(
    # Steps behind and received, gradients of one step and the state in MiB.
    ("rule", "behind", "held", "gradients", "state", "may_copy", "decision"),
    [
        (USUAL, 0, 0, 100, 1, True, ("none", 0, "up_to_date")),
        (ALWAYS, 0, 0, 100, 1, True, ("none", 0, "up_to_date")),
        # Adam: the state has three times the bytes of the gradients.
        (USUAL, 1, 1, 100, 300, True, ("replay", 1, "more_bytes")),
        (USUAL, 3, 3, 100, 300, True, ("replay", 3, "more_bytes")),
        (USUAL, 4, 4, 100, 300, True, ("copy", 0, "fewer_bytes")),
        # SGD without momentum: the state has only the parameters.
        (USUAL, 1, 1, 100, 100, True, ("replay", 1, "more_bytes")),
        (USUAL, 2, 2, 100, 100, True, ("copy", 0, "fewer_bytes")),
        # A replay ends before another rank could answer.
        (USUAL, 15, 15, 1, 3, True, ("replay", 15, "small")),
        (USUAL, 16, 16, 1, 3, True, ("copy", 0, "fewer_bytes")),
        (SMALL, 15, 15, 1, 3, True, ("copy", 0, "fewer_bytes")),
        # Not all results were received yet.
        (USUAL, 3, 1, 4, 4, True, ("replay", 1, "small")),
        (USUAL, 4, 1, 4, 4, True, ("copy", 0, "fewer_bytes")),
        (USUAL, 60, 0, 4, 4, True, ("copy", 0, "fewer_bytes")),
        (USUAL, 2, 1, 100, 300, True, ("replay", 1, "more_bytes")),
        (NEVER, 2, 0, 1, 300, True, ("none", 0, "never")),
        (ALWAYS, 2, 0, 1, 300, True, ("copy", 0, "always")),
        (USUAL, 2, 1, 1, 300, False, ("replay", 1, "cannot_copy")),
        (USUAL, 2, 0, 1, 300, False, ("none", 0, "cannot_copy")),
        # The caller's rule decides.
        (NEVER, 99, 99, 100, 1, True, ("replay", 99, "never")),
        (ALWAYS, 1, 1, 1, 300, True, ("copy", 0, "always")),
        (ALWAYS, 1, 1, 1, 300, False, ("replay", 1, "cannot_copy")),
        (USUAL, 99, 99, 100, 1, False, ("replay", 99, "cannot_copy")),
    ],
)
def test_the_way_with_fewer_bytes_is_taken(
    rule, behind, held, gradients, state, may_copy, decision
):
    now = Situation(
        steps_behind=behind,
        steps_held=held,
        gradient_bytes=gradients * MIB,
        state_bytes=state * MIB,
        may_copy=may_copy,
    )
    found = decide(rule, now)
    assert (found.way, found.steps, found.reason) == decision


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"when": "often"},
            "StateCopy: when is 'often'; it takes fewer_bytes, always, never.",
        ),
        (
            {"least_bytes": -1},
            "StateCopy: least_bytes is -1; it takes a whole number, at least 0.",
        ),
        ({"least_bytes": 1.5}, "least_bytes is 1.5; "),
        (
            {"timeout_ms": 0},
            "StateCopy: timeout_ms is 0; it takes a number above 0, or None.",
        ),
        ({"timeout_ms": float("nan")}, "timeout_ms is nan; "),
    ],
)
def test_a_wrong_rule_is_refused(arguments, text):
    with pytest.raises(ConfigError) as caught:
        StateCopy(**arguments)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("timeout_ms", "own_steps_s", "seconds"),
    [
        (None, [], 1),
        (None, [0.1], 1),
        (None, [0.7], 1.4),
        (None, [60], 30),
        # The step in which this rank was late is no usual step.
        (None, [0.7, 0.7, 60], 1.4),
        (700, [60], 0.7),
    ],
)
def test_a_rank_is_waited_for_as_long_as_two_usual_steps(
    timeout_ms, own_steps_s, seconds
):
    rule = StateCopy(timeout_ms=timeout_ms)
    assert rule.timeout_s(own_steps_s) == pytest.approx(seconds)
