# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.elastic._restarts import RestartPolicy, exit_text
from aikido_torch.errors import ConfigError


def decide(exit_code, restarts_s=(), now_s=100.0, **more):
    policy = RestartPolicy(max_restarts=3, window_s=60)
    return policy.decide(exit_code, now_s=now_s, restarts_s=restarts_s, **more)


@pytest.mark.parametrize(
    ("exit_code", "restarts_s", "verdict", "pause_s", "reason"),
    [
        (0, (), "done", 0, "the process ended with code 0"),
        (0, (99, 99, 99), "done", 0, "the process ended with code 0"),
        (
            -9,
            (),
            "restart",
            1,
            "the process was ended by SIGKILL; a new one starts in 1 s, restart 1 of 3",
        ),
        (
            1,
            (50, 60),
            "restart",
            4,
            "the process ended with code 1; a new one starts in 4 s, restart 3 of 3",
        ),
        (
            1,
            (50, 60, 70),
            "give_up",
            0,
            "the process ended with code 1, and there were 3 restarts within 60 s; "
            "correct its error, or give a larger --max-restarts",
        ),
        (
            1,
            (10, 20, 70),  # two of them are older than the window
            "restart",
            2,
            "the process ended with code 1; a new one starts in 2 s, restart 2 of 3",
        ),
    ],
)
def test_an_ended_process_gets_a_decision(
    exit_code, restarts_s, verdict, pause_s, reason
):
    decision = decide(exit_code, restarts_s)
    assert decision.verdict == verdict
    assert (decision.pause_s, decision.reason) == (pause_s, reason)


def test_no_process_starts_on_an_evicted_machine():
    decision = decide(-15, is_evicting=True)
    assert decision.verdict == "done"
    assert decision.reason == (
        "the process was ended by SIGTERM after the eviction notice of the machine"
    )


def test_a_pause_has_a_longest_length():
    policy = RestartPolicy(max_restarts=100, longest_pause_s=5)
    decision = policy.decide(1, now_s=1, restarts_s=[0] * 50)
    assert decision.pause_s == 5


def test_without_restarts_the_first_death_is_the_last():
    policy = RestartPolicy(max_restarts=0)
    assert policy.decide(1, now_s=0, restarts_s=()).verdict == "give_up"


def test_a_signal_without_a_name_has_a_number():
    assert exit_text(-200) == "was ended by signal 200"


@pytest.mark.parametrize("name", ["max_restarts", "window_s", "first_pause_s"])
def test_wrong_numbers_are_refused(name):
    for value in (-1, float("nan")):
        with pytest.raises(ConfigError, match=f"{name} is {value}"):
            RestartPolicy(**{name: value})
