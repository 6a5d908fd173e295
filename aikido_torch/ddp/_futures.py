# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Futures that the hook of DistributedDataParallel returns."""

from collections.abc import Callable

import torch

from aikido_torch import _C

__all__ = ["future_of"]


def future_of(
    work: _C.AikidoWork,
    value: torch.Tensor,
    rescue: Callable[[BaseException], bool],
) -> torch.futures.Future[torch.Tensor]:
    """A future that has `value` when `work` has ended.

    Args:
        work: writes `value`, or fails. Then the future has its error, unless rescue
            allows the backward to end. For an excluded rank, the own gradient in
            `value` is the result.
        value: the gradients, which DistributedDataParallel reads.
        rescue: gets the error; True: the backward may end.
    """
    given = _C.hook_work(work, value, rescue)
    future: torch.futures.Future[torch.Tensor] = given.get_future()
    return future
