# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Data parallelism whose gradient sums go on during the next forward pass.

`OverlappedDataParallel` works without DistributedDataParallel: `optimizer.step()` waits
for no sum, and the next forward waits for a parameter where it needs it.
"""

from aikido_torch.overlap._overlapped import OverlappedDataParallel

__all__ = ["OverlappedDataParallel"]
