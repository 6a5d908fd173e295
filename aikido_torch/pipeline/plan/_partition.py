# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The partitioner; csrc/pipeline has the method."""

import logging
from collections.abc import Sequence
from typing import Literal

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan._arguments import (
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
    """Cuts a model into stages so that the slowest stage is as fast as possible.

    The method is that of PipeDream (Narayanan et al., SOSP 2019);
    `csrc/pipeline/README.md` has the formulas.

    Args:
        profile: times and sizes of the layers.
        machines: number of connected machines. With several levels: the number of
            machines in a group of the lowest level, then for each higher level the
            number of groups of the level below.
        bandwidth: bytes per second between two of them, one value for each level.
        cost_model: "paper" as PipeDream is described, "published_code" as its optimizer
            computes. They differ in the cost of gradient sums, and in the memory that
            is counted.
        count_transfers: False assumes that transfers of activations cost nothing.
        straight: True allows no replicas.
        fewer_machines: True allows to leave machines unused if using them costs more.
        memory_bytes: memory of a machine; None is no limit.
        max_cuts: if there are more ways to cut, branches are joined, and `note` of the
            plan says so. A profile that still has more is refused.

    Returns:
        With "paper" an optimal plan, for any order of the layers in the profile, unless
        the plan has a `note`.

    Raises:
        ConfigError: a value has another type or is out of its range; there are more
            stages than layers; no plan fits into the memory. The text says how much the
            smallest plan needs, and for which stage.
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
