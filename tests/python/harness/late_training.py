# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The steps of a training in which one rank is late, and catches up."""

from aikido_torch.testing import late

LATE = 2
_LATE_S = 0.3
_LATE_IN = (6, 7, 12)
_STEPS = 20


class LateSteps:
    """The numbers of the steps that are left to do, one behind another.

    Args:
        model: an OverlappedDataParallel that may skip.
        rank: of this process.
        catching: for its catch_up().
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
