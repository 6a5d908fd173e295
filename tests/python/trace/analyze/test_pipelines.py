# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.trace import attribute, facts_of
from aikido_torch.trace.record._spans import Kind
from harness.traces import span, staged_rank


def verdict_of(*forwards, stages, gaps=(), steps=8, planned=()):
    """Verdict on ranks with these times of a forward, stages and gaps of runs."""
    ranks = [
        staged_rank(
            rank, stage=stage, forward=forward, backward=6, steps=steps,
            gap=gaps[rank] if gaps else 10, planned=planned[stage] if planned else 0,
        )
        for rank, (forward, stage) in enumerate(zip(forwards, stages, strict=True))
    ]  # fmt: skip
    return attribute(facts_of(ranks))


def test_equal_stages_are_no_culprits():
    assert verdict_of(3, 3, stages=(0, 1)).cause == "none"


def test_a_slow_stage_is_named_with_its_rank():
    verdict = verdict_of(3, 9, 3, stages=(0, 1, 2))
    assert (verdict.cause, verdict.rank, verdict.pattern) == ("compute", 1, "steady")
    (culprit,) = verdict.culprits
    assert (culprit.stage, culprit.part) == (1, "forward")
    assert culprit.lost_s == pytest.approx(0.006)
    assert "for a micro-batch of stage 1" in verdict.evidence


def test_a_stage_that_is_slow_by_plan_is_not_a_culprit():
    # All stages take twice the planned time, as on slower machines.
    assert verdict_of(3, 9, 3, stages=(0, 1, 2)).ranks == (1,)
    planned = (4.5, 7.5, 4.5)
    verdict = verdict_of(3, 9, 3, stages=(0, 1, 2), planned=planned)
    assert verdict.cause == "none"


def test_a_stage_that_takes_more_than_its_plan_is_named():
    verdict = verdict_of(3, 3, 3, stages=(0, 1, 2), planned=(9, 5, 9))
    assert (verdict.cause, verdict.ranks) == ("compute", (1,))


def test_the_plan_gives_the_time_of_one_replica_of_a_stage():
    forwards, stages = (3, 12, 12), (0, 1, 1)
    assert verdict_of(*forwards, stages=stages, planned=(9, 18)).cause == "none"
    assert verdict_of(*forwards, stages=stages, planned=(9, 12)).ranks == (1, 2)


def test_times_hidden_by_a_stop_tell_nothing_about_a_stage():
    ranks = [staged_rank(r, stage=r, forward=3, backward=6, steps=8) for r in (0, 1)]
    for number in range(8):  # rank 1 stops during a forward
        ranks[1].spans.append(span(Kind.STOP, 60 * number, 60 * number + 45))
    verdict = attribute(facts_of(ranks))
    assert (verdict.cause, verdict.ranks) == ("host stopped", (1,))


def test_a_slow_replica_is_compared_with_the_replicas_of_its_stage():
    verdict = verdict_of(3, 3, 3, 8, stages=(0, 0, 1, 1))
    assert (verdict.cause, verdict.rank) == ("compute", 3)
    assert verdict.culprits[0].stage == 1


def test_ranks_of_different_stages_are_not_compared():
    # Two replicas of a stage with twice the work share its micro-batches.
    assert verdict_of(3, 12, 12, stages=(0, 1, 1)).cause == "none"


def test_time_between_runs_belongs_to_the_training_loop_of_the_rank():
    # Rank 1 begins its runs later.
    verdict = verdict_of(3, 3, stages=(0, 1), gaps=(10, 40))
    assert (verdict.cause, verdict.rank) == ("loop", 1)
    assert verdict.culprits[0].stage is None
