# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Training on machines that come and go, without a restart.

Some machines are reliable, and many cheap machines disappear with or without a warning.
A member is `reliable` or `transient` for its whole life.

```python
job = elastic.join(model, optimizer, loader, endpoint="10.0.0.5:29400")
for step in job.steps(until=10_000):  # members join, leave and die between steps
    for batch in step:
        loss_of(job.model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()
```
"""

from aikido_torch.elastic._join import join as join
from aikido_torch.elastic._sharded import ShardedOptimizer as ShardedOptimizer

# The names of this package are not part of the stable interface yet.
__all__: list[str] = []
