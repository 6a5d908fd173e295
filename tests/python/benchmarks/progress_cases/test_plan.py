# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import math
import statistics

import pytest

from benchmarks import models
from benchmarks.progress_cases import plan
from benchmarks.straggler_cases.plan import NUM_RANKS, jitter


def test_each_size_is_that_of_the_net_with_its_name():
    sizes = {
        name: sum(p.nbytes for p in models.make_digits_net(name).parameters())
        for name in models.NETS
    }
    assert sizes == plan.SIZES


def test_a_loop_is_named_after_its_arm_and_options_win():
    block = plan.loop(plan.STRICT, "37k", 50, evaluate_every=0, gap_s=0.1)
    assert (block.name, block.arm, block.ops) == ("strict", "plain", 50)
    assert (block.net, block.num_bytes) == ("37k", plan.SIZES["37k"])
    assert (block.evaluate_every, block.gap_s) == (0, 0.1)
    assert plan.loop(plan.SKIP, "37k", 50).evaluate_every == 10


def test_a_policy_starts_every_run_without_what_it_has_learnt():
    assert plan.loop(plan.SKIP, "37k", 50).fresh
    assert not plan.loop(plan.GLOO, "37k", 50).fresh


def test_fixed_deadlines_are_multiples_of_a_step():
    blocks = plan.hindsight(plan.loop(plan.SKIP, "37k", 50), step_s=0.02)
    assert [block.name for block in blocks] == ["fixed 0.25", "fixed 1", "fixed 4"]
    assert [block.deadline_ms for block in blocks] == pytest.approx([5, 20, 80])
    assert {block.arm for block in blocks} == {"fixed"}


def test_turns_take_the_number_of_their_repeat_as_seed():
    a, b = plan.loop(plan.STRICT, "37k", 9), plan.loop(plan.SKIP, "37k", 9)
    taken = plan.in_turns([[a, b], [a, b]])
    assert [(block.name, block.seed) for block in taken] == [
        ("strict", 0),
        ("skip", 0),
        ("strict", 1),
        ("skip", 1),
    ]


def test_one_rank_pauses_once_in_the_middle_and_seeds_differ():
    found = [plan.one_pause(60, seconds=0.3, seed=seed) for seed in range(20)]
    for pauses in found:
        ((_, own),) = pauses.items()
        assert [step for step in range(60) if own[step]] == [own.index(0.3)]
        assert 20 <= own.index(0.3) < 40
    assert {rank for pauses in found for rank in pauses} == set(range(NUM_RANKS))
    assert found[3] == plan.one_pause(60, seconds=0.3, seed=3)


def test_a_checkpoint_is_in_every_nth_step_but_not_the_first():
    pauses = plan.every_nth(50, rank=0, nth=20, seconds=1.0)
    assert list(pauses) == [0]
    assert [step for step in range(50) if pauses[0][step]] == [20, 40]


def test_one_rank_computes_longer_than_the_others():
    pauses = plan.slower(3, rank=3, compute_s=0.1, more=0.25)
    assert pauses[0] == pauses[1] == pauses[2] == [0.1] * 3
    assert pauses[3] == pytest.approx([0.125] * 3)


def test_late_ranks_are_late_by_1_to_10_steps_in_that_share():
    pauses = plan.late_by_steps(200, ranks=(2, 3), share=0.2, step_s=0.01, seed=1)
    assert set(pauses) == {2, 3}
    for own in pauses.values():
        late = [seconds for seconds in own if seconds]
        assert len(late) == 40
        assert 0.01 <= min(late) < 0.03
        assert 0.08 < max(late) <= 0.1
    assert pauses[2] != pauses[3]
    assert pauses == plan.late_by_steps(
        200, ranks=(2, 3), share=0.2, step_s=0.01, seed=1
    )


def test_lateness_rotates_over_all_ranks():
    pauses = plan.rotating(16, nth=3, seconds=1.0)
    late = {
        step: [rank for rank in range(NUM_RANKS) if pauses[rank][step]]
        for step in range(16)
    }
    assert {step: ranks for step, ranks in late.items() if ranks} == {
        3: [0],
        6: [1],
        9: [2],
        12: [3],
        15: [0],
    }


def test_usual_computation_is_what_most_steps_have():
    slower = plan.slower(10, rank=3, compute_s=0.1, more=1.0)
    assert plan.usual_pause_s(slower) == 0.1
    late = plan.late_by_steps(10, ranks=(3,), share=0.2, step_s=0.1, seed=0)
    assert plan.usual_pause_s(late) == 0.0


@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_jitter_has_the_spread_asked_for(sigma):
    times = jitter(20_000, median_s=0.2, sigma=sigma, seed=1)
    assert statistics.median(times) == pytest.approx(0.2, rel=0.03)
    assert statistics.stdev(map(math.log, times)) == pytest.approx(sigma, rel=0.03)
