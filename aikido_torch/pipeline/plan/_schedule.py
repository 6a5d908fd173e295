# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Schedules of pipelines; csrc/pipeline has the method.

Sources: gpipe (Huang et al. 2019), 1f1b and 1f1b_async (PipeDream, Narayanan et al.
2019), interleaved_1f1b (Narayanan et al. 2021), zero_bubble (ZB-H1, Qi et al. 2023).
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.console import Console

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan._arguments import (
    flag,
    number,
    numbers,
    sequence,
    string,
    whole,
    wholes,
)
from aikido_torch.pipeline.plan._place import placed, ranks_of
from aikido_torch.pipeline.plan._plot import plot_schedule
from aikido_torch.pipeline.plan._show_schedule import show_schedule

__all__ = ["Schedule", "schedule"]

Name = Literal["gpipe", "1f1b", "1f1b_async", "interleaved_1f1b", "zero_bubble"]
Weights = Literal["flush", "stash", "vertical_sync", "2bw"]


class Schedule:
    """The instructions of each rank of a pipeline, in order.

    Made by `schedule`, or read from text by `Schedule.parse`.
    """

    def __init__(
        self, native: _C.Schedule, options: Mapping[str, Any] | None = None
    ) -> None:
        self._native = native
        self._options = dict(options or {})

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Reads the text form, `text()`.

        The schedule need not be valid; see `validate`.

        Raises:
            ConfigError: the text has another form; the error names line and word.
        """
        return cls(_C.Schedule.parse(string("text", text, example="that of `text()`")))

    @property
    def name(self) -> str:
        """Name of the schedule, as passed to `schedule` or as in the text."""
        return self._native.name

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches of a run."""
        return self._native.num_micro_batches

    @property
    def weights(self) -> str:
        """Version of the weights of a micro-batch: flush, stash, vertical_sync or
        2bw.
        """
        return self._native.weights

    @property
    def stages(self) -> list[list[int]]:
        """For each stage the ranks that have it, which are its replicas."""
        return self._native.stages

    @property
    def ranks(self) -> list[list[_C.Instruction]]:
        """The instructions of each rank, in order."""
        return self._native.ranks

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `schedule`; empty for a schedule that was read from text."""
        return dict(self._options)

    def remade(self, **changes: Any) -> "Schedule":
        """The same schedule with other values of some arguments of `schedule`.

        Raises:
            ConfigError: it was read from text; or as `schedule`.
        """
        if not self._options:
            raise ConfigError(
                "a schedule that was read from text has no options; make it by "
                "pipeline.schedule."
            )
        return schedule(**(self._options | changes))

    def text(self) -> str:
        """The text form, which `parse` reads."""
        return self._native.text()

    def __eq__(self, other: object) -> bool:
        """True if all ranks have the same instructions, however the schedules were
        made.
        """
        if not isinstance(other, Schedule):
            return NotImplemented
        return self._native == other._native

    def __hash__(self) -> int:
        return hash(self._native)

    def __repr__(self) -> str:
        return (
            f"<Schedule {self.name}, {len(self.stages)} stages, "
            f"{self.micro_batches} micro-batches>"
        )

    def validate(self, *, max_activations: int | None = None) -> _C.Validation:
        """Checks that the schedule can be executed and uses the promised weights.

        Args:
            max_activations: limit of micro-batches whose activations a rank keeps; None
                is no limit.

        Returns:
            The most micro-batches that each rank keeps, and the staleness of updates.

        Raises:
            ConfigError: it is invalid; the text names rank, instruction and reason, and
                `rank` of the error is that rank.
        """
        if max_activations is not None:
            max_activations = whole("max_activations", max_activations, least=1)
        return self._native.validate(max_activations)

    def simulate(
        self,
        *,
        forward: float | Sequence[float] = 1.0,
        backward: float | Sequence[float] | None = None,
        input_gradient: float | Sequence[float] | None = None,
        weight_gradient: float | Sequence[float] | None = None,
        recompute: float | Sequence[float] | None = None,
        reduce: float | Sequence[float] = 0.0,
        step: float | Sequence[float] = 0.0,
        links: float | Sequence[float] = 0.0,
        slowdown: Mapping[int, float] | Sequence[float] = (),
    ) -> _C.Simulation:
        """Simulates the schedule. Times are in any unit; one number is that of all
        stages.

        Args:
            forward: time of one micro-batch on one rank.
            backward: None is twice the forward.
            input_gradient: the first half of a backward; None is half of it.
            weight_gradient: the second half; None is the remainder of the backward.
            recompute: None is the forward.
            reduce: time from the last replica's gradients to their sum.
            step: time of an optimizer step.
            links: time of a transfer between a stage and the next, per direction.
            slowdown: factors on the computation of ranks: of each rank, or of some by
                rank.

        Raises:
            ConfigError: the schedule is invalid, a time is negative, or the number of
                values is not that of stages, links or ranks.
        """
        stages = len(self.stages)
        forwards = _each(forward, stages, "forward")
        backwards = (
            [2 * time for time in forwards]
            if backward is None
            else _each(backward, stages, "backward")
        )
        inputs = (
            [time / 2 for time in backwards]
            if input_gradient is None
            else _each(input_gradient, stages, "input_gradient")
        )
        weights = (
            [max(0.0, backwards[s] - inputs[s]) for s in range(stages)]
            if weight_gradient is None
            else _each(weight_gradient, stages, "weight_gradient")
        )
        again = forwards if recompute is None else _each(recompute, stages, "recompute")
        sums = _each(reduce, stages, "reduce")
        steps = _each(step, stages, "step")
        times = [
            _C.StageTimes(
                forward=forwards[s],
                backward=backwards[s],
                input_gradient=inputs[s],
                weight_gradient=weights[s],
                recompute=again[s],
                reduce=sums[s],
                step=steps[s],
            )
            for s in range(stages)
        ]
        return self._native.simulate(
            times, _each(links, stages - 1, "links"), self._factors(slowdown)
        )

    def _factors(self, slowdown: Mapping[int, float] | Sequence[float]) -> list[float]:
        if not isinstance(slowdown, Mapping):
            return numbers("slowdown", sequence("slowdown", slowdown))
        factors = [1.0] * len(self.ranks)
        for rank, factor in slowdown.items():
            if not 0 <= whole("slowdown", rank) < len(factors):
                raise ConfigError(
                    f"slowdown names rank {rank}; the schedule has {len(factors)} "
                    "ranks, from 0 on."
                )
            factors[rank] = number("slowdown", factor)
        return factors

    def grid(
        self,
        simulation: _C.Simulation | None = None,
        *,
        slot: float | None = None,
        max_slots: int = 1000,
    ) -> str:
        """Text with ranks as rows, time slots as columns, and the computation in each
        cell.

        Args:
            simulation: a result of `simulate`; None assumes one time unit for a forward
                and two for a backward.
            slot: time of a column; None is the shortest time of any computation.
            max_slots: later slots are cut off.
        """
        max_slots = whole("max_slots", max_slots, least=1)
        if slot is not None and not number("slot", slot) > 0:
            raise ConfigError(f"slot is {slot}; it takes a time above 0.")
        return self._native.grid(
            simulation or self.simulate(),
            0.0 if slot is None else number("slot", slot),
            max_slots,
        )

    def show(
        self,
        simulation: _C.Simulation | None = None,
        *,
        console: Console | None = None,
        max_slots: int = 1000,
    ) -> None:
        """Prints the grid, and the activations and idle time of each rank."""
        simulation = simulation or self.simulate()
        show_schedule(
            self._native,
            self.validate(),
            simulation,
            grid=self.grid(simulation, max_slots=max_slots),
            console=console or Console(),
        )

    def plot(
        self,
        path: str | os.PathLike[str],
        simulation: _C.Simulation | None = None,
    ) -> None:
        """Draws the schedule over time into a file: .png, .svg or .pdf. Needs
        matplotlib.

        Raises:
            UnsupportedError: matplotlib is not installed.
            ConfigError: the file type is not supported.
        """
        plot_schedule(self._native, simulation or self.simulate(), path)


def schedule(
    name: Name,
    *,
    stages: int | _C.Plan,
    micro_batches: int,
    replicas: Sequence[int] | None = None,
    stages_per_rank: int = 1,
    weights: Weights | None = None,
    micro_batches_per_step: int | None = None,
    turns: Sequence[Sequence[int]] | None = None,
    warmups: Sequence[int] | None = None,
    recompute: bool = False,
    overlap_sums: bool = False,
) -> Schedule:
    """Makes a schedule by its name.

    Args:
        name: "gpipe", "1f1b", "zero_bubble" and "interleaved_1f1b" flush: one step at
            the end. "1f1b_async" continues while gradients are applied.
            "interleaved_1f1b" has several stages on each rank, "zero_bubble" may have.
        stages: number of stages, or a plan of `partition` with machines as replicas.
            If the plan has several levels, ranks are numbered group by group, not stage
            by stage.
        micro_batches: number of micro-batches of a run.
        replicas: number of ranks of each stage, which take micro-batches in turns; None
            is one each. They need not divide each other. For gpipe, 1f1b and
            1f1b_async.
        stages_per_rank: for interleaved_1f1b and zero_bubble: stage s is on rank s mod
            (stages / stages_per_rank).
        weights: for 1f1b_async: "stash", "vertical_sync" or "2bw"; None is "stash".
        micro_batches_per_step: for 1f1b_async: micro-batches of one update. None: with
            stash one per replica; with vertical_sync the fewest that all replicas share
            equally; with 2bw the fewest that divide micro_batches and are not fewer
            than those in progress.
        turns: for gpipe and 1f1b, by stage: a repeated sequence of replicas that take
            the micro-batches: [[0, 0, 1], [0]] gives replica 1 of stage 0 a third. None
            is each replica once.
        warmups: for 1f1b and 1f1b_async, by stage: forwards before the first backward;
            None is the fewest with which replicas run at full pace.
        recompute: True computes activations again before the backward instead of
            keeping them.
        overlap_sums: for 1f1b_async with stash: a replica goes on with its next
            micro-batch while gradients are added up, so its weights are one update
            older. Cost model "paper" assumes that.

    Raises:
        ConfigError: a value is out of its range or does not fit the others.
    """
    options = locals()
    ranks: list[list[int]] | None = None
    if isinstance(stages, _C.Plan):
        machines = [stage.machines for stage in stages.stages]
        if replicas is None and any(count > 1 for count in machines):
            replicas = machines
            ranks = ranks_of(stages.text)
        stages = len(machines)
    per_step = micro_batches_per_step
    made = _C.Schedule.make(
        string("name", name, example="'1f1b'"),
        stages=whole("stages", stages),
        micro_batches=whole("micro_batches", micro_batches),
        replicas=_wholes_or_none("replicas", replicas),
        stages_per_rank=whole("stages_per_rank", stages_per_rank),
        weights=None
        if weights is None
        else string("weights", weights, example="'stash'"),
        micro_batches_per_step=None
        if per_step is None
        else whole("micro_batches_per_step", per_step),
        turns=[
            wholes("turns", of_stage)
            for of_stage in sequence("turns", () if turns is None else turns)
        ],
        warmups=_wholes_or_none("warmups", warmups),
        recompute=flag("recompute", recompute),
        overlap_sums=flag("overlap_sums", overlap_sums),
    )
    if ranks is not None and ranks != made.stages:
        made = placed(made, ranks)
    return Schedule(made, options)


def _wholes_or_none(name: str, values: Sequence[int] | None) -> list[int]:
    return [] if values is None else wholes(name, sequence(name, values))


def _each(value: float | Sequence[float], count: int, name: str) -> list[float]:
    values = numbers(name, value)
    for time in values:
        if not 0 <= time < math.inf:
            raise ConfigError(f"{name} has {time:g}; it takes finite times from 0 up.")
    if not isinstance(value, Sequence) and len(values) == 1:
        return values * count
    if len(values) != count:
        of = "link" if name == "links" else "stage"
        raise ConfigError(
            f"{name} has {len(values)} times; it takes one for each of {count} {of}s, "
            "or one number for all."
        )
    return values
