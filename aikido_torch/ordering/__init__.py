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

This package only computes; it sends nothing. Times are in seconds and sizes in bytes.
Invalid arguments raise `ConfigError`. Functions of graphs may be called from any
thread. `csrc/ordering/README.md` describes the methods and their sources.
"""

from aikido_torch._C import (
    BatchPlan,
    Bounds,
    LinkCost,
    LinkFit,
    Op,
    OpGraph,
    OpSpan,
    Timeline,
    TransferBatch,
    TransferWindow,
)
from aikido_torch.ordering._batches import plan_batches, windows
from aikido_torch.ordering._capture import (
    Captured,
    CapturedLayer,
    capture_chain,
    capture_graph,
)
from aikido_torch.ordering._costs import (
    choose_collective,
    collective_time,
    pipelining_depth,
)
from aikido_torch.ordering._orders import Order, tac, tic
from aikido_torch.ordering._plan import IterationPlan, plan_iteration
from aikido_torch.ordering._plot import plot_timelines
from aikido_torch.ordering._report import Report, report
from aikido_torch.ordering._show import show_timelines
from aikido_torch.ordering._simulate import best_order, bounds, simulate

__all__ = [
    "BatchPlan",
    "Bounds",
    "Captured",
    "CapturedLayer",
    "IterationPlan",
    "LinkCost",
    "LinkFit",
    "Op",
    "OpGraph",
    "OpSpan",
    "Order",
    "Report",
    "Timeline",
    "TransferBatch",
    "TransferWindow",
    "best_order",
    "bounds",
    "capture_chain",
    "capture_graph",
    "choose_collective",
    "collective_time",
    "pipelining_depth",
    "plan_batches",
    "plan_iteration",
    "plot_timelines",
    "report",
    "show_timelines",
    "simulate",
    "tac",
    "tic",
    "windows",
]
