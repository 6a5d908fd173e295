# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io
from types import SimpleNamespace

from rich.console import Console

from aikido_torch.straggler import report


def outcome(skipped=(), reason="deadline", deadline_ms=0.0):
    return SimpleNamespace(
        skipped=list(skipped), reason=reason, deadline_ms=deadline_ms
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


def test_nobody_skipped_is_an_empty_table():
    counts, text = printed([outcome(), outcome()])
    assert counts == {}
    assert "Skipped contributions in 2 calls" in text
    assert printed([])[0] == {}
