# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""DistributedDataParallel that skips late ranks, and brings them up to date.

```python
model = DistributedDataParallel(net)
handle = aikido_torch.ddp.register(model, policy=SkipStraggler(), optimizer=optimizer)
while (step := step + handle.catch_up()) < steps:
    if handle.every(10):
        ...  # collectives of your own: log, evaluate, save
    ...
```

A late rank has missed a step. If it went on computing that step and the next from its
old parameters, it would be late for ever, and all its work would be lost. `catch_up()`
applies the steps that the other ranks have committed meanwhile. It runs the optimizer
on the committed gradients, without forward or backward. If a state has fewer bytes, it
copies the state of another rank. In both cases the rank has the same bits as the other
ranks again. The result, a `CatchUp`, is the number of steps that were caught up.

Buckets are reduced on a group of their own. So calls of the loop on the model's group
do not keep a late rank from catching up. Calls that are not in each step belong where
`every(n)` is true: behind the same steps on all ranks, also on a rank that catches up.

If the other ranks cannot keep more results for a late rank, they wait for it. With
`SkipStraggler(on_log_full="exclude")` they go on without it. Then the late rank throws
its step away, and `catch_up()` copies the state of a rank that trains on.

All ranks warn of changes by the loop that `register` does not know. Ranks compare
digests of their states every `check_every` steps, and a rank that differs copies the
state of the others. `register(check=...)` makes errors of both, or switches them off.
`Handle.close()` compares the states after the last step.

`handle.weight = w`, set before the backward, makes the mean of the gradients a weighted
mean over the contributors. So ranks with uneven batches train like one process over all
samples, if `w` is the number of samples. The weight is 1.0 again after each step. All
ranks set the first weight before the first backward, or none does.

`register(policy=WaitAll(), slack=s)` applies the mean gradient of step t - s in step t.
So no rank waits for a rank that is at most s steps behind, and no gradient is lost. The
first s steps after the strict ones have no update. `handle.flush()` applies what is
pending, before a checkpoint; `handle.close()` does so at the end. Each gradient is
computed for parameters that have s updates less, and s + 1 copies of the gradients are
kept. docs/choose-a-policy.md has the rules for the loop.

A late gradient is lost with `register(late="drop")`, the default. With `late="carry"`
it is added, element by element, to this rank's next own contribution to the same
bucket, and counts once:

- It was computed for older parameters, by as many steps as lie between. Replayed and
  copied steps do not change it. Several late gradients add up, in the bucket's dtype.
  Gradients that are pending at the end of the training are lost; no checkpoint contains
  them. The contribution to a failed call is lost too, since others may have counted it.
- It counts when this rank is on time again. A rank that is late in every step adds up
  more and more, and contributes nothing until the others wait for it
  (`max_consecutive_skips`).
- The step that gets it has one contribution more than its divisor. With
  `SkipStraggler(divisor="world")` the steps add up to the result of `WaitAll()`, except
  for pending gradients. With "contributors" late gradients weigh more than others: the
  step without the late gradient was already divided by a smaller number.
- Clipping in `apply` sees the sum. A GradScaler must be in `state`: pending gradients
  follow its scale. A late gradient that is not finite is dropped. Gradients that are
  carried into a step that the scaler skips are lost with that step.
- Accumulate under `no_sync`, as always: each synchronised backward is a step.
- Each bucket needs its memory once more from the first step that may skip, and one copy
  of it in every own step.
"""

from aikido_torch._moved import moved_names
from aikido_torch.ddp._handle import Handle
from aikido_torch.ddp._register import register
from aikido_torch.recovery._catch_up import CatchUp as CatchUp
from aikido_torch.recovery._catch_up_policy import StateCopy

__all__ = ["Handle", "StateCopy", "register"]

__getattr__ = moved_names(
    __name__, {"OverlappedDataParallel": "aikido_torch.overlap.OverlappedDataParallel"}
)
