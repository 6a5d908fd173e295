# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""DistributedDataParallel that goes on without late ranks, and brings them up to date.

```python
model = DistributedDataParallel(net)
handle = aikido_torch.ddp.register(model, policy=SkipStraggler(), optimizer=optimizer)
while (step := step + handle.catch_up()) < steps:
    if handle.every(10):
        ...  # collectives of your own: log, evaluate, save
    ...
```

A rank that is late once has missed a step; if it went on computing that step and the
next from where it was, it would be late for ever and all its work thrown away.
`catch_up()` applies the steps that the others have committed meanwhile: the optimizer
runs on the committed gradients, without forward or backward, or, when that is fewer
bytes, the state of another rank is copied. Either way the rank is bit-identical with
the others again.

Buckets are reduced on a group of their own. Calls of the loop on the model's group do
not keep a late rank from catching up, and those that are not in each step belong where
`every(n)` is true: behind the same steps on all ranks, also on one that catches up.

A rank for which the others cannot keep more results is waited for, or with
`SkipStraggler(log_full="leave")` left out: its step is thrown away, and `catch_up()`
copies the state of a rank that is in and takes part again.

All ranks warn of changes by the loop that `register` was not told of. Ranks compare
digests of their states every `check_every` steps. A rank that differs copies the state
of the others. `register(check=...)` makes errors of both, or switches them off.
`Handle.close()` compares the states after the last step.

A gradient that came too late is lost with `register(late="drop")`, the default. With
`late="carry"` it is added, element by element, to what this rank gives to the same
bucket in its own next step, and counts once:

- It was computed for older parameters, by as many steps as lie between. Replayed and
  copied steps leave it as it is. Several late ones add up, in the bucket's dtype. What
  is pending at the end of the training is lost; it is in no checkpoint. So is what was
  given to a call that failed, since others may have counted it.
- It counts once this rank is in time again. One that is late in every step adds up more
  and more and gives nothing, until the others wait for it (`max_consecutive_skips`).
- The step that gets it has one contribution more than it is divided by. With
  `SkipStraggler(divisor="world")` the steps add up to what they would with `WaitAll()`,
  but for what is pending. With "contributors" late gradients weigh more than others:
  the step that went without one was divided by fewer already.
- Clipping in `apply` sees the sum. A GradScaler has to be in `state`: what is pending
  follows its scale. A late gradient that is not finite is dropped, and what is carried
  into a step that the scaler skips is lost with that step.
- Accumulate under `no_sync`, as always: each synchronised backward is a step.
- Each bucket takes its memory once more from the first step that may skip, and one copy
  of it in every own step.

`OverlappedDataParallel` goes without DistributedDataParallel: `optimizer.step()` waits
for no sum, and the next forward waits for a parameter where it needs it.
"""

from aikido_torch.ddp._catch_up import CatchUp
from aikido_torch.ddp._decide import StateCopy
from aikido_torch.ddp._handle import Handle
from aikido_torch.ddp._overlapped import OverlappedDataParallel
from aikido_torch.ddp._register import register

__all__ = ["CatchUp", "Handle", "OverlappedDataParallel", "StateCopy", "register"]
