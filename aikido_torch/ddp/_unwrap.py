# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Search for the model and the optimizer inside the wrappers of frameworks."""

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

__all__ = ["unwrap_model", "unwrap_optimizer"]

# Attributes of torch.compile, of Lightning Fabric, and the usual name.
_INSIDE = ("_orig_mod", "_forward_module", "module")
_MOST_WRAPPERS = 8


def unwrap_model(model: Any) -> Any:
    """The DistributedDataParallel inside `model`; `model` itself if there is none."""
    found = _inside(model, _MOST_WRAPPERS)
    return model if found is None else found


def _inside(model: Any, most: int) -> DistributedDataParallel | None:
    if isinstance(model, DistributedDataParallel):
        return model
    if most == 0 or not isinstance(model, torch.nn.Module):
        return None
    # Fabric's wrapper shows the attributes of the bare model as well: try each.
    inner = (_inside(getattr(model, name, None), most - 1) for name in _INSIDE)
    return next((found for found in inner if found is not None), None)


def unwrap_optimizer(optimizer: Any) -> Any:
    """The optimizer inside wrappers that add no state of their own.

    Accelerate's AcceleratedOptimizer and the optimizers of Lightning and Fabric show
    the state of the optimizer that they wrap. An optimizer with its own step around
    another one, such as a Lookahead, has its own state and is returned as it is.
    """
    found = optimizer
    for _ in range(_MOST_WRAPPERS):
        inner = getattr(found, "optimizer", None)
        is_optimizer = isinstance(found, torch.optim.Optimizer)
        if is_optimizer and getattr(inner, "state", None) is not found.state:
            return found
        if inner is None:
            break
        found = inner
    return found if isinstance(found, torch.optim.Optimizer) else optimizer
