# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""DistributedDataParallel that goes on without late ranks, and brings them up to date.

```python
model = DistributedDataParallel(net)
handle = aikido_torch.ddp.register(model, policy=SkipStraggler(), optimizer=optimizer)
while step < steps:
    step += handle.catch_up()
    ...
```

A rank that is late once has missed a step; if it went on computing that step and the
next from where it was, it would be late for ever and all its work thrown away.
`catch_up()` applies the steps that the others have committed meanwhile: the optimizer
runs on the committed gradients, without forward or backward, or, when that is fewer
bytes, the state of another rank is copied. Either way the rank is bit-identical with
the others again.
"""

from aikido_torch.ddp._decide import StateCopy
from aikido_torch.ddp._handle import CatchUp, Handle
from aikido_torch.ddp._register import register

__all__ = ["CatchUp", "Handle", "StateCopy", "register"]
