# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What one run of the demo does, in numbers that every rank derives by itself.

No torch here: the process that starts the ranks reads this too.
"""

import dataclasses
import json
from collections.abc import Sequence

import numpy as np

BACKENDS = {  # by mode
    "gloo": "gloo",
    "wait_all": "aikido",
    "skip": "aikido",
    "backup": "aikido",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """One run: the same in all modes but for `mode` itself, and its backups."""

    mode: str  # "gloo", "wait_all", "skip" or "backup"
    data: str  # file as tasks.py writes it
    steps: int
    seed: int
    delay_ms: float = 0.0  # how long the late rank sleeps
    late_share: float = 0.0  # in which share of its steps, 0 .. 1
    # Of every link, and of the late rank's uplink in the middle of the run; None: there
    # are no links, or it stays as it is.
    mbit: float | None = None
    slow_mbit: float | None = None
    num_ranks: int = 4  # that have data of their own
    num_backups: int = 0  # ranks behind these
    late_rank: int = 3
    task: str = "digits"  # see tasks.py
    batch_size: int = 32  # per rank and step
    learning_rate: float = 0.05
    snapshot_steps: int = 5  # rank 0 copies its parameters this often

    @property
    def size(self) -> int:
        """All ranks that run."""
        return self.num_ranks + self.num_backups

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        return cls(**json.loads(text))


def late_steps(plan: Plan) -> np.ndarray:
    """Whether the late rank is late, per step: a fixed share, spread by the seed.

    By step and not by call, so both modes meet the same bad luck.
    """
    late = np.zeros(plan.steps, dtype=bool)
    late[: round(plan.steps * plan.late_share)] = True
    np.random.default_rng((plan.seed, 1)).shuffle(late)
    return late


def slow_steps(plan: Plan) -> range:
    """The steps in which the late rank's uplink is slow; by step as well."""
    if plan.slow_mbit is None:
        return range(0)
    begin = round(0.3 * plan.steps)
    return range(begin, begin + round(0.3 * plan.steps))


def uplink_mbit(plan: Plan, step: int) -> float | None:
    """The rate that the late rank's uplink is to have once `step` steps are done."""
    return plan.slow_mbit if step in slow_steps(plan) else plan.mbit


def steps_per_second(curve: Sequence[dict], steps: range) -> float | None:
    """Of rank 0 within `steps`, by the steps and seconds of its copies.

    None: fewer than two copies were taken there.
    """
    within = [c for c in curve if steps.start <= c["step"] <= steps.stop]
    if len(within) < 2:
        return None
    first, last = within[0], within[-1]
    return (last["step"] - first["step"]) / (last["seconds"] - first["seconds"])


class ShardedBatches:
    """Endless batches of indices for one rank, shuffled afresh in every epoch.

    All ranks shuffle alike and take every n-th index, as DistributedSampler does; what
    does not fill a batch on all ranks is left out of the epoch. The position is a
    number, so a rank that was overtaken moves on with skip() and reads nothing.
    """

    def __init__(
        self, num_items: int, *, rank: int, num_ranks: int, batch_size: int, seed: int
    ):
        self.batches_per_epoch = num_items // (num_ranks * batch_size)
        if self.batches_per_epoch == 0:
            raise ValueError(
                f"{num_items} items do not fill one batch of {batch_size} on each of "
                f"{num_ranks} ranks; take a smaller batch."
            )
        self._num_items = num_items
        self._rank = rank
        self._num_ranks = num_ranks
        self._batch_size = batch_size
        self._seed = seed
        self._position = 0
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    def __iter__(self) -> "ShardedBatches":
        return self

    def __next__(self) -> np.ndarray:
        epoch, batch = divmod(self._position, self.batches_per_epoch)
        if epoch != self._epoch:
            generator = np.random.default_rng((self._seed, 2, epoch))
            order = generator.permutation(self._num_items)
            self._order = order[self._rank :: self._num_ranks]
            self._epoch = epoch
        self._position += 1
        start = batch * self._batch_size
        return self._order[start : start + self._batch_size]

    def skip(self, num_batches: int) -> None:
        """Goes on as if `num_batches` had been taken."""
        if num_batches < 0:
            raise ValueError(f"cannot skip {num_batches} batches")
        self._position += num_batches
