# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The partitioner; csrc/pipeline has the method."""

import logging
from collections.abc import Sequence
from typing import Literal

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline._arguments import (
    flag,
    number,
    numbers,
    string,
    whole,
    wholes,
)

__all__ = ["partition"]

CostModel = Literal["paper", "published_code"]

_log = logging.getLogger("aikido")


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
        max_cuts: with more ways to cut, branches are joined, and `note` of the plan
            says so; a profile that still has more is refused.

    Returns:
        With "paper" the fastest plan there is, whatever the order of the layers in the
        profile, unless it has a `note`.

    Raises:
        ConfigError: a value is of another type or out of its range; there are more
            stages than layers; no plan fits into the memory, and the sentence says what
            the smallest needs, and for which stage.
    """
    if not isinstance(profile, _C.Profile):
        raise ConfigError(
            f"profile is a {type(profile).__name__}; pass what profile_model, chain or "
            "read_profile returns."
        )
    plan = _C.partition(
        profile,
        machines=wholes("machines", machines),
        bandwidths=numbers("bandwidth", bandwidth),
        cost_model=string("cost_model", cost_model, example="'paper'"),
        count_transfers=flag("count_transfers", count_transfers),
        straight=flag("straight", straight),
        fewer_machines=flag("fewer_machines", fewer_machines),
        memory_bytes=None
        if memory_bytes is None
        else number("memory_bytes", memory_bytes),
        max_cuts=whole("max_cuts", max_cuts, least=1, example="5000"),
    )
    if plan.note:
        _log.warning("pipeline.partition: %s", plan.note)
    return plan
