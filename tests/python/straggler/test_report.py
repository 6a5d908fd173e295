# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io
from collections import Counter
from types import SimpleNamespace

from rich.console import Console

from aikido_torch.straggler import report
from aikido_torch.straggler._contributions import Contributions
from aikido_torch.straggler._steps import StepCounters, Steps
from aikido_torch.straggler._waiting import Waiting


def outcome(skipped=(), reason="deadline", deadline_ms=0.0, stand_ins=()):
    return SimpleNamespace(
        skipped=list(skipped),
        reason=reason,
        deadline_ms=deadline_ms,
        stand_ins=list(stand_ins),
    )


def printed(outcomes):
    console = Console(file=io.StringIO(), width=100)
    counts = report(outcomes, console=console)
    return counts, console.file.getvalue()


def test_ranks_are_counted_by_reason():
    counts, text = printed(
        [
            outcome(),
            outcome([2], deadline_ms=20),
            outcome([2, 0], deadline_ms=41.26),
            outcome([2], reason="known_behind"),
        ]
    )
    assert counts == {0: {"deadline": 1}, 2: {"deadline": 2, "known_behind": 1}}
    assert "Skipped contributions in 4 calls" in text
    lines = [line.split("│") for line in text.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in line[1:-1]] for line in lines]
    assert cells == [
        ["0", "1", "25.0%", "deadline 1", "41.3 ms"],
        ["2", "3", "75.0%", "deadline 2, known_behind 1", "41.3 ms"],
    ]


def test_an_excluded_rank_is_reported_as_out():
    counts, text = printed([outcome([3], reason="complete")])
    assert counts == {3: {"complete": 1}}
    assert "│ out of the group 1 │" in text
    _, cells = by_step([StepCounters(1, skipped={3: Counter(complete=1)})])
    assert cells[0][1] == "3: out of the group"


def test_without_skipped_ranks_the_report_says_so():
    assert printed([outcome(), outcome()]) == ({}, "Nobody was skipped in 2 calls.\n")
    assert printed([])[0] == {}
    text, _ = by_step([StepCounters(4), StepCounters(5)])
    assert text == (
        "Nobody was skipped in 0 calls.\n"
        "0 of 2 steps with somebody skipped or caught up.\n"
    )


def test_progress_comes_first():
    contributions = [Contributions(2, 10), Contributions(2, 10, {1: 5})]
    steps = Steps(
        StepCounters(i, num_calls=1, contributions=each, ended_at=float(i))
        for i, each in enumerate(contributions)
    )
    steps.waiting = Waiting(100, 0.875, 10.0, 20.0)
    console = Console(file=io.StringIO(), width=40)
    report([], steps=steps, batch_size=400, console=console)
    assert console.file.getvalue().splitlines()[:4] == [
        "1 steps/s with 87.5% of all contributions: progress 0.875 full steps/s, "
        "700 samples/s.",
        "Contributions by rank: rank 1 75.0%, others 100.0%.",
        "Skipping gained 75% against waiting for all, by the 100 calls of which this "
        "rank closed a shard.",
        "Nobody was skipped in 0 calls.",
    ]


def by_step(steps):
    console = Console(file=io.StringIO(), width=120)
    report([], steps=steps, console=console)
    text = console.file.getvalue()
    lines = [line.split("│") for line in text.splitlines() if "│" in line]
    return text, [[cell.strip() for cell in line[1:-1]] for line in lines]


def test_steps_show_the_skipped_ranks_and_the_way_of_this_rank():
    skipped = {3: Counter(deadline=2, known_behind=1), 1: Counter(expected_late=1)}
    text, cells = by_step(
        [
            StepCounters(4),
            StepCounters(5, skipped=skipped, deadline_ms=20.06, cancelled_bytes=4096),
            StepCounters(6, way="replayed"),
            StepCounters(7, way="copied", copied_from=2),
        ]
    )
    assert "3 of 4 steps with somebody skipped or caught up" in text
    assert "cancelled bytes: of this" in " ".join(text.split())
    assert cells == [
        ["5", "1: expected_late; 3: deadline, known_behind", "20.1 ms", "4,096", "own"],
        ["6", "", "", "0", "replayed"],
        ["7", "", "", "0", "copied from 2"],
    ]


def test_only_the_last_of_many_steps_are_shown():
    text, cells = by_step([StepCounters(i, way="replayed") for i in range(100)])
    assert "100 of 100 steps with somebody skipped or caught up, the last 40" in text
    assert [int(row[0]) for row in cells] == list(range(60, 100))


def test_stand_ins_have_their_own_column():
    counts, text = printed(
        [
            outcome(stand_ins=[(2, 4)]),
            outcome([2], deadline_ms=20.0, stand_ins=[(0, 4), (1, 5)]),
            outcome(stand_ins=[(1, 4)]),
        ]
    )
    assert counts == {2: {"deadline": 1}}
    lines = [line.split("│") for line in text.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in line[1:-1]] for line in lines]
    assert cells == [
        ["0", "0", "0.0%", "", "", "by 4 1"],
        ["1", "0", "0.0%", "", "", "by 4 1, by 5 1"],
        ["2", "1", "33.3%", "deadline 1", "20.0 ms", "by 4 1"],
    ]


def test_steps_show_the_data_shards_that_a_backup_computed():
    text, cells = by_step(
        [
            StepCounters(4),
            StepCounters(5, stand_ins={3: Counter({5: 2, 4: 1}), 0: Counter({4: 1})}),
            StepCounters(6, skipped={1: Counter(deadline=1)}, deadline_ms=7.0),
        ]
    )
    assert "2 of 3 steps with somebody skipped, stood in for or caught up" in text
    assert cells == [
        ["5", "", "0 by 4, 3 by 4, 5", "", "0", "own"],
        ["6", "1: deadline", "", "7.0 ms", "0", "own"],
    ]
