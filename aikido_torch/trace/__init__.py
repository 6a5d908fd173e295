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
shows which ranks made others wait, and which primaries were replaced by backups.

A job that called `watch` can also be traced from outside, at given steps: `python -m
aikido_torch.trace arm --steps 100:104 --output all.json`, or from any of its ranks:
`aikido_torch.trace.arm(100, 104, output="all.json")`. `follow()` traces repeatedly, and
passes the verdicts to the straggler policies.

Before that nothing is recorded, at nearly no cost. Each thread of a rank has room for
32,768 spans. Further spans are dropped and counted.
"""

from aikido_torch.trace.analyze._advise import Following, advise, follow
from aikido_torch.trace.analyze._attribute import attribute, attribute_windows
from aikido_torch.trace.analyze._backups import BackupSummary
from aikido_torch.trace.analyze._pauses import Pause, pauses_of
from aikido_torch.trace.analyze._stages import PipelineSummary, StageSummary
from aikido_torch.trace.analyze._step_facts import (
    LinkStep,
    RankStep,
    StepFacts,
    facts_of,
)
from aikido_torch.trace.analyze._summary import (
    PauseSummary,
    RankSummary,
    Summary,
    summarize,
)
from aikido_torch.trace.analyze._verdict import Culprit, Verdict
from aikido_torch.trace.export._chrome import write_chrome
from aikido_torch.trace.export._flight import write_flight_recorder
from aikido_torch.trace.export._html import write_html
from aikido_torch.trace.export._metrics import Metrics, serve
from aikido_torch.trace.export._request import arm
from aikido_torch.trace.export._text import report
from aikido_torch.trace.record._dump import Clock, Dump, read
from aikido_torch.trace.record._log import EventLog, log_events
from aikido_torch.trace.record._record import address, save, start, stop, take
from aikido_torch.trace.record._spans import Kind, Span, SpanOutcome
from aikido_torch.trace.record._watch import Watch, watch

__all__ = [
    "BackupSummary",
    "Clock",
    "Culprit",
    "Dump",
    "EventLog",
    "Following",
    "Kind",
    "LinkStep",
    "Metrics",
    "Pause",
    "PauseSummary",
    "PipelineSummary",
    "RankStep",
    "RankSummary",
    "Span",
    "SpanOutcome",
    "StageSummary",
    "StepFacts",
    "Summary",
    "Verdict",
    "Watch",
    "address",
    "advise",
    "arm",
    "attribute",
    "attribute_windows",
    "facts_of",
    "follow",
    "log_events",
    "pauses_of",
    "read",
    "report",
    "save",
    "serve",
    "start",
    "stop",
    "summarize",
    "take",
    "watch",
    "write_chrome",
    "write_flight_recorder",
    "write_html",
]
