# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pipelines: where a model is cut into stages, and who does what when.

```python
from aikido_torch import pipeline

profile = pipeline.read_profile("vgg16.txt")
plan = pipeline.partition(profile, machines=4, bandwidth=1e9)
plan.text  # "3-1": three machines for the first stage, one for the second
pipeline.show(plan)

schedule = pipeline.schedule("1f1b_async", stages=plan, micro_batches=48)
schedule.validate(max_activations=2)
print(schedule.grid())
```

`python -m aikido_torch.pipeline partition PROFILE --machines 4 --bandwidth 1e9` and
`python -m aikido_torch.pipeline schedule 1f1b --stages 4 --micro-batches 8` do the
same. `csrc/pipeline/README.md` has the method.
"""

from aikido_torch._C import (
    Instruction,
    Layer,
    Plan,
    Profile,
    RankMemory,
    Simulation,
    Span,
    Stage,
    Validation,
)
from aikido_torch.pipeline._partition import partition
from aikido_torch.pipeline._profile import chain, read_profile, write_profile
from aikido_torch.pipeline._schedule import Schedule, schedule
from aikido_torch.pipeline._show import show

__all__ = [
    "Instruction",
    "Layer",
    "Plan",
    "Profile",
    "RankMemory",
    "Schedule",
    "Simulation",
    "Span",
    "Stage",
    "Validation",
    "chain",
    "partition",
    "read_profile",
    "schedule",
    "show",
    "write_profile",
]
