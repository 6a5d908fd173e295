# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pipelines: where a model is cut into stages, and how many machines do each.

```python
from aikido_torch import pipeline

profile = pipeline.read_profile("vgg16.txt")
plan = pipeline.partition(profile, machines=4, bandwidth=1e9)
plan.text  # "3-1": three machines for the first stage, one for the second
pipeline.show(plan)
```

`python -m aikido_torch.pipeline partition PROFILE --machines 4 --bandwidth 1e9` does
the same. `csrc/pipeline/README.md` has the method.
"""

from aikido_torch._C import Layer, Plan, Profile, Stage
from aikido_torch.pipeline._partition import partition
from aikido_torch.pipeline._profile import chain, read_profile, write_profile
from aikido_torch.pipeline._show import show

__all__ = [
    "Layer",
    "Plan",
    "Profile",
    "Stage",
    "chain",
    "partition",
    "read_profile",
    "show",
    "write_profile",
]
