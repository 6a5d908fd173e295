# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Graphs of iterations with known orders."""

from aikido_torch._C import Op, OpGraph


def chain(transfers, computes):
    """Compute ci needs transfer ri, for each i, and compute c(i-1)."""
    ops = [
        Op.transfer(f"r{i}", time_s=t, bytes=t * 1e6) for i, t in enumerate(transfers)
    ]
    ops += [Op.compute(f"c{i}", time_s=t) for i, t in enumerate(computes)]
    edges = [(f"r{i}", f"c{i}") for i in range(len(computes))]
    edges += [(f"c{i}", f"c{i + 1}") for i in range(len(computes) - 1)]
    return OpGraph(ops, edges)


def parallel(transfers, computes):
    """The same without the edges between computes."""
    whole = chain(transfers, computes)
    edges = [edge for edge in whole.edges if edge[0].startswith("r")]
    return OpGraph(whole.ops, edges)


def iteration():
    """A backward pass of three layers, and the forward pass of the next iteration."""
    ops = [Op.compute(f"b{i}", time_s=1) for i in (2, 1, 0)]
    ops += [
        Op.transfer(f"g{i}", time_s=t, bytes=t * 1e6)
        for i, t in ((2, 4), (1, 2), (0, 2))
    ]
    ops += [Op.compute(f"f{i}", time_s=1) for i in range(3)]
    edges = [(f"b{i}", f"g{i}") for i in range(3)]
    edges += [(f"g{i}", f"f{i}") for i in range(3)]
    edges += [("b2", "b1"), ("b1", "b0"), ("b0", "f0"), ("f0", "f1"), ("f1", "f2")]
    return OpGraph(ops, edges)
