# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Who makes the others wait, and why: a verdict for a few steps. Pure.

Each step is looked at alone: which rank lost how much more than the others, by its own
work, its data, its stops or its links. A rank is the culprit of the window when the
same thing is seen in most of its steps, or when one step lost so much that chance is no
explanation. What counts is measured against the spread that the ranks have anyway in
the same window, so that a noisy machine is no culprit.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low
from typing import Literal

from aikido_torch.trace._facts import StepFacts

__all__ = ["Verdict", "attribute", "attribute_windows"]

Cause = Literal[
    "compute",
    "input",
    "network in",
    "network out",
    "network",
    "host stopped",
    "none",
]
Pattern = Literal["steady", "transient", "rotating", "none"]

# Least that is called a loss: of a step's time, and in seconds.
_LEAST_SHARE = 0.1
_LEAST_S = 0.002
# Of the usual spread: what is no chance if it is seen in most steps, and if once.
_SPREADS = 5.0
_SPREADS_ONCE = 20.0
# Seen once it has to cost as much as this many steps, and so many seconds.
_STEPS_ONCE = 1.0
_ONCE_S = 0.05
# Of the steps of a window.
_MOST = 0.6
# From the median of absolute deviations to the standard deviation of a normal spread.
_MAD = 1.4826


@dataclass(frozen=True)
class Verdict:
    """Who made the others wait in some steps.

    Attributes:
        cause: what it was; "network" is a link of which nobody can tell which end is
            slow, because neither has another one in that direction, as of two ranks.
        rank: whose it was; None where it was nobody's, that of a link between two, or
            moved from rank to rank.
        pattern: whether it was in most steps, in few, or moved between ranks.
        lost_s: seconds of a step, in the middle of those in which it was seen.
        first_step: of the window.
        last_step: of the window.
        evidence: one sentence.
    """

    cause: Cause
    rank: int | None
    pattern: Pattern
    lost_s: float
    first_step: int
    last_step: int
    evidence: str


@dataclass(frozen=True)
class _Loss:
    step: int
    cause: Cause
    rank: int
    seconds: float
    own_s: float  # what the rank took
    usual_s: float  # what the others took
    once: bool  # so much that once is enough
    peer: int = -1  # of a link


def attribute(window: Sequence[StepFacts]) -> Verdict:
    """The verdict over a few steps, five for example. Deterministic.

    Args:
        window: what `facts_of` gave of them; at least one.
    """
    lengths = [r.length_s for facts in window for r in facts.ranks.values()]
    typical_s = median(lengths) if lengths else 0.0
    by_step: list[list[_Loss]] = []
    work_spread = _spread([_works(facts) for facts in window])
    link_spread = _link_spread(window)
    for facts in window:
        losses = [
            *_stops(facts, typical_s),
            *_own(facts, typical_s, work_spread),
            *_network(facts, typical_s, link_spread),
        ]
        # What a stop has made late is late for that.
        stopped = {loss.rank for loss in losses if loss.cause == "host stopped"}
        by_step.append(
            [
                loss
                for loss in losses
                if not stopped or loss.cause == "host stopped" or loss.cause in _OWN
            ]
        )
    found = [
        max(losses, key=lambda loss: (loss.seconds, -loss.rank))
        for losses in _one_direction(by_step)
        if losses
    ]
    return _verdict(window, found, typical_s)


def attribute_windows(steps: Iterable[StepFacts], *, size: int = 5) -> list[Verdict]:
    """A verdict for each window of `size` steps, one behind another."""
    steps = list(steps)
    return [attribute(steps[i : i + size]) for i in range(0, len(steps), size)]


_OWN = ("compute", "input")
_WAYS: tuple[Cause, ...] = ("network out", "network in")


def _works(facts: StepFacts) -> dict[int, float]:
    return {
        rank: own.work_s - own.stopped_in_work_s for rank, own in facts.ranks.items()
    }


def _spread(steps: Iterable[dict[int, float]]) -> float:
    """How far ranks are from each other anyway."""
    distances = [
        abs(value - median(values.values()))
        for values in steps
        for value in values.values()
    ]
    return _MAD * median(distances) if distances else 0.0


def _others(values: dict[int, float], rank: int) -> float:
    """Of two ranks the other; of more the middle of the others."""
    return median([value for other, value in values.items() if other != rank])


def _loss(
    facts: StepFacts,
    cause: Cause,
    rank: int,
    seconds: float,
    own_s: float,
    usual_s: float,
    *,
    typical_s: float,
    spread: float,
) -> list[_Loss]:
    if seconds < max(_LEAST_SHARE * typical_s, _LEAST_S, _SPREADS * spread):
        return []
    once = max(_STEPS_ONCE * typical_s, _ONCE_S, _SPREADS_ONCE * spread)
    is_once = seconds >= once or cause == "host stopped"
    return [_Loss(facts.step, cause, rank, seconds, own_s, usual_s, is_once)]


def _stops(facts: StepFacts, typical_s: float) -> list[_Loss]:
    found = []
    for rank, own in facts.ranks.items():
        found += _loss(
            facts, "host stopped", rank, own.stopped_s, own.stopped_s, 0.0,
            typical_s=typical_s, spread=0.0,
        )  # fmt: skip
    return found


def _own(facts: StepFacts, typical_s: float, spread: float) -> list[_Loss]:
    works = _works(facts)
    if len(works) < 2:
        return []
    inputs = {rank: own.input_s for rank, own in facts.ranks.items()}
    found = []
    for rank, work in works.items():
        more = work - _others(works, rank)
        more_input = inputs[rank] - _others(inputs, rank)
        cause: Cause = "input" if more_input > more / 2 else "compute"
        shown = inputs if cause == "input" else works
        found += _loss(
            facts, cause, rank, more, shown[rank], _others(shown, rank),
            typical_s=typical_s, spread=spread,
        )  # fmt: skip
    return found


def _paces(facts: StepFacts) -> dict[tuple[int, int], float]:
    """Seconds per byte."""
    return {
        pair: link.seconds / link.num_bytes
        for pair, link in facts.links.items()
        if link.num_bytes > 0
    }


def _sides(facts: StepFacts) -> dict[tuple[Cause, int], tuple[float, float, float]]:
    """By direction and rank: seconds more than others, its pace, and theirs.

    A rank whose own end is slow is slow with all, so the better half of its links
    counts; against the lower quartile of the links of the others, since with one slow
    rank most of those may be slow.
    """
    paces = _paces(facts)
    found: dict[tuple[Cause, int], tuple[float, float, float]] = {}
    directions: tuple[tuple[Cause, Callable[[tuple[int, int]], int]], ...] = (
        ("network out", lambda pair: pair[0]),
        ("network in", lambda pair: pair[1]),
    )
    for cause, end in directions:
        for rank in {end(pair) for pair in paces}:
            own = [pair for pair in paces if end(pair) == rank]
            rest = [pace for pair, pace in paces.items() if rank not in pair]
            if not rest:  # two ranks: only the other direction is there to compare
                rest = [pace for pair, pace in paces.items() if end(pair) != rank]
            if not rest:
                continue
            usual = sorted(rest)[len(rest) // 4]
            more = [
                facts.links[pair].seconds - usual * facts.links[pair].num_bytes
                for pair in own
            ]
            pace = median_low([paces[pair] for pair in own])
            found[cause, rank] = (median_low(more), pace, usual)
    return found


def _single_links(facts: StepFacts) -> dict[tuple[Cause, int], tuple[int, int]]:
    """Sides that are one link, which is both all that one end sends and all that the
    other receives: what is seen of it is seen of both."""
    pairs = [*_paces(facts)]
    sent = Counter(sender for sender, _ in pairs)
    received = Counter(receiver for _, receiver in pairs)
    single = [(s, t) for s, t in pairs if sent[s] == received[t] == 1]
    out, into = _WAYS
    return {(out, s): (s, t) for s, t in single} | {
        (into, t): (s, t) for s, t in single
    }


def _link_spread(window: Sequence[StepFacts]) -> float:
    """How far links are from each other anyway; single ones from what they are else.

    Of two ranks' links each is the only one to compare the other with.
    """
    distances = []
    single: defaultdict[tuple[Cause, int], list[float]] = defaultdict(list)
    for facts in window:
        are_single = _single_links(facts)
        for side, (more, _, _) in _sides(facts).items():
            if side in are_single:
                single[side].append(more)
            else:
                distances.append(abs(more))
    for values in single.values():
        distances += [abs(value - median(values)) for value in values]
    return _MAD * median(distances) if distances else 0.0


def _network(facts: StepFacts, typical_s: float, spread: float) -> list[_Loss]:
    found = []
    single = _single_links(facts)
    for (way, rank), (seconds, pace, usual) in _sides(facts).items():
        cause, peer = way, -1
        if (way, rank) in single:
            sender, peer = single[way, rank]
            if rank != sender:  # told of the sender's side
                continue
            cause = "network"
        losses = _loss(
            facts, cause, rank, seconds, pace, usual, typical_s=typical_s, spread=spread
        )
        found += [replace(loss, peer=peer) for loss in losses]
    return found


def _one_direction(by_step: list[list[_Loss]]) -> list[list[_Loss]]:
    """The same, with the losses of each rank's links in one direction.

    Acknowledgements go the other way: where they queue, what comes the good way is
    slower too, but less. So all of it is put down to the direction that lost more.
    """
    totals: defaultdict[tuple[Cause, int], float] = defaultdict(float)
    for losses in by_step:
        for loss in losses:
            if loss.cause in _WAYS:
                totals[loss.cause, loss.rank] += loss.seconds
    out, into = _WAYS
    blamed = {
        rank: out if totals[out, rank] >= totals[into, rank] else into
        for _, rank in [*totals]
    }
    told = []
    for losses in by_step:
        best: dict[int, _Loss] = {}
        for loss in losses:
            if loss.cause not in _WAYS:
                continue
            before = best.get(loss.rank)
            is_blamed = loss.cause == blamed[loss.rank]
            if before is None or is_blamed:
                best[loss.rank] = replace(loss, cause=blamed[loss.rank])
        told.append([loss for loss in losses if loss.cause not in _WAYS])
        told[-1] += best.values()
    return told


# ---- from steps to a window ----


def _verdict(
    window: Sequence[StepFacts], found: list[_Loss], typical_s: float
) -> Verdict:
    first, last = window[0].step, window[-1].step
    counts = Counter((loss.cause, loss.rank) for loss in found)
    needed = max(1, round(_MOST * len(window)))
    most = counts.most_common(1)
    if most and most[0][1] >= needed and len(window) >= 3:
        place = most[0][0]
        losses = [loss for loss in found if (loss.cause, loss.rank) == place]
        return _told("steady", losses, window)
    large = [loss for loss in found if loss.once]
    if len(large) >= needed and len({loss.rank for loss in large}) > 1:
        seconds = median([loss.seconds for loss in large])
        ranks = ", ".join(str(r) for r in sorted({loss.rank for loss in large}))
        cause = Counter(loss.cause for loss in large).most_common(1)[0][0]
        text = f"another one of the ranks {ranks} was {_ms(seconds)} behind the others"
        if cause == "network":
            text = (
                f"what another one of the ranks {ranks} sent took {_ms(seconds)} more"
            )
        return Verdict(
            cause, None, "rotating", seconds, first, last,
            f"In {len(large)} of {len(window)} steps {text}.",
        )  # fmt: skip
    if large:
        top = max(large, key=lambda loss: loss.seconds)
        same = [x for x in large if (x.cause, x.rank) == (top.cause, top.rank)]
        return _told("transient", same, window)
    return Verdict(
        "none", None, "none", 0.0, first, last,
        f"No rank cost the others a share of the {_ms(typical_s)} of a step that is "
        "more than chance.",
    )  # fmt: skip


def _told(
    pattern: Pattern, losses: list[_Loss], window: Sequence[StepFacts]
) -> Verdict:
    loss = losses[0]
    seconds = median([each.seconds for each in losses])
    own = median([each.own_s for each in losses])
    usual = median([each.usual_s for each in losses])
    where = f"in {len(losses)} of {len(window)} steps"
    match loss.cause:
        case "compute":
            text = (
                f"Rank {loss.rank} worked {_ms(own)} on its own {where}, the others "
                f"{_ms(usual)}, before it made its last call."
            )
        case "input":
            text = (
                f"Rank {loss.rank} waited {_ms(own)} for its data {where}, the others "
                f"{_ms(usual)}."
            )
        case "host stopped":
            text = (
                f"Nothing of rank {loss.rank} ran for {_ms(own)} {where}: neither its "
                "program nor the thread that looks at the clock."
            )
        case "network":
            text = (
                f"What rank {loss.rank} sends to rank {loss.peer} took {_pace(own)} "
                f"{where}, what goes other ways {_pace(usual)}: the link between both "
                "is slow, and nobody can tell at which end."
            )
        case "network out":
            text = (
                f"What rank {loss.rank} sends took {_pace(own)} {where} to each of the "
                f"others, among which it takes {_pace(usual)}."
            )
        case _:
            text = (
                f"What rank {loss.rank} receives took {_pace(own)} {where} from each "
                f"of the others, among which it takes {_pace(usual)}."
            )
    rank = None if loss.cause == "network" else loss.rank
    return Verdict(
        loss.cause, rank, pattern, seconds, window[0].step, window[-1].step, text
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _pace(seconds_per_byte: float) -> str:
    return f"{seconds_per_byte * 1e3 * (1 << 20):.3g} ms per MiB"
