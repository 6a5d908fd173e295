# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Process groups that aikido makes beside a group of the user.

Note [names of groups]
torch names a group by the number of groups made so far, and ranks that make a group
together have to agree on the name. With use_local_synchronization=True only members
make the group and count it. A later group of all ranks would then have another name on
members than on others, and all of them would wait for ever. So a group that only
members make is named after a number that its ranks agree on, and the count stays as it
was.
"""

import contextlib
from collections.abc import Iterator

import torch.distributed as dist

from aikido_torch._backend import backend_of, options_of, was_met_at_store
from aikido_torch.errors import ConfigError

__all__ = ["close", "counted_from", "group_beside", "why_no_group_beside"]

# Far above the numbers that torch reaches in a job.
_FIRST = 1 << 48


@contextlib.contextmanager
def counted_from(number: int) -> Iterator[None]:
    """Scope in which torch counts groups from `number`; restores the count."""
    world = dist.distributed_c10d._world
    before = world.group_count
    world.group_count = number
    try:
        yield
    finally:
        world.group_count = before


def why_no_group_beside(group: dist.ProcessGroup) -> str:
    """Why `group_beside` cannot make a group on this rank; "" if it can."""
    backend = backend_of(group)
    world = dist.group.WORLD
    if world is None:
        return "there is no default group, whose store ranks meet at"
    try:
        ranks = dist.get_process_group_ranks(group)
    except (KeyError, RuntimeError, ValueError):
        return "torch does not know the ranks of the group in the job"
    if ranks != sorted(ranks):
        return "the ranks of the group are not in the order of the job"
    for each in (world, group):
        try:
            met = backend_of(each)
        except (ConfigError, RuntimeError):  # a group of other ranks
            continue
        if not was_met_at_store(met):
            return (
                "the group got its members by reconfigure, which need not share a store"
            )
    return "" if len(ranks) == backend.place[1] else "it has other members by now"


def group_beside(group: dist.ProcessGroup, *, number: int) -> dist.ProcessGroup:
    """A new aikido group with the same ranks, order and options.

    All ranks of `group` call this. torch's count of groups does not change.

    Args:
        group: a group for which `why_no_group_beside` is "" on every rank.
        number: equal on all ranks, and different for each group of the same ranks.

    Raises:
        TimedOutError: a rank did not come.
    """
    backend = backend_of(group)
    with counted_from(_FIRST + number):
        made = dist.new_group(
            dist.get_process_group_ranks(group),
            timeout=backend.call_timeout,
            backend="aikido",
            pg_options=options_of(backend),
            use_local_synchronization=True,
        )
    assert isinstance(made, dist.ProcessGroup), "this rank is a member"
    return made


def close(group: dist.ProcessGroup) -> None:
    """Ends a group of this module, unless it has already ended with the job."""
    # Another thread may end all groups of the job at the same time.
    with contextlib.suppress(KeyError, ValueError):
        if group in dist.distributed_c10d._world.pg_map:
            dist.destroy_process_group(group)
