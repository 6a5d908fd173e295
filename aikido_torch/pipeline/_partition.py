# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The partitioner; csrc/pipeline has the method."""

from collections.abc import Sequence
from typing import Literal

from aikido_torch import _C
from aikido_torch.errors import ConfigError

__all__ = ["partition"]

CostModel = Literal["paper", "published_code"]


def partition(
    profile: _C.Profile,
    *,
    machines: int | Sequence[int],
    bandwidth: float | Sequence[float],
    cost_model: CostModel = "paper",
    count_transfers: bool = True,
    straight: bool = False,
    fewer_machines: bool = False,
    memory_bytes: float | None = None,
    max_cuts: int = 5000,
) -> _C.Plan:
    """Cuts a model into stages such that the slowest is as fast as it can be.

    Args:
        machines: how many are connected; with several levels, of the lowest first, and
            above it how many groups of the level below.
        bandwidth: bytes a second between two of them, one for each level.
        cost_model: "paper" as PipeDream is described, "published_code" as its optimizer
            computes. They differ in what adding up gradients costs, and in what is kept
            in memory (`csrc/pipeline/README.md`).
        count_transfers: False takes activations between stages for free.
        straight: no stage has replicas.
        fewer_machines: some may be left idle, where using them costs more.
        memory_bytes: what a machine has; None is no limit.
        max_cuts: profiles that can be cut in more ways are refused.

    Raises:
        ConfigError: a value is out of its range; there are more stages than layers; no
            plan fits into the memory, and the sentence says what the smallest needs,
            and for which stage.
    """
    counts = [machines] if isinstance(machines, int) else list(machines)
    rates = [bandwidth] if isinstance(bandwidth, int | float) else list(bandwidth)
    for count in counts:
        if not isinstance(count, int) or isinstance(count, bool) or count >= 2**31:
            raise ConfigError(f"machines has {count!r}; it takes whole numbers.")
    if max_cuts < 1:
        raise ConfigError(f"max_cuts is {max_cuts}; it takes 1 or more, as 5000.")
    return _C.partition(
        profile,
        machines=counts,
        bandwidths=rates,
        cost_model=cost_model,
        count_transfers=count_transfers,
        straight=straight,
        fewer_machines=fewer_machines,
        memory_bytes=memory_bytes,
        max_cuts=max_cuts,
    )
