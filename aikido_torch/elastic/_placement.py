# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Owners and background copies of the shards, by stage.

Pure: each member computes the same placement from the same roster, without a message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aikido_torch.elastic._stages import RELIABLE, Role, Stage, check_members
from aikido_torch.errors import ConfigError

__all__ = ["Placement", "Transfer", "place", "transfers"]


@dataclass(frozen=True)
class Placement:
    """Members that hold each shard.

    Attributes:
        owners: owner of each shard: this member holds and updates its state.
        copies: reliable member with the background copy of each shard. Without copies,
            in stage 1, the tuple is empty.
    """

    owners: tuple[str, ...]
    copies: tuple[str, ...] = ()

    def owned_by(self, member: str) -> tuple[int, ...]:
        """Shards of this owner, in ascending order."""
        return _shards_of(member, self.owners)

    def copied_by(self, member: str) -> tuple[int, ...]:
        """Shards whose copy this member holds, in ascending order."""
        return _shards_of(member, self.copies)


@dataclass(frozen=True)
class Transfer:
    """State of one shard that a member must receive before a placement is in force.

    Attributes:
        shard: number of the shard.
        source: the member that sends it; None if no living member has it.
        target: the member that receives it.
    """

    shard: int
    source: str | None
    target: str


def place(
    stage: Stage,
    roles: Mapping[str, Role],
    num_shards: int,
    *,
    previous: Placement | None = None,
    leaving: Sequence[str] = (),
) -> Placement:
    """Placement that is balanced and moves few shards.

    The numbers of shards of two owners differ by one at most. A shard stays where it is
    if the balance allows it. In stage 1 a shard without an owner goes to the reliable
    member that has its copy, if the balance allows it.

    Args:
        stage: stage of the job.
        roles: role by member, in rank order.
        num_shards: number of shards, at least 1.
        previous: present placement; its members may be gone.
        leaving: members with an eviction notice; they get no shard, unless all members
            that could own shards leave.

    Raises:
        ConfigError: there is no reliable member, or a number is wrong.
    """
    if num_shards < 1:
        raise ConfigError(f"elastic: there are {num_shards} shards; give 1 or more.")
    reliable = [m for m, role in roles.items() if role == RELIABLE]
    transient = [m for m, role in roles.items() if role != RELIABLE]
    check_members(len(reliable), len(transient))
    has_copies = stage != Stage.RELIABLE_OWNERS and bool(transient)
    owners = transient if has_copies else reliable
    staying = [m for m in owners if m not in leaving]
    wishes = _wishes(num_shards, previous, has_copies)
    placed = _balanced(staying or owners, num_shards, wishes)
    if not has_copies:
        return Placement(placed)
    holders = [m for m in reliable if m not in leaving] or reliable
    known = [[c] for c in previous.copies] if previous and previous.copies else None
    if previous and not previous.copies:  # owners of stage 1 have the state already
        known = [[owner] for owner in previous.owners]
    return Placement(placed, _balanced(holders, num_shards, known))


def transfers(
    new: Placement, previous: Placement, living: Sequence[str]
) -> tuple[Transfer, ...]:
    """State that members must receive, by shard, owners before copies.

    Args:
        new: placement that is to be in force.
        previous: placement in force.
        living: members that can send.
    """
    found = []
    for shard, owner in enumerate(new.owners):
        holders = [previous.owners[shard], *previous.copies[shard : shard + 1]]
        source = next((m for m in holders if m in living), None)
        if owner != previous.owners[shard]:
            # A copy may be older than the owner's state, so the owner sends first.
            is_own_copy = source == owner
            found += [] if is_own_copy else [Transfer(shard, source, owner)]
        if new.copies and new.copies[shard] not in holders:
            found.append(Transfer(shard, source, new.copies[shard]))
    return tuple(found)


def _wishes(
    num_shards: int, previous: Placement | None, has_copies: bool
) -> list[list[str]] | None:
    if previous is None:
        return None
    if len(previous.owners) != num_shards:
        raise ConfigError(
            f"elastic: the placement in force has {len(previous.owners)} shards, and "
            f"the new one has {num_shards}; the number of shards is fixed for a job."
        )
    copies = previous.copies if not has_copies else ()
    return [[previous.owners[s], *copies[s : s + 1]] for s in range(num_shards)]


def _balanced(
    members: Sequence[str], num_shards: int, wishes: Sequence[Sequence[str]] | None
) -> tuple[str, ...]:
    """A member for each shard; `wishes` has the preferred members by shard."""
    low, num_more = divmod(num_shards, len(members))
    of: dict[str, list[int]] = {member: [] for member in members}
    free = []
    for shard in range(num_shards):
        wanted = [m for m in (wishes[shard] if wishes else ()) if m in of]
        if wanted:
            of[wanted[0]].append(shard)
        else:
            free.append(shard)
    # Members with the most shards keep one more than the others.
    order = sorted(members, key=lambda m: (-len(of[m]), members.index(m)))
    quota = {m: low + (i < num_more) for i, m in enumerate(order)}
    for member in members:
        free += of[member][quota[member] :]
        del of[member][quota[member] :]
    placed = {shard: member for member, shards in of.items() for shard in shards}
    room = [m for m in members for _ in range(quota[m] - len(of[m]))]
    placed.update(zip(sorted(free), room, strict=True))
    return tuple(placed[shard] for shard in range(num_shards))


def _shards_of(member: str, members: Sequence[str]) -> tuple[int, ...]:
    return tuple(shard for shard, each in enumerate(members) if each == member)
