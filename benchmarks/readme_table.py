# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Writer of the figures of a demo and an allreduce run into README and
docs/measured.md.

Figures on a GPU are in docs/measured.md only.

    make demo ARGS="--straggler sleep --json demo.json"
    python benchmarks/allreduce.py --json allreduce.json
    python benchmarks/readme_table.py demo.json allreduce.json

    python benchmarks/allreduce.py --device cuda --json cuda.json
    python benchmarks/readme_table.py --cuda cuda.json

The first two files must come from the same machine and commit.
"""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

_ROOT = Path(__file__).resolve().parents[1]
README, PAGE = _ROOT / "README.md", _ROOT / "docs/measured.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
BEGIN_GPU, END_GPU = "<!-- on a GPU: begin -->", "<!-- on a GPU: end -->"


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
    source = (
        f"Four ranks on one machine, over {allreduce[0]['transport']}: "
        f"{machine_of(allreduce)}"
    )
    return f"{table_of(rows)}\n\n{source}"


def measured_on_gpu(allreduce: list[dict]) -> str:
    """The block for GPUs, as Markdown: each size with Gloo and each method of
    aikido.
    """
    sizes: dict[str, dict[str, dict]] = {}
    for result in allreduce:
        size, _, way = result["case"].removesuffix(" on cuda").partition(" by ")
        sizes.setdefault(size, {})[way or "direct"] = result
    ways = list(next(iter(sizes.values())))
    names = {"direct": "through the host", "ipc": "in the GPU's memory"}
    rows = [
        (
            "`allreduce.py --device cuda`, median, ms (share of Gloo)",
            "Gloo",
            *(names.get(way, way) for way in ways),
        ),
        ("---", *["--:"] * (len(ways) + 1)),
    ]
    rows += [
        (
            size,
            f"{by[ways[0]]['reference']:.3g}",
            *(f"{by[way]['value']:.3g} ({by[way]['ratio']:.2f})" for way in ways),
        )
        for size, by in sizes.items()
    ]
    facts = allreduce[0]["machine"]
    source = (
        f"{allreduce[0]['ranks']} ranks on one {facts['gpu']}: {machine_of(allreduce)}"
    )
    return f"{table_of(rows)}\n\n{source}"


def table_of(rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def machine_of(allreduce: list[dict]) -> str:
    facts = allreduce[0]["machine"]
    text = (
        f"{facts['cpu']}, {facts['cores']} cores, "
        f"torch {facts['torch']}; {facts['date']}, commit {facts['commit']}."
    )
    if allreduce[0]["num_late"]:
        text += " The machine was busy with something else at times."
    return text


def put_between_marks(text: str, block: str, begin: str = BEGIN, end: str = END) -> str:
    pattern = re.compile(f"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the text lacks the marks {begin} and {end}")
    return pattern.sub(lambda m: f"{m[1]}{block}\n{m[2]}", text)


def main(
    demo: Annotated[Path | None, typer.Argument(help="File of make demo.")] = None,
    allreduce: Annotated[
        Path | None, typer.Argument(help="File of allreduce.py.")
    ] = None,
    cuda: Annotated[
        Path | None, typer.Option(help="File of allreduce.py --device cuda.")
    ] = None,
) -> None:
    """Writes figures into README and docs/measured.md; those of a GPU only there."""
    if (demo is None) != (allreduce is None) or demo is cuda is None:
        raise typer.BadParameter("give demo.json and allreduce.json, or --cuda, or all")
    if demo is not None and allreduce is not None:
        block = measured(
            json.loads(demo.read_text()), json.loads(allreduce.read_text())
        )
        for path in (README, PAGE):
            path.write_text(put_between_marks(path.read_text(), block))
    if cuda is not None:
        block = measured_on_gpu(json.loads(cuda.read_text()))
        text = put_between_marks(PAGE.read_text(), block, BEGIN_GPU, END_GPU)
        PAGE.write_text(text)


if __name__ == "__main__":
    typer.run(main)
