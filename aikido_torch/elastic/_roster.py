# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Roster of an elastic job, and the decisions about the next roster.

Pure: no store, no clock, no threads. All members that hold the same roster and the same
facts decide the same.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Literal

from aikido_torch.elastic._stages import RELIABLE
from aikido_torch.errors import AbortedError, ConfigError

__all__ = ["JobEndsError", "Member", "Roster", "Survivors", "decide_survivors"]


class JobEndsError(AbortedError):
    """The job cannot continue with its present members, so that no retry helps."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A process of the job, for life.

    Attributes:
        number: number of its request to join; no other member of the job ever has it.
        role: "reliable" or "transient"; it never changes.
        handle: text by which other members find this member.
        host: name of its machine; a notice to one member of a host is for all of them.
        pid: id of its process on the host.
    """

    number: int
    role: str
    handle: str
    host: str = ""
    pid: int = 0

    @property
    def is_reliable(self) -> bool:
        """True if the member has a vote about the next roster."""
        return self.role == RELIABLE


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Members of the job in rank order, with a number that is never used again.

    Attributes:
        epoch: number of this roster; later rosters have larger numbers.
        members: in rank order.
    """

    epoch: int
    members: tuple[Member, ...]

    @property
    def leader(self) -> Member:
        """The first reliable member, which admits joining processes."""
        return next(member for member in self.members if member.is_reliable)

    @property
    def handles(self) -> list[str]:
        """Handles of all members in rank order."""
        return [member.handle for member in self.members]

    def find(self, number: int) -> Member | None:
        """The member with this number; None if it is not in the roster."""
        return next((m for m in self.members if m.number == number), None)

    def changed(
        self, epoch: int, *, without: Collection[int] = (), joins: Iterable[Member] = ()
    ) -> "Roster":
        """The next roster: the remaining members keep their order, new ones follow.

        Args:
            epoch: number of the next roster.
            without: numbers of members that leave or have died.
            joins: processes to admit.
        """
        rest = tuple(m for m in self.members if m.number not in without)
        return replace(self, epoch=epoch, members=(*rest, *joins))

    def encode(self) -> str:
        """Text of the roster, for the store."""
        return json.dumps(
            {"epoch": self.epoch, "members": [asdict(m) for m in self.members]}
        )

    @staticmethod
    def decode(text: str | bytes) -> "Roster":
        """The roster of a text.

        Raises:
            ConfigError: the text is not a roster of this version.
        """
        try:
            fields = json.loads(text)
            members = tuple(Member(**member) for member in fields["members"])
            return Roster(epoch=fields["epoch"], members=members)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"elastic: the store has a roster that this version cannot read "
                f"({error}); give the job an endpoint of its own."
            ) from None


@dataclass(frozen=True, kw_only=True)
class Survivors:
    """Decision about the members after deaths.

    Attributes:
        verdict: "wait" for further answers, "go" with `numbers`, or "stuck" for now
            because too few reliable members have answered.
        numbers: of the members of the next roster, if the verdict is "go".
        reason: one sentence for the log and for errors.
    """

    verdict: Literal["wait", "go", "stuck"]
    numbers: frozenset[int]
    reason: str


def decide_survivors(
    roster: Roster,
    answered: Collection[int],
    lost: Collection[int],
    waited_s: float,
    grace_s: float,
) -> Survivors:
    """Which members continue after a death.

    More than half of the reliable members of `roster` must have answered. Transient
    members have no vote, so all of them may vanish at once.

    Args:
        roster: the members before the death.
        answered: numbers of the members that have announced that they are alive.
        lost: numbers of the members whose connection to a living member broke.
        waited_s: seconds since the first announcement.
        grace_s: seconds after which members that have not answered are excluded.
    """
    alive = frozenset(m.number for m in roster.members if m.number in answered)
    voters = [m.number for m in roster.members if m.is_reliable]
    votes = len(alive.intersection(voters))
    pending = [m.number for m in roster.members if m.number not in (*alive, *lost)]
    if pending and waited_s < grace_s:
        return Survivors(
            verdict="wait",
            numbers=frozenset(),
            reason=f"members {pending} have not answered for {waited_s:.2f} s",
        )
    if 2 * votes <= len(voters):
        return Survivors(
            verdict="stuck",
            numbers=frozenset(),
            reason=(
                f"{votes} of {len(voters)} reliable members have answered, and more "
                "than half of the reliable members must"
            ),
        )
    return Survivors(
        verdict="go",
        numbers=alive,
        reason=(
            f"{len(alive)} of {len(roster.members)} members have answered, "
            f"{votes} of {len(voters)} reliable members among them"
        ),
    )
