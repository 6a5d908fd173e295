# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Puts the figures of one demo and one allreduce run into the README.

    make demo ARGS="--straggler sleep --json demo.json"
    python benchmarks/allreduce.py --json allreduce.json
    python benchmarks/readme_table.py demo.json allreduce.json

Both files must come from the same machine and commit.
"""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def measured(demo: dict[str, dict], allreduce: list[dict]) -> str:
    """The block between the marks, as Markdown."""
    wait, skip = demo["wait_all"], demo["skip"]

    def seconds(mode: dict) -> str:
        reached = mode["seconds_to_target"]
        return "not reached" if reached is None else f"{reached:.1f} s"

    rows = [
        ("`make demo`, `--straggler sleep`", "`WaitAll`", "`SkipStraggler`", "ratio"),
        ("---", "--:", "--:", "--:"),
        (
            "time for the same number of steps",
            f"{wait['seconds']:.1f} s",
            f"{skip['seconds']:.1f} s",
            f"{skip['seconds'] / wait['seconds']:.2f}",
        ),
        ("time to 95 % test accuracy", seconds(wait), seconds(skip), ""),
        (
            "final test accuracy",
            f"{wait['accuracy']:.1%}",
            f"{skip['accuracy']:.1%}",
            "",
        ),
        (
            "contributions skipped, by rank",
            " ".join(map(str, wait["skipped"])),
            " ".join(map(str, skip["skipped"])),
            "",
        ),
        (
            "parameters equal on all ranks",
            "yes" if wait["hashes_equal"] else "**no**",
            "yes" if skip["hashes_equal"] else "**no**",
            "",
        ),
        ("**`benchmarks/allreduce.py`**", "**Gloo**", "**aikido**", "**ratio**"),
    ]
    rows += [
        (
            f"{r['case']}, median (p95)",
            f"{r['reference']:.3g} ({r['reference_p95']:.3g}) {r['unit']}",
            f"{r['value']:.3g} ({r['p95']:.3g}) {r['unit']}",
            f"{r['ratio']:.2f}",
        )
        for r in allreduce
    ]
    facts = allreduce[0]["machine"]
    source = (
        f"Four ranks on one machine, over {allreduce[0]['transport']}: {facts['cpu']}, "
        f"{facts['cores']} cores, "
        f"torch {facts['torch']}; {facts['date']}, commit {facts['commit']}."
    )
    if allreduce[0]["num_late"]:
        source += " The machine was busy with something else at times."
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n{source}"


def put_between_marks(text: str, block: str) -> str:
    pattern = re.compile(f"({re.escape(BEGIN)}\n).*?({re.escape(END)})", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the text lacks the marks {BEGIN} and {END}")
    return pattern.sub(lambda m: f"{m[1]}{block}\n{m[2]}", text)


def main(
    demo: Annotated[Path, typer.Argument(help="Written by make demo.")],
    allreduce: Annotated[Path, typer.Argument(help="Written by allreduce.py.")],
) -> None:
    """Puts the figures of one demo and one allreduce run into the README."""
    block = measured(json.loads(demo.read_text()), json.loads(allreduce.read_text()))
    README.write_text(put_between_marks(README.read_text(), block))


if __name__ == "__main__":
    typer.run(main)
