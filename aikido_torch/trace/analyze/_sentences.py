# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sentences with the evidence of a verdict."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Protocol

from aikido_torch.trace.analyze._detect import Slow
from aikido_torch.trace.analyze._units import in_ms, pace, percent
from aikido_torch.trace.analyze._verdict import Cause, Part, Pattern

__all__ = ["evidence_of", "nothing_seen", "too_short"]

_MOST_RANKS = 8  # ranks that a sentence names at most


class Loss(Protocol):
    """The attributes of a loss that sentences use."""

    @property
    def cause(self) -> Cause: ...
    @property
    def part(self) -> Part | None: ...
    @property
    def rank(self) -> int: ...
    @property
    def slow(self) -> Slow: ...
    @property
    def pattern(self) -> Pattern: ...
    @property
    def peer(self) -> int | None: ...
    @property
    def stage(self) -> int | None: ...


def nothing_seen(num_steps: int, step_s: float, visible_s: float) -> str:
    """Sentence for a window without a late rank that was long enough to show one."""
    text = (
        f"No rank cost the others a share of the {in_ms(step_s)} of a step that is "
        "more than chance."
    )
    if not math.isfinite(visible_s) or step_s <= 0:
        return text
    return (
        f"{text} A loss of {in_ms(visible_s)} in each of the {num_steps} steps would "
        "have been seen."
    )


def too_short(num_steps: int, step_s: float, visible_s: float) -> str:
    """Sentence for a window that is too short to find a late rank."""
    steps = f"{num_steps} step{'s are' if num_steps > 1 else ' is'} too few"
    if not math.isfinite(visible_s) or step_s <= 0:
        return (
            f"{steps} to tell a late rank from noise; trace at least "
            f"{max(10, 2 * num_steps)} steps."
        )
    needed = math.ceil(num_steps * (visible_s / (0.2 * step_s)) ** 2)
    return (
        f"{steps} for the noise of these ranks: a rank has to lose {in_ms(visible_s)} "
        f"({percent(visible_s / step_s)}) of each step to be seen. A loss of 20% takes "
        f"about {needed} steps."
    )


def evidence_of(losses: Sequence[Loss], num_steps: int) -> str:
    """Sentences about the losses of a verdict, the largest first."""
    top = losses[0]
    if top.pattern == "rotating":
        return _rotating(losses, num_steps)
    alike = [loss for loss in losses if loss.cause == top.cause]
    text = _alike(alike, num_steps)
    others = [loss for loss in losses if loss.cause != top.cause]
    if others:
        text += " " + evidence_of(others, num_steps)
    return text


def _rotating(losses: Sequence[Loss], num_steps: int) -> str:
    rows = {row for loss in losses for row in loss.slow.rows}
    seconds = median(loss.slow.lost_s for loss in losses)
    ranks = _list(sorted({loss.rank for loss in losses}), ", ")
    where = f"In {len(rows)} of {num_steps} steps"
    if losses[0].cause == "network":
        return (
            f"{where} what another one of the ranks {ranks} sent took {in_ms(seconds)} "
            "more."
        )
    return (
        f"{where} another one of the ranks {ranks} was {in_ms(seconds)} behind the "
        "others."
    )


def _alike(losses: Sequence[Loss], num_steps: int) -> str:
    top = losses[0]
    ranks = sorted({loss.rank for loss in losses})
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_list(ranks)}"
    own = median(loss.slow.own_s for loss in losses)
    usual = median(loss.slow.usual_s for loss in losses)
    rows = {row for loss in losses for row in loss.slow.rows}
    where = f"in {len(rows)} of {num_steps} steps"
    grows = " The loss changes over the window." if top.pattern == "drifting" else ""
    verb = "s" if len(ranks) == 1 else ""
    match top.cause:
        case "compute" if top.stage is not None:
            text = (
                f"{_capital(who)} computed {in_ms(own)} for a micro-batch of stage "
                f"{top.stage} {where}, the other ranks or stages {in_ms(usual)}."
            )
        case "compute" | "loop":
            part = f", mostly in {_PARTS[top.part]}" if top.part else ""
            text = (
                f"{_capital(who)} worked {in_ms(own)} on its own {where}, the others "
                f"{in_ms(usual)}, before {'it' if len(ranks) == 1 else 'they'} made "
                f"{'its' if len(ranks) == 1 else 'their'} last call{part}."
            ).replace("on its own", "on its own" if len(ranks) == 1 else "on their own")
        case "input":
            text = (
                f"{_capital(who)} waited {in_ms(own)} for "
                f"{'its' if len(ranks) == 1 else 'their'} data {where}, the others "
                f"{in_ms(usual)}."
            )
        case "host stopped":
            text = (
                f"Nothing of {who} ran for {in_ms(own)} {where}: neither the program "
                "nor the thread that looks at the clock."
            )
        case "network":
            text = (
                f"What rank {top.rank} sends to rank {top.peer} took {pace(own)} "
                f"{where}, what goes other ways {pace(usual)}: the link between both "
                "is slow, and nobody can tell at which end."
            )
        case "network out":
            text = (
                f"What {who} send{verb} took {pace(own)} {where} to each of the "
                f"others, among which it takes {pace(usual)}."
            )
        case _:
            text = (
                f"What {who} receive{verb} took {pace(own)} {where} from each of the "
                f"others, among which it takes {pace(usual)}."
            )
    return text + grows


_PARTS: dict[Part | None, str] = {
    "forward": "the forward",
    "backward": "the backward",
    "optimizer": "the optimizer",
    "input": "waiting for data",
    "loop": "the loop's own code",
    "communication": "communication",
    "stopped": "a stop",
}


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _list(ranks: Sequence[int], last: str = " and ") -> str:
    """ "1, 2 and 3"; of many ranks the first ones, and the number of the others."""
    names = [str(rank) for rank in ranks]
    if len(names) > _MOST_RANKS:
        return f"{', '.join(names[:_MOST_RANKS])} and {len(names) - _MOST_RANKS} more"
    if len(names) == 1:
        return names[0]
    return ", ".join(names[:-1]) + last + names[-1]
