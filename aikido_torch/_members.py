# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""New members for an existing group, with every supported version of torch."""

from collections.abc import Iterable, Set
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist

from aikido_torch import _C
from aikido_torch._backend import backend_of
from aikido_torch.errors import ConfigError, UnsupportedError

# From torch 2.14 on, groups can change rank and size, and torch has functions for that.
_c10d: Any = dist.distributed_c10d
_IN_PLACE = hasattr(_c10d, "_reconfigure")


class Agreement(NamedTuple):
    """The members on which a group has agreed.

    Attributes:
        number: counts the agreements of the group, from 1. All ranks that get an
            agreement of this number get the same ranks.
        ranks: the members that are left, ascending, as ranks of the group.
    """

    number: int
    ranks: list[int]


def agree_members(
    group: dist.ProcessGroup | None = None,
    *,
    lost: Iterable[int] = (),
    timeout: timedelta | None = None,
) -> Agreement:
    """Agrees with the other ranks on the members that are left after deaths.

    Call it on each rank whose strict call has failed, for example with `PeerLostError`.
    Ranks that have not called it yet take part in the vote, too, and get the same
    agreement when they call. A rank that computes is left; a rank that is dead, stopped
    or cut off is not. A rank that dies after its answer may still be in the agreement:
    if the next group cannot be made, call this again.

    The vote needs more than half of the reliable ranks of the last view; in a group
    without reliable ranks, more than half of all ranks (option `role`). It takes about
    20 ms after the last death, and 100 ms more if a rank is stopped.

    Args:
        group: an aikido group; None is the default group.
        lost: ranks that seem to be dead, for example the `rank` of an error. They are
            asked again, and excluded if they do not answer.
        timeout: limit for the vote; None is the timeout of the group.

    Returns:
        The next agreement: the newest one that this rank has not returned yet, or a new
        one.

    Raises:
        PeerLostError: too few reliable ranks are left, or this rank is excluded.
        TimedOutError: too few reliable ranks have answered in time.
        AbortedError: the group has ended.
        ConfigError: an argument is wrong.
    """
    ranks = list(lost)
    for rank in ranks:
        if not isinstance(rank, int) or isinstance(rank, bool):
            raise ConfigError(
                f"agree_members: {rank!r} in lost is a {type(rank).__name__}; pass "
                "ranks of the group, as whole numbers."
            )
    _check_timeout("agree_members", timeout)
    return Agreement(*backend_of(group).agree_members(ranks, timeout))


def reconfigure_handle(group: dist.ProcessGroup | None = None) -> str:
    """Short text by which members of a later group find this member.

    It does not change during the life of the group object. A process with this text can
    join a group with this member, so give it to members only.

    Args:
        group: an aikido group; None is the default group.
    """
    return backend_of(group).handle()


def reconfigure(
    uuid: int,
    handles: list[str] | Set[str],
    *,
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | None = None,
) -> dist.ProcessGroup:
    """Connects a group to exactly the members with these handles.

    All these members call this with the same arguments. On success, calls in progress
    fail. On an error, the group is unchanged, and the next attempt needs another
    `uuid`.

    From torch 2.14 on this equals `torch.distributed._reconfigure(...).wait()`: rank
    and size of `group` change in place. With older versions a new object replaces the
    default group, and other groups cannot be reconfigured.

    Args:
        uuid: number of the attempt; no member may have used it before for this group.
        handles: of all members, including this one. A list is in rank order; with a
            set, aikido chooses the order.
        group: an aikido group; None is the default group.
        timeout: limit for all members to come; None is that of the group.

    Returns:
        The group to use from now on.

    Raises:
        ConfigError: an argument has the wrong type, a handle is invalid, the handle of
            this member is missing, or the uuid was already used.
        TimedOutError: members did not come; `rank` is one of them, in the new group.
        UnsupportedError: torch is too old for `group`.
    """
    _check(uuid, handles, timeout)
    backend = backend_of(group)
    target = group if group is not None else dist.group.WORLD
    if target is None:  # backend_of has raised already
        raise ConfigError("There is no process group yet.")
    if _IN_PLACE:
        given = set(handles) if isinstance(handles, Set) else handles
        _c10d._reconfigure(uuid, given, group=target, timeout=timeout).wait()
        return target
    if target != dist.group.WORLD:
        raise UnsupportedError(
            "reconfigure: with torch before 2.14 only the default group can get other "
            "members; make new groups of it afterwards."
        )
    is_ordered = not isinstance(handles, Set)
    backend.change_members(uuid, list(handles), is_ordered, timeout).wait()
    return _replace_default_group(target, backend)


def _check(uuid: object, handles: object, timeout: object) -> None:
    if not isinstance(uuid, int) or not -(2**63) <= uuid < 2**63:
        raise ConfigError(
            f"reconfigure: uuid is {uuid!r}; pass a whole number of 64 bits, the same "
            "on all members, that was not used before for this group."
        )
    if not isinstance(handles, (list, Set)):
        raise ConfigError(
            f"reconfigure: handles is a {type(handles).__name__}; pass a list or set "
            "of what aikido_torch.reconfigure_handle() gave on each member."
        )
    for handle in handles:
        if not isinstance(handle, str):
            raise ConfigError(
                f"reconfigure: {handle!r} among the handles is a "
                f"{type(handle).__name__}; pass the texts that "
                "aikido_torch.reconfigure_handle() gave on each member."
            )
    _check_timeout("reconfigure", timeout)


def _check_timeout(call: str, timeout: object) -> None:
    if timeout is not None and not isinstance(timeout, timedelta):
        raise ConfigError(
            f"{call}: timeout is {timeout!r}; pass a datetime.timedelta, or None for "
            "the group's."
        )


def _replace_default_group(
    old: dist.ProcessGroup, backend: _C.AikidoBackend
) -> dist.ProcessGroup:
    """A new group object with the current rank and size; replaces `old` in torch."""
    world = _c10d._world
    rank, size = backend.place
    name = old.group_name
    new: Any = dist.ProcessGroup(world.pg_map[old][1], rank, size)
    new._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    for device in old._device_types:
        new._register_backend(device, dist.ProcessGroup.BackendType.CUSTOM, backend)
    new._set_group_name(name)
    new._set_group_desc(old.group_desc)
    for table in (
        world.pg_map,
        world.pg_names,
        world.pg_backend_config,
        world.pg_to_tag,
    ):
        if old in table:
            table[new] = table.pop(old)
    for groups in world.tags_to_pg.values():
        groups[:] = [new if group == old else group for group in groups]
    world.pg_group_ranks.pop(old, None)
    world.pg_group_ranks[new] = {i: i for i in range(size)}
    _c10d._unregister_process_group(name)
    _c10d._register_process_group(name, new)
    _c10d._update_default_pg(new)
    group: dist.ProcessGroup = new
    return group
