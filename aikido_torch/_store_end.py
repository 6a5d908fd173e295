# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Check if the store of a job ends with the default group of rank 0.

With `env://` or `tcp://`, the process of rank 0 serves the store as long as the group
lives there. Suppose that rank 0 is still ending its group while another rank makes the
next group at the same port. That rank would connect to the ending store and fail with
it. So the other ranks leave such a group after rank 0 (`shutdown` of the backend).
"""

import os
from pathlib import Path

from torch.distributed.distributed_c10d import Store

__all__ = ["ends_with_rank_0", "is_served_here"]

_KEY = "store_ends_with_rank_0"
_LISTENS = "0A"  # TCP_LISTEN


def ends_with_rank_0(store: Store, rank: int, port: int) -> bool:
    """True if the store ends with rank 0, by the decision of rank 0.

    The other ranks wait for the decision within the time-out of the store.

    Args:
        store: of the default group.
        rank: of this process in the default group.
        port: of the store.
    """
    if rank == 0:
        store.set(_KEY, "1" if is_served_here(port) else "0")
    return bool(store.get(_KEY) == b"1")


def is_served_here(port: int) -> bool:
    """True if a socket of this process listens at `port`."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    return any(_target(fd) in sockets for fd in Path("/proc/self/fd").iterdir())


def _listening(port: int) -> list[str]:
    """The inodes of all sockets on this machine that listen at `port`."""
    inodes = []
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/self/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            # Columns: number, local address, remote address, state, ..., inode.
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.append(fields[9])
    return inodes


def _target(fd: Path) -> str:
    try:
        return os.readlink(fd)
    except OSError:  # closed in the meantime
        return ""
