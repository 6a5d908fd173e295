# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from benchmarks.progress_cases import figures
from benchmarks.progress_cases.figures import Arms
from benchmarks.straggler_cases.case import CaseError
from benchmarks.straggler_cases.plan import Block
from benchmarks.straggler_cases.runs import Record

ALL = [1.0, 1.0, 1.0, 1.0]
WITHOUT_3 = [1.0, 1.0, 1.0, 0.0]
HALF_OF_3 = [1.0, 1.0, 1.0, 0.5]


def record(steps, *, name="skip", step_s=0.1, warm_up=1, paused=(), pauses=None):
    """A run with equally long steps; `steps` has the contents of the sums."""
    ends = [step_s * (i + 1) for i in range(len(steps))]
    block = Block(
        name=name, arm="skip", ops=len(steps), warm_up=warm_up, pauses=pauses or {}
    )
    looks = [
        {"step": 1, "seconds": step_s, "accuracy": 0.5},
        {"step": len(steps), "seconds": None, "accuracy": 0.9},
    ]
    by_rank = {
        rank: {
            "begins": [0.0],
            "ends": ends,
            "contributed": list(steps),
            "curve": looks if rank == 0 else [],
            "paused": [each[1:] for each in paused if each[0] == rank],
        }
        for rank in range(4)
    }
    return Record(block, by_rank=by_rank)


def test_progress_is_share_times_steps_per_second_without_the_warm_up():
    found = figures.figures_of(record([WITHOUT_3, ALL, ALL, WITHOUT_3, HALF_OF_3]))
    assert found.steps_per_second == pytest.approx(10)
    assert found.share == pytest.approx((4 + 4 + 3 + 3.5) / 16)
    assert found.progress == pytest.approx(found.share * 10)
    assert found.share_by_rank == pytest.approx((1, 1, 1, 2.5 / 4))
    assert found.longest_skips_by_rank == (0, 0, 0, 2)
    assert found.accuracy == 0.9


def test_a_run_ends_when_most_ranks_have_its_last_step():
    run = record([ALL] * 5)
    run.by_rank[2]["ends"] = [*run.by_rank[2]["ends"][:4], 4.1]
    found = figures.figures_of(run)
    assert (found.seconds, found.tail_s) == pytest.approx((0.4, 3.6))
    run.by_rank[1]["ends"] = [*run.by_rank[1]["ends"][:4], 0.7]
    assert figures.figures_of(run).seconds == pytest.approx(0.6)


def test_without_a_policy_all_contributions_are_in():
    run = record([ALL] * 5)
    for seen in run.by_rank.values():
        seen["contributed"] = []
    assert figures.figures_of(run).share == 1.0


def test_what_one_rank_has_not_seen_is_taken_from_another():
    run = record([ALL, ALL, WITHOUT_3])
    run.by_rank[0]["contributed"] = [ALL, ALL, None]
    assert figures.contributions(run) == [ALL, ALL, WITHOUT_3]
    for seen in run.by_rank.values():
        seen["contributed"] = [ALL, ALL, None]
    assert figures.contributions(run)[2] == [0.0] * 4


def test_a_run_without_all_of_its_steps_has_no_figures():
    run = record([ALL] * 5)
    run.by_rank[1]["ends"].pop()
    with pytest.raises(CaseError, match="'skip' has no step that counts"):
        figures.figures_of(run)


@pytest.mark.parametrize(
    ("values", "longest"),
    [([], 0), ([False], 0), ([True] * 3, 3), ([True, False, True, True, False], 2)],
)
def test_the_longest_run_is_of_neighbours(values, longest):
    assert figures.longest_run(values) == longest


def test_accuracy_after_a_time_is_that_of_the_last_evaluation_by_then():
    found = figures.figures_of(record([ALL] * 5))
    assert found.accuracy_after(0.05) == 0.0
    assert found.accuracy_after(0.2) == 0.5
    assert found.accuracy_after(0.5) == 0.9


def test_a_pause_costs_the_steps_until_the_rank_is_back():
    # Rank 3 sleeps in step 1 until step 4 is in progress, and contributes from step 5
    # on.
    steps = [ALL, *[WITHOUT_3] * 3, HALF_OF_3, ALL, ALL]
    pauses = {3: [0.0, 0.3, *[0.0] * 5]}
    found = figures.after_pause(record(steps, paused=[(3, 1, 0.42)], pauses=pauses))
    assert found.steps_until_back == 1
    assert found.lost == pytest.approx(3.5)
    assert found.seconds == 0.3


def test_a_rank_that_does_not_come_back_is_away_until_the_end():
    steps = [ALL, *[WITHOUT_3] * 6]
    pauses = {3: [0.0, 0.3, *[0.0] * 5]}
    found = figures.after_pause(record(steps, paused=[(3, 1, 0.42)], pauses=pauses))
    assert found.steps_until_back == 3


def test_a_pause_that_did_not_happen_is_an_error():
    with pytest.raises(CaseError, match="has 0 pauses, not one"):
        figures.after_pause(record([ALL] * 3))


def test_arms_have_medians_over_their_runs():
    arms = Arms(
        [
            *(record([ALL] * 5, name="strict", step_s=s) for s in (0.1, 0.2, 0.5)),
            *(record([WITHOUT_3] * 5, step_s=s) for s in (0.1, 0.1, 0.4)),
        ]
    )
    assert arms.names() == ["strict", "skip"]
    assert arms.median("strict", lambda run: run.progress) == pytest.approx(5)
    assert arms.median("skip", lambda run: run.progress) == pytest.approx(7.5)
    ratios = arms.ratios("skip", "strict", lambda run: run.progress)
    assert ratios == pytest.approx([0.75, 1.5, 0.9375])
    assert arms.best(["strict", "skip"]) == ("skip", pytest.approx(7.5))
    with pytest.raises(CaseError, match="no block is named 'gloo'"):
        arms.runs("gloo")


def test_the_file_has_each_run_with_share_and_skips_of_every_rank():
    arms = Arms([record([WITHOUT_3] * 5), record([ALL] * 5)])
    first, second = arms.as_json()["skip"]
    assert first["share_by_rank"] == [1.0, 1.0, 1.0, 0.0]
    assert first["longest_skips_by_rank"] == [0, 0, 0, 4]
    assert first["progress"] == pytest.approx(7.5)
    assert first["curve"] == [[0.1, 0.5], [0.5, 0.9]]
    assert second["longest_skips_by_rank"] == [0, 0, 0, 0]
    assert "longest run of skips 4 0" in arms.note()
