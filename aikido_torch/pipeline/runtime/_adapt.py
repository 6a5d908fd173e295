# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Choice of the schedule that suits the present times of stages and links.

Pure: it is fed with times and `now`, and answers with a schedule and the reason. The
pipeline switches between two runs, when nothing is in progress (`_runtime.py`). All
ranks feed the same values, so all decide the same.

Note [what adapts]
Warm-ups: a stage with more micro-batches in progress has work while a slow link or a
slow stage delays others, but keeps more activations. With a flush this changes no
result, because each rank does its backwards in the same order. Without a flush, weights
get staler.

Turns: a slow replica of a stage gets fewer micro-batches. Only a flush allows that.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan._arguments import number, whole
from aikido_torch.pipeline.plan._schedule import Schedule
from aikido_torch.pipeline.runtime._observe import LiveTimes

__all__ = ["Adapt", "Adapter", "Change", "fitting_schedule", "micro_batch_seconds"]

# A schedule whose time is within this factor of the fastest counts as equally fast.
_NEARLY = 1.01
# Slowdown factor from which a replica counts as slow.
_SLOW = 1.1


@dataclass(frozen=True, kw_only=True)
class Adapt:
    """Limits within which a `Pipeline` adapts its schedule, and how often.

    Args:
        every: number of runs of the schedule between two decisions; the last of them is
            measured.
        max_activations: limit of micro-batches whose activations a rank keeps; None is
            all micro-batches of the schedule.
        min_gain: least gain of another schedule, as a share of the time.
        patience_s: seconds for which fewer activations must have been enough before the
            pipeline returns to them.

    Raises:
        ConfigError: a value is out of its range.
    """

    every: int = 4
    max_activations: int | None = None
    min_gain: float = 0.05
    patience_s: float = 30.0

    def __post_init__(self) -> None:
        whole("every", self.every, least=1, example="4")
        limit = self.max_activations
        if limit is not None and whole("max_activations", limit) < 1:
            raise ConfigError(
                f"max_activations is {self.max_activations}; it takes 1 or more, or "
                "None."
            )
        if not 0 <= number("min_gain", self.min_gain) < 1:
            raise ConfigError(
                f"min_gain is {self.min_gain}; it takes a share from 0 to below 1."
            )
        if not number("patience_s", self.patience_s) >= 0:
            raise ConfigError(f"patience_s is {self.patience_s}; it takes 0 or more.")


@dataclass(frozen=True)
class Change:
    """Another schedule, and the reason for it."""

    schedule: Schedule
    reason: str


class Adapter:
    """Decisions for one pipeline.

    Args:
        schedule: the first schedule, of `pipeline.schedule("1f1b" or "1f1b_async")`.
        adapt: the limits.

    Raises:
        ConfigError: the schedule has another name, or exceeds `max_activations`.
    """

    def __init__(self, schedule: Schedule, adapt: Adapt) -> None:
        if schedule.options.get("name") not in ("1f1b", "1f1b_async"):
            raise ConfigError(
                f"adapt is given, and the schedule is {schedule.name}, or was read "
                "from text; those that adapt are made by pipeline.schedule as 1f1b or "
                "1f1b_async."
            )
        schedule.validate(max_activations=adapt.max_activations)
        self.schedule = schedule
        self._first = schedule
        self._adapt = adapt
        self._times: LiveTimes | None = None
        self._enough_since: float | None = None

    def on_times(self, times: LiveTimes) -> None:
        """Stores the latest measured times."""
        self._times = times

    def decide(self, now: float) -> Change | None:
        """The schedule that suits the last times better; None if there is none.

        The returned schedule is assumed to be in use from now on.
        """
        if self._times is None:
            return None
        times, self._times = self._times, None
        before = micro_batch_seconds(self.schedule, times)
        found = fitting_schedule(self._first, times, self._adapt.max_activations)
        after = micro_batch_seconds(found, times)
        if after <= before * (1 - self._adapt.min_gain):
            why = "faster"
        elif _held(found) < _held(self.schedule) and after <= before * _NEARLY:
            if self._enough_since is None:
                self._enough_since = now
            if now - self._enough_since < self._adapt.patience_s:
                return None
            why = "as fast with fewer activations"
        else:
            self._enough_since = None
            return None
        self._enough_since = None
        change = Change(found, _told(self.schedule, found, why, before, after, times))
        self.schedule = found
        return change


def fitting_schedule(
    first: Schedule, times: LiveTimes, max_activations: int | None = None
) -> Schedule:
    """The same schedule with the fastest warm-ups and turns.

    Among schedules within 1 % of the fastest, the one with the fewest activations wins.
    """
    base = _with_turns(first, times)
    found = [(micro_batch_seconds(base, times), base)]
    for warmups in sorted(_candidates(base, times, max_activations)):
        try:
            schedule = base.remade(warmups=list(warmups))
            schedule.validate(max_activations=max_activations)
        # The schedule keeps too many activations, or its ranks would wait for each
        # other.
        except ConfigError:
            continue
        found.append((micro_batch_seconds(schedule, times), schedule))
    fastest = min(seconds for seconds, _ in found)
    good = [schedule for seconds, schedule in found if seconds <= fastest * _NEARLY]
    return min(good, key=_held)


def micro_batch_seconds(schedule: Schedule, times: LiveTimes) -> float:
    """Seconds from one micro-batch to the next, by simulation with these times."""
    simulation = schedule.simulate(
        forward=times.forward,
        backward=times.backward,
        links=times.links if times.links else 0.0,
        slowdown=times.slowdown,
    )
    if simulation.period is not None:
        return simulation.period
    return simulation.makespan / schedule.micro_batches


def _candidates(
    schedule: Schedule, times: LiveTimes, max_activations: int | None
) -> set[tuple[int, ...]]:
    """Candidate warm-ups, which hide messages at several paces.

    A stage keeps as many micro-batches as the next stage, and one for each of its
    replicas. It adds the number of periods of a message to the next stage and back
    (csrc/pipeline/order.h has the rule without messages).
    """
    replicas = [len(ranks) for ranks in schedule.stages]
    most = schedule.micro_batches - 1
    if max_activations is not None and not schedule.options["recompute"]:
        most = min(most, max_activations - 1)
    own = _warmups_of(schedule)
    stages = zip(times.forward, times.backward, replicas, strict=True)
    pace = max([*times.links, *((f + b) / r for f, b, r in stages)])
    if pace <= 0:
        return set()
    found = set()
    for slower, more in itertools.product((1.0, 1.1, 1.25, 1.5, 2.0, 3.0), range(3)):
        hidden = [math.ceil(2 * t / (pace * slower) - 1e-9) for t in times.links]
        warmups = own[:]
        for s in reversed(range(len(own) - 1)):
            held = replicas[s + 1] * (warmups[s + 1] + 1)
            under_way = hidden[s] + (more if hidden[s] else 0)
            needed = math.ceil((held + under_way) / replicas[s])
            warmups[s] = max(own[s], min(needed, most))
        found.add(tuple(warmups))
    return found - {tuple(own)}


def _with_turns(schedule: Schedule, times: LiveTimes) -> Schedule:
    """Gives each micro-batch of a stage to the replica that would finish it first."""
    if schedule.weights != "flush" or max(times.slowdown) < _SLOW:
        return schedule
    turns = []
    for ranks in schedule.stages:
        done = [0.0] * len(ranks)
        of_stage = []
        for _ in range(schedule.micro_batches):
            ends = [at + times.slowdown[r] for at, r in zip(done, ranks, strict=True)]
            taker = ends.index(min(ends))
            done[taker] = ends[taker]
            of_stage.append(taker)
        turns.append(of_stage)
    try:
        dealt = schedule.remade(turns=turns)
    except ConfigError:  # a replica is so slow that it would get no micro-batch
        return schedule
    faster = micro_batch_seconds(dealt, times) < micro_batch_seconds(schedule, times)
    return dealt if faster else schedule


def _warmups_of(schedule: Schedule) -> list[int]:
    """Number of forwards of each stage before its first backward, minus one."""
    found = []
    for stage, ranks in enumerate(schedule.stages):
        count = 0
        for it in schedule.ranks[ranks[0]]:
            if it.stage != stage:
                continue
            if it.kind == "backward":
                break
            count += it.kind == "forward"
        found.append(count - 1)
    return found


def _held(schedule: Schedule) -> int:
    memory = schedule.validate().ranks
    return sum(rank.activations + rank.inputs for rank in memory)


def _told(
    before: Schedule,
    after: Schedule,
    why: str,
    old_s: float,
    new_s: float,
    times: LiveTimes,
) -> str:
    parts = [
        f"warm-ups {_list(_warmups_of(before))} become {_list(_warmups_of(after))}"
    ]
    if before.options.get("turns") != after.options.get("turns"):
        slow = [f"{r}" for r, factor in enumerate(times.slowdown) if factor >= _SLOW]
        parts.append(f"turns follow how slow ranks {', '.join(slow) or 'none'} are")
    links = _list(f"{1e3 * link:.1f}" for link in times.links)
    return (
        f"{', '.join(parts)}, {why}: {1e3 * new_s:.1f} ms a micro-batch after "
        f"{1e3 * old_s:.1f} ms, with links of {links or 'no'} ms"
    )


def _list(values: Iterable[object]) -> str:
    return " ".join(map(str, values))
