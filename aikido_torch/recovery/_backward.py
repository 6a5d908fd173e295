# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Callback at the moment when DistributedDataParallel has written all gradients."""

from collections.abc import Callable

import torch

__all__ = ["after_backward"]


def after_backward(call: Callable[[], None]) -> None:
    """Calls `call` once, at the end of the backward that is running on this thread.

    DistributedDataParallel writes the gradients in a callback that it queues after its
    last hook. So this function, called in a hook, queues a callback that queues `call`.
    """
    engine = torch.autograd.Variable._execution_engine
    engine.queue_callback(lambda: engine.queue_callback(call))
