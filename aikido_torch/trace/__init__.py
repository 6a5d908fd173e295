# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Traces of all ranks on one clock: calls, transfers, and the parts of a step.

```python
aikido_torch.trace.watch(model, optimizer, loader)   # once, before the loop
...
aikido_torch.trace.start()
train_some_steps()
aikido_torch.trace.stop()
aikido_torch.trace.save(f"rank{rank}.trace")
```

Afterwards, on any machine, `python -m aikido_torch.trace merge rank*.trace --output
all.json` writes a file for ui.perfetto.dev. `report rank*.trace --html report.html`
shows which ranks made others wait, and which primaries were replaced by backups. In a
program, `attribute(facts_of([read(file) for file in files]))` names the culprit.

A job that called `watch` can also be traced from outside, at given steps: `python -m
aikido_torch.trace arm --steps 100:104 --output all.json`, or from any of its ranks:
`aikido_torch.trace.capture_steps(100, 104, output="all.json")`. `auto_advise()` traces
repeatedly, and passes the verdicts to the straggler policies.

Before that nothing is recorded, at nearly no cost. Each thread of a rank has room for
32,768 spans. Further spans are dropped and counted.
"""

from aikido_torch._moved import moved_names
from aikido_torch.trace.analyze._advise import apply_advice, auto_advise
from aikido_torch.trace.analyze._attribute import attribute
from aikido_torch.trace.analyze._step_facts import facts_of
from aikido_torch.trace.export._flight import write_flight_recorder
from aikido_torch.trace.export._metrics import serve
from aikido_torch.trace.export._request import capture_steps
from aikido_torch.trace.export._text import report
from aikido_torch.trace.record._dump import read
from aikido_torch.trace.record._log import log_events
from aikido_torch.trace.record._record import save, start, stop
from aikido_torch.trace.record._watch import watch

__all__ = [
    "apply_advice",
    "attribute",
    "auto_advise",
    "capture_steps",
    "facts_of",
    "log_events",
    "read",
    "report",
    "save",
    "serve",
    "start",
    "stop",
    "watch",
    "write_flight_recorder",
]

__getattr__ = moved_names(
    __name__,
    {
        "advise": "aikido_torch.trace.apply_advice",
        "arm": "aikido_torch.trace.capture_steps",
        "follow": "aikido_torch.trace.auto_advise",
    },
)
