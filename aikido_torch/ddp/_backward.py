# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The moment at which DistributedDataParallel has put gradients in place."""

from collections.abc import Callable

import torch

__all__ = ["after_backward"]


def after_backward(call: Callable[[], None]) -> None:
    """Calls `call` once, at the end of the backward that is running on this thread.

    DistributedDataParallel puts gradients in place in a callback that it queues behind
    its last hook. So this function, called in a hook, queues a callback that queues
    another callback.
    """
    engine = torch.autograd.Variable._execution_engine
    engine.queue_callback(lambda: engine.queue_callback(call))
