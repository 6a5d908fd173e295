# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""State that the attempt of a step changes even if the step fails.

These are buffers of the model, schedulers and similar objects, options of the
optimizer, and the random numbers. Parameters change only after the commit.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy

import torch

from aikido_torch.recovery._state import Stateful

__all__ = ["SmallState"]


class SmallState:
    """Keeper of the small state of a training. For the training thread.

    Args:
        model: its buffers belong to the state.
        optimizer: the options of its groups belong to the state, because schedulers
            keep the learning rate there.
        others: further objects of the training.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        others: Mapping[str, Stateful],
    ) -> None:
        self._model, self._optimizer, self._others = model, optimizer, dict(others)

    def keep(self) -> Callable[[], None]:
        """Function that restores the state of now."""
        buffers = {n: b.detach().clone() for n, b in self._model.named_buffers()}
        others = {n: deepcopy(o.state_dict()) for n, o in self._others.items()}
        generator = torch.get_rng_state()
        groups = self._optimizer.param_groups
        options = [
            {k: deepcopy(v) for k, v in g.items() if k != "params"} for g in groups
        ]

        def restore() -> None:
            for group, values in zip(groups, options, strict=True):
                group.update(values)
            with torch.no_grad():
                for name, buffer in self._model.named_buffers():
                    buffer.copy_(buffers[name])
            for name, other in self._others.items():
                other.load_state_dict(others[name])
            torch.set_rng_state(generator)

        return restore
