# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""TIC and TAC, the algorithms of TicTac that order transfers."""

from collections.abc import Sequence
from dataclasses import dataclass

from aikido_torch import _C

__all__ = ["Order", "names_in", "tac", "tic"]


@dataclass(frozen=True)
class Order:
    """An order of transfers.

    Attributes:
        transfers: Names, from first to last.
        places: The place of each name, from 0. Transfers with equal places may go in
            any order.
    """

    transfers: tuple[str, ...]
    places: dict[str, int]


def tic(graph: _C.OpGraph) -> Order:
    """Orders transfers by TIC (Timing-Independent Communication scheduling).

    TIC uses no times. The first transfers allow computing after the fewest transfers.
    Among equals, the transfer that is used first goes first. See the TicTac paper
    (Hashemi, Abdu Jyothi and Campbell, MLSys 2019, arXiv 1803.03288).
    """
    return _order(_C.tic(graph))


def tac(graph: _C.OpGraph) -> Order:
    """Orders transfers by TAC (Timing-Aware Communication scheduling).

    TAC uses the times of all ops. The first transfers allow the most computing during
    the others. It is the best order for a chain of layers and for parallel layers, and
    close to the best for other graphs (`csrc/ordering/README.md` says how close). The
    source is the same paper as of `tic`.
    """
    return _order(_C.tac(graph))


def _order(placed: list[tuple[str, int]]) -> Order:
    return Order(tuple(name for name, _ in placed), dict(placed))


def names_in(order: Order | Sequence[str]) -> list[str]:
    """The names in an order, or in a plain sequence of names."""
    return list(order.transfers if isinstance(order, Order) else order)
