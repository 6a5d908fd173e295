# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Shared parts of all benchmarks: interleaved timing, results, machine facts, tables.

A result compares a measured value with a reference from the same run on the same
machine, and says whether their ratio keeps within a bar that was fixed in advance. Only
ratios are compared across machines.
"""

import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

# For the signature of a typer command: `json: common.JsonPath = None`.
JsonPath = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the results to FILE."),
]
# Transports between ranks of one machine.
TCP, SHARED_MEMORY = "TCP", "shared memory"
# Program that measures the least exchange over these transports.
LEAST_LIBRARY = "least_exchange"
# Share of a link's rate for payload; the rest is headers.
PAYLOAD_SHARE = 0.957


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of a benchmark."""

    case: str  # the measured case, as a short phrase
    unit: str  # of value and reference: "ms", "GB/s", "loss"
    value: float
    reference: float
    ratio: float  # value / reference
    bar: float | None  # the limit of the ratio; None: shown, not judged
    holds: bool | None

    @classmethod
    def judge(
        cls,
        case: str,
        *,
        unit: str,
        value: float,
        reference: float,
        bar: float | None,
        better: Literal["lower", "higher"] = "lower",
    ) -> "Result":
        """Compares with the bar: the ratio must be at most the bar, or at least for
        `higher`.

        Without a bar nothing is judged. The ratio to a reference of zero is infinite,
        or 1 if both are zero. NaN never holds.
        """
        if reference != 0:
            ratio = value / reference
        else:
            ratio = 1.0 if value == 0 else math.copysign(math.inf, value)
        return cls(
            case=case,
            unit=unit,
            value=value,
            reference=reference,
            ratio=ratio,
            bar=bar,
            holds=_holds(ratio, bar, better),
        )


def _holds(
    ratio: float, bar: float | None, better: Literal["lower", "higher"]
) -> bool | None:
    if bar is None:
        return None
    return ratio <= bar if better == "lower" else ratio >= bar


def within_reach(
    bar: float | None,
    *,
    value: float,
    least: float,
    reference: float,
    better: Literal["lower", "higher"] = "lower",
) -> float | None:
    """The bar; None if both `value` and `least`, the best possible value, miss it.

    For `higher`, `least` is the largest possible value.
    """
    if bar is None:
        return None
    best = min(value, least) if better == "lower" else max(value, least)
    can_hold = best <= bar * reference if better == "lower" else best >= bar * reference
    return bar if can_hold else None


@dataclass(frozen=True)
class Samples:
    """Repeated measurements of one quantity, in the order taken; not empty."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p95(self) -> float:
        return self.quantile(0.95)

    @property
    def spread(self) -> float:
        """Distance of the quartiles as a share of the median: 0 when all are equal."""
        return (self.quantile(0.75) - self.quantile(0.25)) / (self.median or 1.0)

    def quantile(self, share: float) -> float:
        """The value at `share` (0 to 1) of the sorted values, linear in between."""
        ordered = sorted(self.values)
        place = share * (len(ordered) - 1)
        low = math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def bound_s(name: str, num_bytes: int, ranks: int, mbit: float) -> float:
    """Lower bound of a collective's seconds: bytes over the busiest link by its rate.

    Each rank is a host with a link of `mbit` in each direction. For a tensor of S bytes
    the busiest link carries 2 S (n-1)/n in an allreduce, S in a broadcast, and S
    (n-1)/n in the others.
    """
    parts = (ranks - 1) / ranks
    share = {"allreduce": 2 * parts, "broadcast": 1.0}.get(name, parts)
    return share * num_bytes * 8e-6 / (PAYLOAD_SHARE * mbit)


def measure_interleaved(
    cases: Mapping[str, Callable[[], Any]],
    *,
    repeats: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Samples]:
    """Seconds of each case, measured A B A B, so that drift affects all cases
    equally.
    """
    if repeats < 1 or warmup < 0:
        raise ValueError(
            f"repeats {repeats} must be positive, warmup {warmup} not negative"
        )
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(warmup + repeats):
        for name, run in cases.items():
            start = clock()
            run()
            elapsed = clock() - start
            if turn >= warmup:
                taken[name].append(elapsed)
    return {name: Samples(tuple(values)) for name, values in taken.items()}


def machine_facts() -> dict[str, Any]:
    """Facts of the machine, to interpret figures; torch only if it is installed."""
    facts: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    try:
        import torch
    except ImportError:
        return facts
    facts["torch"] = torch.__version__
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def _commit() -> str:
    """Short hash of the commit, with a + if files differ from it."""
    here = Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        answer = subprocess.run(command, cwd=here, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return answer.stdout.strip() or "unknown"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def write_json(
    path: Path, results: Sequence[Result], *, facts: Mapping[str, Any] | None = None
) -> None:
    """Writes a file for benchmarks/check.py; `facts` go into each object as
    "machine".
    """
    rows = [asdict(result) for result in results]
    if facts is not None:
        rows = [row | {"machine": dict(facts)} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=2) + "\n")


def results_table(results: Sequence[Result], *, title: str | None = None) -> Table:
    table = Table(title=title)
    table.add_column("case")
    for name in ("value", "reference", "ratio", "bar"):
        table.add_column(name, justify="right")
    table.add_column("holds")
    for result in results:
        table.add_row(
            result.case,
            f"{result.value:.4g} {result.unit}",
            f"{result.reference:.4g} {result.unit}",
            f"{result.ratio:.3g}",
            "" if result.bar is None else f"{result.bar:.3g}",
            {None: "", True: "yes", False: "[bold red]no[/]"}[result.holds],
        )
    return table


def console_for_tables() -> Console:
    """Console with the width of the terminal, or 120 columns without a terminal."""
    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console() if is_known else Console(width=120)


def report(results: Sequence[Result], json_path: Path | None = None) -> None:
    """Prints results and machine, and writes the file if one is given."""
    facts = machine_facts()
    console = console_for_tables()
    console.print(results_table(results))
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()))
    if json_path is not None:
        write_json(json_path, results, facts=facts)
