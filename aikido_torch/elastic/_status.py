# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Status of an elastic job, as its leader writes it to the store.

Pure: `Goodput` makes it from the times of the session.
"""

import json
from dataclasses import asdict, dataclass

from aikido_torch.elastic._stages import RELIABLE, TRANSIENT, Stage, next_stage
from aikido_torch.errors import ConfigError

__all__ = ["Status", "StatusMember"]


@dataclass(frozen=True)
class StatusMember:
    """A member in a status.

    Attributes:
        number: number of the member, for life.
        role: "reliable" or "transient".
        host: name of its machine.
        pid: id of its process on the host.
    """

    number: int
    role: str
    host: str
    pid: int


@dataclass(frozen=True)
class Status:
    """Facts about a job at one step.

    Attributes:
        step: number of committed steps.
        epoch: epoch of the data.
        stage: stage of the job, 1 to 3.
        members: in rank order.
        steps_lost: failed attempts and steps that were rolled back.
        stall_s: seconds outside of committed steps, since the leader joined.
        elapsed_s: seconds since the leader joined.
        written_s: time of the status, in seconds since 1970.
    """

    step: int
    epoch: int
    stage: int
    members: tuple[StatusMember, ...]
    steps_lost: int
    stall_s: float
    elapsed_s: float
    written_s: float

    @property
    def goodput(self) -> float:
        """Part of the time that was spent in committed steps, from 0 to 1."""
        if self.elapsed_s <= 0:
            return 1.0
        return max(0.0, 1.0 - self.stall_s / self.elapsed_s)

    def number_of(self, role: str) -> int:
        """Number of members with this role."""
        return sum(member.role == role for member in self.members)

    @property
    def stage_reason(self) -> str:
        """One sentence: the stage that the ratio of the members asks for."""
        return next_stage(
            Stage(self.stage),
            reliable=self.number_of(RELIABLE),
            transient=self.number_of(TRANSIENT),
        ).reason

    def encode(self) -> str:
        """Text of the status, for the store."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> "Status":
        """The status of a text.

        Raises:
            ConfigError: the text is no status of this version.
        """
        try:
            fields = json.loads(text)
            members = tuple(StatusMember(**m) for m in fields.pop("members"))
            found = Status(members=members, **fields)
            Stage(found.stage)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"elastic: the store has a status that this version cannot read "
                f"({error}); use the version of the job."
            ) from None
        return found

    def rank_of(self, rank: int) -> StatusMember:
        """The member with this rank.

        Raises:
            ConfigError: there is no such rank.
        """
        if not 0 <= rank < len(self.members):
            raise ConfigError(
                f"elastic: there is no rank {rank}; the job has ranks 0 to "
                f"{len(self.members) - 1}."
            )
        return self.members[rank]

    def rows(self) -> list[tuple[str, ...]]:
        """Rank, member, role, host and process of each member, as texts."""
        return [
            (str(rank), str(m.number), m.role, m.host or "-", str(m.pid or "-"))
            for rank, m in enumerate(self.members)
        ]
