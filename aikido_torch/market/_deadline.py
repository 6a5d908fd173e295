# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Least expected cost of a job that is done by its deadline whatever happens.

The planner chooses between no machine, a spot machine and an on-demand machine. A
backward dynamic programme over (time, slack, machine, age of the present spell) gives
the expected cost of each choice under the survival model. A rule of safety limits the
choices first; see Note [deadline safety].

Note [deadline safety]
Problem: a spot machine can go at any time, and the deadline must hold all the same.
Let R be the seconds to the deadline, C the work left on an on-demand machine, o the
overhead left of the present launch, d the overhead of a launch, and g the time to the
next decision. A job is *safe* if R >= C + d, or if it runs on demand and R >= C + o.
Rule: choose no machine or a spot machine only if R - g >= C + d. Else choose on demand.
Proof by induction over decisions. The first state is safe, or the constructor refuses
the job. No machine or spot: the work left never grows, so R' = R - g >= C + d >= C' + d
after the step, even if the spot machine is lost with no progress. On demand: a running
launch takes o and C down second by second, so R' - C' - o' = R - C - o >= 0. A new
launch is made in a safe state, so R >= C + d, and then o = d. If on demand is not
interrupted, C reaches 0 while R >= 0. The proof needs no property of the spot market.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._errors import MarketError
from aikido_torch.market._survival import AGE_EDGES_S, age_class, transitions

__all__ = ["Choice", "DeadlineJob", "DeadlinePlanner", "JobState", "Machine"]

_FAR = 1e12  # cost of a state that must not occur


class Machine(IntEnum):
    """The machine that a job runs on."""

    NONE = 0
    SPOT = 1
    ON_DEMAND = 2


@dataclass(frozen=True, kw_only=True)
class DeadlineJob:
    """Work, deadline and prices of a job.

    Attributes:
        work_s: seconds of work on one machine of the job.
        deadline_s: seconds from the start to the deadline.
        overhead_s: seconds without progress after each launch of a machine.
        spot_usd_per_hour: price of a spot machine.
        on_demand_usd_per_hour: price of an on-demand machine.
    """

    work_s: float
    deadline_s: float
    overhead_s: float
    spot_usd_per_hour: float
    on_demand_usd_per_hour: float

    def __post_init__(self) -> None:
        if not self.work_s > 0:
            raise MarketError(f"work_s is {self.work_s}; a job has work above 0 s.")
        if not self.overhead_s >= 0:
            raise MarketError(f"overhead_s is {self.overhead_s}; it is at least 0 s.")
        for name in ("spot_usd_per_hour", "on_demand_usd_per_hour"):
            if not 0 <= getattr(self, name) < math.inf:
                raise MarketError(
                    f"{name} is {getattr(self, name)}; a price is at least 0."
                )
        if self.deadline_s < self.work_s + self.overhead_s:
            raise MarketError(
                f"The deadline is lost already: it comes in {self.deadline_s:g} s, and "
                f"an on-demand machine needs {self.overhead_s:g} s to start and "
                f"{self.work_s:g} s to work. Move the deadline, or use more machines."
            )


@dataclass(frozen=True, kw_only=True)
class JobState:
    """State of a job at a decision.

    Attributes:
        remaining_s: seconds to the deadline.
        work_left_s: seconds of work left.
        machine: the machine that runs now.
        overhead_left_s: seconds until the running machine makes progress.
        is_available: whether a spot machine can be used now.
        age_s: seconds since availability changed last.
        gap_s: seconds to the next decision.
    """

    remaining_s: float
    work_left_s: float
    machine: Machine
    overhead_left_s: float
    is_available: bool
    age_s: float
    gap_s: float

    @classmethod
    def start(
        cls,
        job: DeadlineJob,
        *,
        remaining_s: float,
        gap_s: float,
        is_available: bool = True,
        age_s: float = 0.0,
    ) -> "JobState":
        """State without a machine and with all work left."""
        return cls(
            remaining_s=remaining_s,
            work_left_s=job.work_s,
            machine=Machine.NONE,
            overhead_left_s=0.0,
            is_available=is_available,
            age_s=age_s,
            gap_s=gap_s,
        )


@dataclass(frozen=True)
class Choice:
    """The machine to use until the next decision.

    Attributes:
        machine: the machine.
        reason: one sentence for the log.
        usd: expected cost to the end of the job of each allowed machine.
    """

    machine: Machine
    reason: str
    usd: dict[Machine, float]


def is_safe(job: DeadlineJob, state: JobState) -> bool:
    """True if the job may be without an on-demand machine until the next decision."""
    after = state.remaining_s - state.gap_s
    return after >= state.work_left_s + job.overhead_s - 1e-6


class DeadlinePlanner:
    """Chooses machines for one job; see the text of the module.

    Pure: equal states give equal choices. `learn` replaces the survival model. Memory
    is about 30 MB, and `learn` takes some tenths of a second.
    """

    def __init__(
        self,
        job: DeadlineJob,
        hazards: NDArray[np.float64],
        *,
        moves_per_s: float = 0.0,
        max_steps: int = 420,
    ) -> None:
        """Plans for `job`.

        Args:
            hazards: of `Survival.hazards`.
            moves_per_s: losses of a spot machine per second while another region has
                capacity. Each of them costs a launch.
            max_steps: steps of time in the dynamic programme.
        """
        self._job = job
        self._max_steps = max_steps
        self.learn(hazards, job.deadline_s, moves_per_s=moves_per_s)

    def learn(
        self,
        hazards: NDArray[np.float64],
        remaining_s: float,
        *,
        moves_per_s: float = 0.0,
    ) -> None:
        """Computes the expected costs anew for the time that remains."""
        job = self._job
        step = max(remaining_s / self._max_steps, 60.0)
        parts = max(1, round(job.overhead_s / step * 3)) if job.overhead_s > 0 else 1
        unit = job.overhead_s / parts if job.overhead_s > 0 else step / 3
        jump = max(1, round(step / unit))
        self._unit_s, self._step_s = unit, jump * unit
        self._launch = parts if job.overhead_s > 0 else 0
        self._num_steps = math.ceil(remaining_s / self._step_s) + 1
        self._costs = self._backward(hazards, jump, moves_per_s)

    def decide(self, state: JobState) -> Choice:
        """The machine for the time until the next decision."""
        job = self._job
        if state.work_left_s <= 0:
            return Choice(Machine.NONE, "The work is done.", {Machine.NONE: 0.0})
        usd = self._expected(state)
        if not is_safe(job, state):
            slack = state.remaining_s - state.work_left_s
            reason = (
                f"On demand until the end: the slack of {slack:.0f} s is not above the "
                f"launch of {job.overhead_s:g} s and the {state.gap_s:g} s to the next "
                "decision."
            )
            only = {Machine.ON_DEMAND: usd.get(Machine.ON_DEMAND, math.nan)}
            return Choice(Machine.ON_DEMAND, reason, only)
        best = min(usd, key=lambda machine: (usd[machine], machine != state.machine))
        others = ", ".join(
            f"{machine.name.lower()} {cost:.2f} USD"
            for machine, cost in usd.items()
            if machine != best
        )
        name = best.name.lower()
        reason = f"{name}: expected cost to the end {usd[best]:.2f} USD; {others}."
        return Choice(best, reason, usd)

    def _expected(self, state: JobState) -> dict[Machine, float]:
        n = len(AGE_EDGES_S)
        spell = age_class(state.age_s) + (n if state.is_available else 0)
        running = state.remaining_s - state.work_left_s - state.overhead_left_s
        found = {}
        for machine in Machine:
            if machine == Machine.SPOT and not state.is_available:
                continue
            slack = running
            if machine == Machine.NONE:
                slack = state.remaining_s - state.work_left_s
            elif machine != state.machine:
                slack = state.remaining_s - state.work_left_s - self._job.overhead_s
            found[machine] = self._at(machine, spell, slack, state.remaining_s)
        return found

    def _at(self, machine: Machine, spell: int, slack: float, left: float) -> float:
        """Expected cost, linear between the points of the grid."""
        time = min(max(left / self._step_s, 0.0), self._num_steps - 1.0)
        low = int(time)
        high = min(low + 1, self._num_steps - 1)
        place = max(slack, 0.0) / self._unit_s
        grid = self._costs[:, machine, spell]
        left_cost = _between(grid[low], place)
        return left_cost + (time - low) * (_between(grid[high], place) - left_cost)

    def _backward(
        self, hazards: NDArray[np.float64], jump: int, moves_per_s: float
    ) -> NDArray[np.float32]:
        """Costs by (steps to the deadline, machine, spell, slack in units)."""
        job, step, launch = self._job, self._step_s, self._launch
        table = transitions(hazards, step).astype(np.float32)
        n = len(AGE_EDGES_S)
        most = job.deadline_s - job.work_s
        size = math.ceil(most / self._unit_s) + 2
        slack_s = np.arange(size, dtype=np.float32) * np.float32(self._unit_s)
        hour = step / 3600
        moved = np.float32(1.0 - math.exp(-moves_per_s * step))
        costs = np.zeros((self._num_steps, 3, 2 * n, size), np.float32)
        best = np.zeros((3, 2 * n, size), np.float32)  # by the machine that runs
        for index in range(self._num_steps):
            work = index * step - slack_s
            part = np.clip(work / step, 0.0, 1.0)
            if index:
                ahead = np.einsum("ij,mjs->mis", table, best)
                on_demand = ahead[2] + part * (job.on_demand_usd_per_hour * hour)
                relaunched = _later(best[1], launch)
                after = best[1] + moved * (relaunched - best[1])
                lost = np.concatenate([best[0][:n], after[n:]])
                spot = table @ lost + part * (job.spot_usd_per_hour * hour)
                spot[:n] = _FAR
                none = _later(ahead[0], jump)
                costs[index] = np.stack([none, spot, on_demand])
                costs[index][:, :, work <= 0] = 0.0
            now = costs[index]
            start_spot, start_on_demand = _later(now[1], launch), _later(now[2], launch)
            start = np.minimum(start_spot, start_on_demand)
            best = np.stack(
                [
                    np.minimum(now[0], start),
                    np.minimum(np.minimum(now[0], now[1]), start_on_demand),
                    np.minimum(np.minimum(now[0], now[2]), start_spot),
                ]
            )
            best[:, :, work <= 0] = 0.0
        return costs


def _later(costs: NDArray[np.float32], units: int) -> NDArray[np.float32]:
    """Costs with `units` less slack."""
    if units == 0:
        return costs
    moved = np.full_like(costs, _FAR)
    if units < costs.shape[-1]:
        moved[..., units:] = costs[..., :-units]
    return moved


def _between(row: NDArray[np.float32], place: float) -> float:
    low = min(int(place), len(row) - 1)
    high = min(low + 1, len(row) - 1)
    if row[low] >= _FAR / 2:
        return float(row[low])
    return float(row[low] + (place - low) * (row[high] - row[low]))
