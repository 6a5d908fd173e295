# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cost of an allreduce by its algorithm, and the number of chunks of a transfer."""

from collections.abc import Sequence
from typing import Literal, get_args

from aikido_torch import _C

__all__ = ["choose_collective", "collective_time", "pipelining_depth"]

Collective = Literal[
    "direct", "ring", "halving_doubling", "tree", "two_level", "one_owner"
]


def collective_time(
    collective: Collective,
    *,
    members: int,
    bytes: float,
    link: _C.LinkCost,
    gamma_s: float = 0,
    message_s: float = 0,
    shard_bytes: float = 0,
    hosts: Sequence[int] = (),
    local: _C.LinkCost | None = None,
) -> float:
    """Predicts the time of an allreduce in seconds.

    `csrc/cost/collective_cost.h` has the formulas and their sources.

    Args:
        collective: The algorithm.
        members: The number of ranks.
        bytes: The size of the tensor.
        link: The cost of a message; with `hosts`, of a message between two hosts.
        gamma_s: The time to add up one byte, in seconds.
        message_s: The part of `link.alpha_s` in which the sender is busy with a
            message, from 0 to alpha. The messages that a member sends in "direct"
            overlap except for this time.
        shard_bytes: The least size of the part of the tensor that one member sums in
            "direct", as the setting collectives_min_shard_bytes.
        hosts: The number of members on each host, which share the link of the host. If
            empty, each member has a host of its own.
        local: The cost of a message inside a host; None: the same as `link`.

    Raises:
        ConfigError: A number is negative or not finite, the algorithm is unknown,
            `message_s` is above alpha, or `hosts` do not add up to `members`.
    """
    return _C.collective_time(
        collective,
        members=members,
        bytes=bytes,
        message=link,
        gamma_s=gamma_s,
        message_s=message_s,
        shard_bytes=shard_bytes,
        hosts=list(hosts),
        local=local or link,
    )


def choose_collective(
    *,
    members: int,
    bytes: float,
    link: _C.LinkCost,
    gamma_s: float = 0,
    message_s: float = 0,
    shard_bytes: float = 0,
    hosts: Sequence[int] = (),
    local: _C.LinkCost | None = None,
    among: Sequence[Collective] = get_args(Collective),
) -> tuple[str, float]:
    """Chooses the fastest of the algorithms in `among`, for arguments of
    `collective_time`.

    Returns:
        The algorithm, and its time in seconds.

    Raises:
        ConfigError: As for `collective_time`, and if `among` is empty.
    """
    return _C.choose_collective(
        members=members,
        bytes=bytes,
        message=link,
        gamma_s=gamma_s,
        message_s=message_s,
        shard_bytes=shard_bytes,
        hosts=list(hosts),
        local=local or link,
        among=list(among),
    )


def pipelining_depth(
    *, bytes: float, hops: int, link: _C.LinkCost, most: int = 1024
) -> tuple[int, float]:
    """Chooses the number of chunks of a transfer over several hops.

    Each hop sends a chunk while the next hop sends the previous chunk.
    `csrc/cost/pipelining.h` has the formula and its source.

    Args:
        bytes: The size of the transfer.
        hops: The number of links from the sender to the receiver.
        link: The cost of sending a chunk over one hop.
        most: The largest number of chunks.

    Returns:
        The number of chunks, and the time of the whole transfer in seconds.

    Raises:
        ConfigError: A number is negative or not finite, or a count is below 1.
    """
    return _C.pipelining_depth(bytes=bytes, hops=hops, most=most, link=link)
