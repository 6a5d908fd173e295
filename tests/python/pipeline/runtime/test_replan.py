# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decisions on a new plan as tables: profile, plan and measured times in."""

import pytest

from aikido_torch import pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan import _profile
from aikido_torch.pipeline.runtime._observe import LiveTimes
from aikido_torch.pipeline.runtime._replan import Moving, live_profile, replan

RATE = 1e6
PROFILE = _profile.chain(
    forward_ms=[10] * 8,
    backward_ms=[20] * 8,
    activation_bytes=[1e3] * 8,
    parameter_bytes=[40e6] * 8,
)
STRAIGHT = pipeline.partition(PROFILE, machines=4, bandwidth=RATE)
MOVING = Moving(bytes_per_s=100e6, restart_s=10)


def times_of(plan=STRAIGHT, *, slow=None, factor=1.0, links=None):
    """Times as planned, except for one slow stage."""
    stages = [len(stage.layers) for stage in plan.stages]
    factors = [factor if s == slow else 1.0 for s in range(len(stages))]
    return LiveTimes(
        tuple(0.01 * n * f for n, f in zip(stages, factors, strict=True)),
        tuple(0.02 * n * f for n, f in zip(stages, factors, strict=True)),
        links or (1e3 / RATE,) * (len(stages) - 1),
        (1.0,) * sum(stage.machines for stage in plan.stages),
    )


def ask(times, *, left=10_000, machines=4, without=()):
    return replan(
        PROFILE,
        STRAIGHT,
        times,
        machines=machines,
        bandwidth=RATE,
        micro_batches_left=left,
        moving=MOVING,
        without=without,
    )


def test_a_plan_that_is_still_optimal_is_kept():
    assert STRAIGHT.text == "1-1-1-1"
    answer = ask(times_of())
    assert (answer.pays, answer.break_even, answer.moving_s) == (False, None, 0)
    assert answer.now_s == answer.then_s == pytest.approx(0.06)
    assert answer.reason == "plan 1-1-1-1 is the best for what was measured, too"


@pytest.mark.parametrize(
    ("left", "pays", "text"),
    [
        (10_000, True, ", which has paid after 267 of the 10000 micro-batches that"),
        (268, True, ", which has paid after 267 of the 268 "),
        (267, False, ", which would have paid after 267 of the 267 "),
        (10, False, ", which would have paid after 267 of the 10 "),
    ],
)
def test_moving_pays_if_enough_micro_batches_are_left(left, pays, text):
    """Layers of stage 1 take three times as long, so that it gives one layer away."""
    answer = ask(times_of(slow=1, factor=3.0), left=left)
    assert answer.now_s == pytest.approx(0.18)
    assert answer.then_s == pytest.approx(0.12)
    # 80 MB are written and 120 MB are read, three times because of Adam's state.
    assert answer.moving_s == pytest.approx(10 + 3 * (80 + 120) / 100)
    assert answer.break_even == 267
    assert answer.pays == pays
    assert text in answer.reason


def test_a_slower_plan_does_not_pay():
    """With fewer machines, all remaining plans are slower."""
    answer = ask(times_of(), machines=3)
    assert answer.then_s > answer.now_s
    assert (answer.pays, answer.break_even) == (False, None)
    assert answer.reason.endswith(", for nothing")


def test_a_slow_machine_can_be_left_out():
    """Its layers and links are not slow on the other machines."""
    times = times_of(slow=1, factor=5.0, links=(0.1, 0.1, 1e-3))
    answer = ask(times, machines=3, without={1})
    assert answer.plan.text == "1-1-1"
    assert (answer.now_s, answer.then_s) == pytest.approx((0.3, 0.09))
    assert answer.pays
    assert ask(times, machines=3).then_s > 0.2


def test_a_slow_link_counts_for_every_cut_of_the_new_plan():
    slow = times_of(links=(1e3 / RATE, 0.1, 1e3 / RATE))
    answer = ask(slow)
    assert answer.now_s == pytest.approx(0.2)
    # Every cut costs 0.2 s now, and one machine alone takes 0.24 s.
    assert answer.then_s == pytest.approx(0.2)
    assert not answer.pays


def test_a_slow_replica_delays_its_stage():
    profile = _profile.chain(
        forward_ms=[30, 10], backward_ms=[60, 20],
        activation_bytes=[1e3, 1e3], parameter_bytes=[4.0, 40e6],
    )  # fmt: skip
    plan = pipeline.partition(profile, machines=4, bandwidth=1e8)
    assert plan.text == "3-1"
    times = LiveTimes((0.03, 0.01), (0.06, 0.02), (1e-5,), (1.0, 2.0, 1.0, 1.0))
    answer = replan(
        profile, plan, times, machines=4, bandwidth=1e8, micro_batches_left=9,
        moving=MOVING,
    )  # fmt: skip
    assert answer.now_s == pytest.approx(0.06)


def test_layers_have_the_slowness_of_their_stage():
    live = live_profile(PROFILE, STRAIGHT, times_of(slow=2, factor=2.0))
    slow = {*STRAIGHT.stages[2].layers}
    for layer in live.layers:
        assert layer.forward_ms == pytest.approx(20 if layer.id in slow else 10)
        assert layer.backward_ms == pytest.approx(40 if layer.id in slow else 20)
        assert (layer.activation_bytes, layer.parameter_bytes) == (1e3, 40e6)


def test_times_of_another_plan_are_refused():
    two = pipeline.partition(PROFILE, machines=2, bandwidth=RATE, straight=True)
    with pytest.raises(
        ConfigError, match="the times are of 2 stages, and the plan has"
    ):
        ask(times_of(two))
    other = _profile.chain(
        forward_ms=[1], backward_ms=[1], activation_bytes=[1], parameter_bytes=[1],
        ids=["other"],
    )  # fmt: skip
    with pytest.raises(
        ConfigError, match='plan has layer "layer0", and the profile has'
    ):
        live_profile(other, STRAIGHT, times_of())
    with pytest.raises(ConfigError, match=r"^Moving has bytes_per_s 0, restart_s 0\.0"):
        Moving(bytes_per_s=0)
