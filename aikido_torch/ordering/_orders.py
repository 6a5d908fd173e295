# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""TIC and TAC of TicTac: orders of transfers by name."""

from collections.abc import Sequence
from dataclasses import dataclass

from aikido_torch import _C

__all__ = ["Order", "names_in", "tac", "tic"]


@dataclass(frozen=True)
class Order:
    """Transfers in the order in which they go.

    Attributes:
        transfers: names, first to last.
        places: of each name, from 0. Those with the same may go in any order.
    """

    transfers: tuple[str, ...]
    places: dict[str, int]


def tic(graph: _C.OpGraph) -> Order:
    """The order by TIC, which knows no times: what allows computing soonest is first.

    "Soonest" is after the fewest transfers; ties go by first use.
    """
    return _order(_C.tic(graph))


def tac(graph: _C.OpGraph) -> Order:
    """The order by TAC, from the times of all ops.

    What lets most computing run beside the other transfers goes first. It is the best
    order for a chain of layers and for layers side by side, and near it for others
    (csrc/ordering/README.md has how near).
    """
    return _order(_C.tac(graph))


def _order(placed: list[tuple[str, int]]) -> Order:
    return Order(tuple(name for name, _ in placed), dict(placed))


def names_in(order: Order | Sequence[str]) -> list[str]:
    """Of an order, or of names that someone wrote down."""
    return list(order.transfers if isinstance(order, Order) else order)
