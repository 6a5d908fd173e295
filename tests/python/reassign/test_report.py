# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io

import pytest
from rich.console import Console

from aikido_torch.reassign._log import AssignmentLog, StepRecord
from aikido_torch.reassign._pending import PendingItems
from aikido_torch.reassign._report import plot, report, saved_s, summary_of


def log_of(*rows):
    """Rows: begun items, owners of the computed items, seconds, given items."""
    log = AssignmentLog()
    for step, (begun, owners, seconds, num_given) in enumerate(rows):
        record = StepRecord(
            begun=range(begun),
            computed=[(owner, 0) for owner in owners],
            knew_last=True,
            num_given=num_given,
            seconds=seconds,
            cost_begun=begun,
            cost_computed=len(owners),
        )
        log.add(step, record)
    return log


def ranks_of(*rows):
    pending = PendingItems(reissues=True)
    return [summary_of(rank, log_of(row), pending) for rank, row in enumerate(rows)]


# Rank 1 needs 2 s for an item and gives one of its two items to rank 0.
MOVED = ranks_of((2, [0, 0, 1], 3.0, 0), (2, [1], 2.0, 1))
ALONE = ranks_of((2, [0, 0], 2.0, 0), (2, [1, 1], 4.0, 0))


def printed(ranks):
    console = Console(file=io.StringIO(), width=120)
    report(ranks, console)
    return console.file.getvalue()


def test_a_summary_counts_items():
    helper, owner = MOVED
    assert (helper.num_own, helper.taken, helper.num_given) == (2, {1: 1}, 0)
    assert (owner.num_own, owner.taken, owner.num_given) == (1, {}, 1)
    assert helper.seconds == 3.0


def test_lost_items_are_counted():
    pending = PendingItems(reissues=True)
    pending.lose([1, 2, 3])
    pending.take(1)
    pending.drop([9])
    found = summary_of(0, log_of(), pending)
    assert (found.num_lost, found.num_issued_again) == (4, 1)
    assert (found.num_dropped, found.num_pending) == (1, 2)


def test_the_saved_time_is_that_of_the_slowest_rank():
    assert saved_s(MOVED) == (1.0, 3.0)  # 4 s without the move
    assert saved_s(ALONE) == (0.0, 4.0)
    assert saved_s([]) == (0.0, 0.0)


def test_steps_that_a_rank_missed_are_not_compared():
    pending = PendingItems(reissues=True)
    late = summary_of(1, log_of(), pending)
    assert saved_s([MOVED[0], late]) == (0.0, 0.0)


def test_the_report_names_helper_and_owner():
    text = printed(MOVED)
    assert "Micro-batches that moved" in text
    assert "saved about 1 s of 4 s (25.0%)" in text
    row = next(line for line in text.splitlines() if line.startswith("│"))
    assert row.split() == ["│", "0", "│", "1", "│", "1", "│"]


def test_a_run_without_moves_says_so():
    text = printed(ALONE)
    assert "No micro-batch moved in 1 steps." in text
    assert "Micro-batches of each rank" in text


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    plot(MOVED, tmp_path / "moves.svg")
    assert "taken over" in (tmp_path / "moves.svg").read_text()
