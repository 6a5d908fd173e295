# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The steps of a training in which one rank is late and catches up."""

from aikido_torch.testing import late

LATE = 2
_LATE_S = 0.3
_LATE_IN = (6, 7, 12)
_STEPS = 20


class LateSteps:
    """Iterator over the numbers of the steps that this rank executes.

    Args:
        model: an OverlappedDataParallel with a policy that skips.
        rank: of this process.
        catching: arguments for the model's catch_up().
    """

    def __init__(self, model, rank, **catching):
        self.model, self.rank, self.catching = model, rank, catching
        self.caught_up = 0

    def __iter__(self):
        step = 0
        while True:
            applied = self.model.catch_up(**self.catching)
            self.caught_up += applied
            step += applied
            if step >= _STEPS:
                return
            if self.rank == LATE and step in _LATE_IN:
                late(_LATE_S)
            yield step
            step += 1
