# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One training: plain values, no torch, equal for all ranks."""

import dataclasses
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass

# Steps without a late rank: DistributedDataParallel builds its final buckets, and
# deadlines are learnt, as before the faults in the cases of straggler.py.
WELL_STEPS = 20
BATCH = 32  # samples of one rank in a step
PLAN_FILE = "plan.json"  # in the folder of the ranks


@dataclass(frozen=True, kw_only=True)
class Training:
    """Steps of the first ranks, while the other ranks wait."""

    name: str
    steps: int
    primaries: int = 4
    backups: int = 0  # the ranks after the primaries
    # Mode of ActiveBackup; "skip" and "strict" are the other policies, without backups.
    mode: str = "shadow"
    task: str = "digits"  # or "flat": one vector of num_bytes
    num_bytes: int = 0
    seed: int = 0
    step_ms: float = 0.0  # least duration of a step on every rank
    late: tuple[int, ...] = ()  # primaries that are late in some steps
    late_share: float = 0.0  # share of their steps from WELL_STEPS on
    late_ms: float = 0.0
    # Mbit/s, up and down, of hosts whose link changes after WELL_STEPS.
    links: dict[int, float] = dataclasses.field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.primaries + self.backups

    def late_steps(self, rank: int) -> list[bool]:
        """For each step, whether that rank is late: a fixed share, placed by the
        seed.
        """
        well = min(WELL_STEPS, self.steps)
        if rank not in self.late:
            return [False] * self.steps
        steps = range(well, self.steps)
        draw = random.Random(f"{self.seed} {rank}")
        late = set(draw.sample(steps, round(len(steps) * self.late_share)))
        return [step in late for step in range(self.steps)]


def to_json(trainings: Iterable[Training]) -> str:
    return json.dumps([dataclasses.asdict(training) for training in trainings])


def from_json(text: str) -> list[Training]:
    found = []
    for row in json.loads(text):
        row["late"] = tuple(row["late"])
        row["links"] = {int(host): rate for host, rate in row["links"].items()}
        found.append(Training(**row))
    return found


def estimate_s(trainings: Iterable[Training]) -> float:
    """Rough estimate for the deadline of the ranks, with room for slow machines and
    links.
    """
    total = 30.0
    for training in trainings:
        bytes_s = training.num_bytes * training.size * 8e-6 / 200
        total += 5 + training.steps * (0.05 + training.step_ms / 1e3 + 2 * bytes_s)
    return total
