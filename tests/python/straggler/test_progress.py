# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.straggler._contributions import Contributions
from aikido_torch.straggler._progress import progress_of
from aikido_torch.straggler._steps import StepCounters


def steps_of(*missing, num_ranks=4, step_s=0.1, begin=7.0):
    """One step per argument: a dict of rank to missing elements, of 100."""
    return [
        StepCounters(
            i,
            num_calls=1,
            contributions=Contributions(num_ranks, 100, each),
            ended_at=begin + i * step_s,
        )
        for i, each in enumerate(missing)
    ]


def test_progress_is_the_share_times_steps_per_second():
    progress = progress_of(steps_of({}, {3: 100}, {}, {3: 50, 0: 10}, {}))
    assert progress.steps_per_second == pytest.approx(10)
    assert progress.shares == pytest.approx((0.98, 1, 1, 0.7))
    assert progress.share == pytest.approx(0.92)
    assert progress.full_steps_per_second == pytest.approx(9.2)


def test_samples_count_by_the_batch_size_of_each_rank():
    progress = progress_of(steps_of({}, {3: 100}))
    assert progress.samples_per_second(32) == pytest.approx(10 * 3.5 * 32)
    assert progress.samples_per_second([1, 2, 3, 100]) == pytest.approx(10 * 56)
    # Only the primaries contribute. Their ranks come before those of the backups.
    assert progress.samples_per_second([1, 2, 3, 100, 7]) == pytest.approx(10 * 56)


@pytest.mark.parametrize(
    "batch_size", [-1, [32, 32, 32], [1, 2, 3, 1.5], [1, 2, 3, -4]]
)
def test_invalid_batch_sizes_are_refused(batch_size):
    progress = progress_of(steps_of({}, {}))
    with pytest.raises(ConfigError, match=r"batch_size .*one for each rank"):
        progress.samples_per_second(batch_size)


def test_the_lines_name_ranks_with_missing_contributions():
    progress = progress_of(steps_of({}, {3: 100, 1: 4}))
    assert progress.lines() == [
        "10 steps/s with 87.0% of all contributions: progress 8.7 full steps/s.",
        "Contributions by rank: rank 3 50.0%, rank 1 98.0%, others 100.0%.",
    ]
    assert progress.lines(32)[0].endswith("full steps/s, 1,114 samples/s.")


def test_with_all_contributions_no_rank_is_named():
    assert progress_of(steps_of({}, {})).lines(1) == [
        "10 steps/s with 100.0% of all contributions: progress 10 full steps/s, "
        "40 samples/s."
    ]


def test_among_many_ranks_those_with_the_least_are_named():
    missing = {r: 100 - r for r in range(12)}
    (_, line) = progress_of(steps_of({}, missing, num_ranks=12)).lines()
    assert line.startswith("Contributions by rank: rank 0 50.0%, rank 1 50.5%")
    assert line.endswith("rank 7 53.5%, others at least 54.0%.")


def test_a_copied_step_lacks_the_contribution_of_this_rank():
    steps = steps_of({}, {}, {})
    steps.insert(1, StepCounters(1, way="copied", copied_from=0, ended_at=7.05))
    assert progress_of(steps).shares == (1, 1, 1, 1)
    progress = progress_of(steps, place=(2, 4))
    assert progress.shares == (1, 1, 0.75, 1)
    assert progress.steps_per_second == pytest.approx(15)
    assert progress_of(steps, place=(5, 6)).shares == (1, 1, 1, 1)  # place of a backup


def test_the_group_size_gives_the_number_of_contributors_of_strict_steps():
    steps = steps_of({}, {}, {}, num_ranks=0)
    assert progress_of(steps) is None
    assert progress_of(steps, place=(1, 3)).shares == (1, 1, 1)
    steps += steps_of({3: 100}, begin=8.0)
    assert progress_of(steps, place=(1, 5)).shares == (1, 1, 1, 0.75)


def test_a_later_call_without_backups_gives_the_number_of_ranks():
    steps = steps_of({}, num_ranks=5) + steps_of({3: 100}, num_ranks=4, begin=8.0)
    assert progress_of(steps).shares == (1, 1, 1, 0.5)


def test_too_few_steps_give_no_figures():
    assert progress_of([]) is None
    assert progress_of(steps_of({})) is None
    assert progress_of([StepCounters(4), StepCounters(5)]) is None
    without_times = [StepCounters(s.step, num_calls=1, contributions=s.contributions)
                     for s in steps_of({}, {})]  # fmt: skip
    assert progress_of(without_times) is None
    assert progress_of(steps_of({}, {}, step_s=0.0)) is None
