# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Plan of one run of the demo, from which every rank derives its work.

It does not import torch, because the process that starts the ranks imports it too.
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
    "reassign": "aikido",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """One run; equal in all modes except for `mode` and the backups."""

    mode: str  # "gloo", "wait_all", "skip", "backup" or "reassign"
    data: str  # file in the form that tasks.py writes
    steps: int
    seed: int
    delay_ms: float = 0.0  # milliseconds that the late rank sleeps
    late_share: float = 0.0  # share of its steps in which it is late, 0 to 1
    # Rate of every link, and of the late rank's uplink in the middle of the run. None:
    # there are no links, or the rate does not change.
    mbit: float | None = None
    slow_mbit: float | None = None
    num_ranks: int = 4  # ranks with data of their own
    num_backups: int = 0  # further ranks after these
    late_rank: int = 3
    task: str = "digits"  # see tasks.py
    batch_size: int = 32  # per rank and step
    micro_batches: int = 8  # per rank and step, in the mode "reassign"
    learning_rate: float = 0.05
    snapshot_steps: int = 5  # steps between two copies of the parameters on rank 0

    @property
    def size(self) -> int:
        """Number of all ranks."""
        return self.num_ranks + self.num_backups

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        return cls(**json.loads(text))


def late_steps(plan: Plan) -> np.ndarray:
    """For each step, whether the late rank is late: a fixed share, placed by the seed.

    By step and not by call, so all modes have the same late steps.
    """
    late = np.zeros(plan.steps, dtype=bool)
    late[: round(plan.steps * plan.late_share)] = True
    np.random.default_rng((plan.seed, 1)).shuffle(late)
    return late


def slow_steps(plan: Plan) -> range:
    """The steps in which the late rank's uplink is slow."""
    if plan.slow_mbit is None:
        return range(0)
    begin = round(0.3 * plan.steps)
    return range(begin, begin + round(0.3 * plan.steps))


def uplink_mbit(plan: Plan, step: int) -> float | None:
    """The rate of the late rank's uplink after `step` steps."""
    return plan.slow_mbit if step in slow_steps(plan) else plan.mbit


def steps_per_second(curve: Sequence[dict], steps: range) -> float | None:
    """Steps per second of rank 0 within `steps`, from the times of its copies.

    None if fewer than two copies were taken there.
    """
    within = [c for c in curve if steps.start <= c["step"] <= steps.stop]
    if len(within) < 2:
        return None
    first, last = within[0], within[-1]
    return (last["step"] - first["step"]) / (last["seconds"] - first["seconds"])


class ShardedBatches:
    """Endless batches of indices for one rank, shuffled again in every epoch.

    All ranks shuffle equally and take every n-th index, as DistributedSampler does.
    Indices that do not fill a batch on all ranks are dropped from the epoch. The
    position is a number, so a rank that has missed batches advances by skip() without
    reading data.
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
        """Advances as if `num_batches` had been taken."""
        if num_batches < 0:
            raise ValueError(f"cannot skip {num_batches} batches")
        self._position += num_batches
