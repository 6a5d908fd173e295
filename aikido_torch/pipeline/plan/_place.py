# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Assignment of ranks to the stages of a plan with several levels.

Note [ranks of groups]
A plan assumes that some transfers stay inside a group of machines, where links are
fast. So ranks are numbered group by group, as torchrun numbers them host by host, and
not stage by stage. Groups with the same work take micro-batches in turns, and each
group distributes its micro-batches to the replicas inside, in turns too. With R groups
of r replicas each, micro-batch b goes to group b mod R, and there to replica b / R mod
r. So replica number i of all R r replicas is number i / R of group i mod R.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aikido_torch import _C

__all__ = ["placed", "ranks_of"]


class _Block(NamedTuple):
    """Part of a pipeline that several components of a level do in turns."""

    replicas: int
    # Content of each component, one level below; empty for a machine.
    inside: "list[_Block]"


def ranks_of(text: str) -> list[list[int]]:
    """The ranks of each stage's replicas, in the order of their turns.

    Args:
        text: text of a plan, such as "2(3-1)-1(4)".
    """
    return _place(_blocks(iter(re.findall(r"\d+|[()]", text))), itertools.count())


def placed(made: _C.Schedule, ranks: Sequence[Sequence[int]]) -> _C.Schedule:
    """The same schedule on other ranks.

    Args:
        made: the schedule.
        ranks: for each stage the new ranks.
    """
    pairs = zip(made.stages, ranks, strict=True)
    new = {
        old: to for own, others in pairs for old, to in zip(own, others, strict=True)
    }
    head: list[str] = []
    programs: dict[int, list[str]] = {}
    rank = -1
    for line in made.text().splitlines():
        stage = re.fullmatch(r"(stage \d+:)((?: \d+)+)", line)
        program = re.match(r"rank (\d+):", line)
        if stage:
            numbers = " ".join(str(new[int(old)]) for old in stage[2].split())
            head.append(f"{stage[1]} {numbers}")
            continue
        if program:
            rank = new[int(program[1])]
            line = f"rank {rank}:{line[program.end() :]}"
        if rank < 0:
            head.append(line)
            continue
        line = re.sub(r"([<>])(\d+)", lambda m: m[1] + str(new[int(m[2])]), line)
        programs.setdefault(rank, []).append(line)
    lines = [*head, *(line for r in sorted(programs) for line in programs[r])]
    return _C.Schedule.parse("\n".join(lines) + "\n")


def _blocks(tokens: Iterator[str]) -> "list[_Block]":
    found: list[_Block] = []
    for token in tokens:
        if token == ")":
            break
        if token == "(":
            found[-1] = found[-1]._replace(inside=_blocks(tokens))
        else:
            found.append(_Block(int(token), []))
    return found


def _place(blocks: "list[_Block]", free: Iterator[int]) -> list[list[int]]:
    """The ranks of the stages of one component."""
    found: list[list[int]] = []
    for block in blocks:
        groups = [
            _place(block.inside, free) if block.inside else [[next(free)]]
            for _ in range(block.replicas)
        ]
        for of_stage in zip(*groups, strict=True):
            turns = zip(*of_stage, strict=True)
            found.append([rank for turn in turns for rank in turn])
    return found
