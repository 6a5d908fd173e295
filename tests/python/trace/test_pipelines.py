# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.trace import attribute, facts_of
from harness.traces import staged_rank


def verdict_of(*forwards, stages, gaps=(), steps=8):
    """One rank for each time of a forward; its stage, and the time between runs."""
    ranks = [
        staged_rank(
            rank, stage=stage, forward=forward, backward=6, steps=steps,
            gap=gaps[rank] if gaps else 10,
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


def test_a_slow_replica_is_compared_with_those_of_its_stage():
    verdict = verdict_of(3, 3, 3, 8, stages=(0, 0, 1, 1))
    assert (verdict.cause, verdict.rank) == ("compute", 3)
    assert verdict.culprits[0].stage == 1


def test_ranks_of_different_stages_are_not_compared():
    # Two replicas of a stage that takes twice as long share its micro-batches.
    assert verdict_of(3, 12, 12, stages=(0, 1, 1)).cause == "none"


def test_time_between_runs_is_the_loop_of_its_rank():
    # The clock of a run goes on: rank 1 begins its runs later.
    verdict = verdict_of(3, 3, stages=(0, 1), gaps=(10, 40))
    assert (verdict.cause, verdict.rank) == ("loop", 1)
    assert verdict.culprits[0].stage is None
