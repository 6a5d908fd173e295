# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The table of verdicts on simulated windows."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from aikido_torch.trace import attribute
from aikido_torch.trace.analyze._verdict import Verdict
from benchmarks.common import Result
from benchmarks.verdict_cases.windows import (
    CAUSES,
    PATTERNS,
    SHAPES,
    Cell,
    can_tell,
    window_of,
)

SIZES = (2, 3, 4, 8, 64)
STEPS = (1, 2, 5, 10, 20, 50)
NOISES = (0.05, 0.1, 0.2, 0.5)
DELAYS = (0.05, 0.1, 0.2, 0.4, 1.0, 3.0)
RIGHT_BAR, WRONG_BAR, ALARM_BAR = 0.99, 0.01, 1e-3
LEAST_DELAY = 0.2  # least delay for the guarantee
OUTCOMES = ("right", "wrong", "too short", "none")

Counts = dict[Cell, Counter[str]]


def cells() -> Iterator[Cell]:
    """All settings with a late rank, in normal noise."""
    for size in SIZES:
        for culprits in sorted({1, max(1, size // 4), size // 2}):
            for pattern in PATTERNS:
                for steps in STEPS:
                    for noise in NOISES:
                        for delay in DELAYS:
                            yield Cell(size, culprits, pattern, steps, noise, delay)


def outcome_of(cell: Cell, verdict: Verdict, culprits: set[int], cause: str) -> str:
    """One of OUTCOMES; a verdict is right if its ranks and its cause are right."""
    if not verdict.has_culprit:
        return verdict.cause
    # If the loss moves, not every rank is visible in a few noisy steps.
    is_right = set(verdict.ranks) == culprits or (
        cell.pattern == "rotating" and verdict.pattern == "rotating"
    )
    is_right &= verdict.cause == cause
    return "right" if is_right else "wrong"


def measure(windows: int, seed: int) -> Counts:
    """Outcomes of `windows` windows of each setting."""
    rng = np.random.default_rng(seed)
    parts = sorted(CAUSES)
    counts: Counts = {}
    for number, cell in enumerate(cells()):
        counts[cell] = Counter()
        for i in range(windows):
            part = parts[(number + i) % len(parts)]
            steps, culprits = window_of(cell, rng, part)
            verdict = attribute(steps)
            counts[cell][outcome_of(cell, verdict, culprits, CAUSES[part])] += 1
    return counts


def measure_alarms(windows: int, seed: int) -> dict[str, tuple[int, int]]:
    """By shape of the noise: windows without a late rank that name one, and all
    windows.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for shape in SHAPES:
        alarms = total = 0
        while total < windows:
            for size in SIZES:
                for steps in STEPS:
                    noise = float(rng.choice(NOISES))
                    cell = Cell(size, 0, "steady", steps, noise, 0.0, shape)
                    alarms += attribute(window_of(cell, rng)[0]).has_culprit
                    total += 1
        found[shape] = alarms, total
    return found


def judge(counts: Counts) -> list[Result]:
    """For each pattern two results.

    If the window is long enough, the verdict must be right. Otherwise it must not be
    wrong, nor "none" for a lasting loss.
    """
    results = []
    for pattern in PATTERNS:
        able: Counter[str] = Counter()
        unable: Counter[str] = Counter()
        for cell, count in counts.items():
            if cell.pattern == pattern and cell.delay >= LEAST_DELAY:
                (able if can_tell(cell) else unable).update(count)
        results.append(
            Result.judge(
                f"pure, {pattern}, {able.total():,} windows that can tell: rank and "
                f"cause right",
                unit="",
                value=able["right"] / max(1, able.total()),
                reference=1.0,
                bar=RIGHT_BAR,
                better="higher",
            )
        )
        lasts = pattern in ("steady", "drifting")
        bad = unable["wrong"] + (unable["none"] if lasts else 0)
        results.append(
            Result.judge(
                f"pure, {pattern}, {unable.total():,} windows too short to tell: wrong "
                + ('ranks or "none"' if lasts else "ranks"),
                unit="",
                value=bad / max(1, unable.total()),
                reference=1.0,
                bar=WRONG_BAR,
            )
        )
    return results


def judge_alarms(alarms: dict[str, tuple[int, int]]) -> list[Result]:
    """Judges against 1 in 1,000 windows. Fewer windows are shown but not judged."""
    results = []
    for shape, (number, total) in alarms.items():
        results.append(
            Result.judge(
                f"pure, nobody late, {shape} noise, {total:,} windows: false alarms",
                unit="",
                value=number / total,
                reference=ALARM_BAR,
                bar=1.0 if total * ALARM_BAR >= 1 else None,
            )
        )
    return results


def show(counts: Counts) -> None:
    """Prints shares of the outcomes by pattern, noise, steps and delay, over all
    sizes.
    """
    console = Console(width=110)
    for pattern in PATTERNS:
        table = Table(
            title=f"{pattern}: right / wrong / too short / none, in %; bold: can tell"
        )
        table.add_column("noise, steps")
        for delay in DELAYS:
            table.add_column(f"delay {delay:.0%}", justify="right")
        sums: defaultdict[tuple[float, int, float], Counter[str]] = defaultdict(Counter)
        able: Counter[tuple[float, int, float]] = Counter()
        for cell, count in counts.items():
            if cell.pattern == pattern:
                place = cell.noise, cell.steps, cell.delay
                sums[place].update(count)
                able[place] += can_tell(cell)
        for noise in NOISES:
            for steps in STEPS:
                row = []
                for delay in DELAYS:
                    count = sums[noise, steps, delay]
                    total = max(1, count.total())
                    text = "/".join(f"{100 * count[o] / total:.0f}" for o in OUTCOMES)
                    row.append(
                        f"[bold]{text}[/]" if able[noise, steps, delay] else text
                    )
                table.add_row(f"{noise:.0%}, {steps}", *row)
        console.print(table)
