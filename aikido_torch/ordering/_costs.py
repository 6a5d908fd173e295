# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What an allreduce takes by its algorithm; into how many chunks a transfer is cut."""

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
    """Seconds of an allreduce; csrc/ordering/collective_cost.h has the formulas.

    Args:
        bytes: of the tensor.
        link: of one message; with `hosts`, between two of them.
        gamma_s: of adding up a byte.
        message_s: of `link.alpha_s`, for how long a sender is busy with a message: what
            keeps messages of "direct" from being sent at once.
        shard_bytes: in "direct" no member owns a smaller part of the tensor than this
            (the setting collectives_min_shard_bytes).
        hosts: how many members are on each, which share its link; empty: each member is
            on a host of its own.
        local: of one message inside a host; None: as `link`.

    Raises:
        ConfigError: a figure is negative or no number, a name none of these, or the
            hosts have other members.
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
    """The collective of `among` that takes least, and its seconds.

    Raises:
        ConfigError: as `collective_time`, and where there is none to choose from.
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
    """Into how many chunks a transfer over several hops is cut, and its seconds then.

    Each hop sends one chunk while the next sends the one before.

    Args:
        most: chunks.

    Raises:
        ConfigError: a figure is negative or no number, or a count below 1.
    """
    return _C.pipelining_depth(bytes=bytes, hops=hops, most=most, link=link)
