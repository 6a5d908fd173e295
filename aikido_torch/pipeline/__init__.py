# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pipeline parallelism: partition of a model into stages, schedules, and training.

```python
from aikido_torch import pipeline

profile = pipeline.profile_model(model, torch.randn(32, 3, 224, 224))
plan = pipeline.partition(profile, machines=4, bandwidth=1e9)
plan.text  # "3-1": three machines for the first stage, one for the second
pipeline.show(plan)

schedule = pipeline.schedule("1f1b_async", stages=plan, micro_batches=48)
schedule.validate(max_activations=2)
print(schedule.grid())

pipe = pipeline.Pipeline(
    pipeline.cut(model, plan),
    schedule=schedule,
    optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    loss_fn=torch.nn.functional.cross_entropy,
)
pipe.train(loader, steps=len(loader))  # on every rank of the group
```

`python -m aikido_torch.pipeline profile --model package.module:factory --input
32,3,32,32 --output FILE`, `... partition FILE --machines 4 --bandwidth 1e9` and `...
schedule 1f1b --stages 4 --micro-batches 8` do the same. `csrc/pipeline/README.md`
describes the methods.

`measure_model` also times the whole model. `Pipeline(adapt=Adapt(...))` changes the
schedule while it trains. `replan` computes from measured times, and from the cost of
`Moving` the weights, whether another plan is worth a restart. `recut` converts a
checkpoint for that plan.
"""

from aikido_torch.pipeline.plan._cut import cut
from aikido_torch.pipeline.plan._partition import partition
from aikido_torch.pipeline.plan._schedule import schedule
from aikido_torch.pipeline.plan._show import show
from aikido_torch.pipeline.runtime._adapt import Adapt
from aikido_torch.pipeline.runtime._recut import recut
from aikido_torch.pipeline.runtime._replan import Moving, replan
from aikido_torch.pipeline.runtime._runtime import Pipeline
from aikido_torch.profile._profiler import measure_model, profile_model

__all__ = [
    "Adapt",
    "Moving",
    "Pipeline",
    "cut",
    "measure_model",
    "partition",
    "profile_model",
    "recut",
    "replan",
    "schedule",
    "show",
]
