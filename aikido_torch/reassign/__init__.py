# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Work moves from slow ranks to fast ranks inside a step, and no sample is lost.

```python
steps = StepLoader(dataset, batch_size=512, micro_batch_size=16)
handle = aikido_torch.ddp.register(model, optimizer=optimizer, steps=steps)
for step in steps:  # one optimizer step
    for micro_batch in step:  # own micro-batches, and those taken over
        loss = loss_of(model, micro_batch.data)
        (loss * micro_batch.weight).backward()
    optimizer.step()
    optimizer.zero_grad()
```

`batch_size` is the number of samples of a step over all ranks. The loader divides them
into micro-batches, and each rank begins the step with its part of these. A rank that
comes to its end takes micro-batches of a slow rank that the slow rank has not begun.
The gradient of the step is the mean over all samples.

The loader calls `catch_up` at the top of each step and accumulates the gradients. So
the loop needs neither `catch_up` nor `no_sync`. Random numbers of augmentation and
dropout follow the micro-batch: they are the same on each rank that may compute it.
"""

from aikido_torch.reassign._loader import StepLoader

__all__ = ["StepLoader"]
