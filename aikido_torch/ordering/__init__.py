# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The order of the transfers of an iteration, and their grouping into batches.

```python
from aikido_torch import ordering

captured = ordering.capture_graph(model, torch.randn(32, 3, 224, 224))
link = ordering.LinkCost(alpha_s=50e-6, beta_s=8e-9)
graph = captured.iteration_graph(link)  # backward, transfers, the next forward

order = ordering.tac(graph)
before = ordering.simulate(graph, link="fifo")
after = ordering.simulate(graph, order, link="preemptive")
ordering.bounds(graph).efficiency(after.makespan_s)

plan = ordering.plan_iteration(graph, link=link)  # batches, and their order
ordering.report(model, torch.randn(32, 3, 224, 224), link=link, picture="timeline.png")
```

`capture_chain` takes the layers in the order of their calls, for a model that cannot be
traced. This package only computes; it sends nothing. Times are in seconds and sizes in
bytes. Invalid arguments raise `ConfigError`. Functions of graphs may be called from any
thread. `csrc/ordering/README.md` describes the methods and their sources.
"""

from aikido_torch._C import LinkCost
from aikido_torch.ordering._capture import capture_chain, capture_graph
from aikido_torch.ordering._orders import tac
from aikido_torch.ordering._plan import plan_iteration
from aikido_torch.ordering._report import report
from aikido_torch.ordering._simulate import bounds, simulate

__all__ = [
    "LinkCost",
    "bounds",
    "capture_chain",
    "capture_graph",
    "plan_iteration",
    "report",
    "simulate",
    "tac",
]
