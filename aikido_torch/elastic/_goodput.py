# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Useful time of a job, and its steps that were lost. Pure: times are arguments."""

from collections.abc import Sequence

from aikido_torch.elastic._roster import Member
from aikido_torch.elastic._status import Status, StatusMember

__all__ = ["Goodput"]


class Goodput:
    """Times of one member, as the base of a status. For one thread.

    Args:
        now_s: present time of a monotonic clock, in seconds.
    """

    def __init__(self, now_s: float) -> None:
        self._begin_s = now_s
        self._step_begin_s: float | None = None
        self._useful_s = 0.0
        self.steps_lost = 0

    def begin_step(self, now_s: float) -> None:
        """An attempt begins; an earlier one without `commit` is lost."""
        self.steps_lost += self._step_begin_s is not None
        self._step_begin_s = now_s

    def commit(self, now_s: float) -> None:
        """The step is committed; the time since its begin counts as useful."""
        if self._step_begin_s is not None:
            self._useful_s += now_s - self._step_begin_s
        self._step_begin_s = None

    def roll_back(self, steps: int = 1) -> None:
        """Committed steps are lost."""
        self.steps_lost += steps

    def status(
        self,
        members: Sequence[Member],
        *,
        step: int,
        epoch: int,
        stage: int,
        now_s: float,
        wall_s: float,
    ) -> Status:
        """Status of the job between two steps.

        Args:
            members: in rank order.
            step, epoch, stage: as in `Status`.
            now_s: present time of the monotonic clock.
            wall_s: present time in seconds since 1970.
        """
        elapsed_s = now_s - self._begin_s
        return Status(
            step=step,
            epoch=epoch,
            stage=stage,
            members=tuple(
                StatusMember(m.number, m.role, m.host, m.pid) for m in members
            ),
            steps_lost=self.steps_lost,
            stall_s=elapsed_s - self._useful_s,
            elapsed_s=elapsed_s,
            written_s=wall_s,
        )
