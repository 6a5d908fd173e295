# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Seeing what ranks do: calls, transfers, and the parts of a step, on one clock.

```python
aikido_torch.trace.watch(model, optimizer, loader)   # once, before the loop
...
aikido_torch.trace.start()
train_some_steps()
aikido_torch.trace.stop()
aikido_torch.trace.save(f"rank{rank}.trace")
```

and then, anywhere, `python -m aikido_torch.trace merge rank*.trace --output all.json`
for ui.perfetto.dev, or `report rank*.trace --html report.html` for who made whom wait,
and for whom backups stood in, where there are some.
A job that called `watch` is also traced from outside, at steps that are named:
`python -m aikido_torch.trace arm --steps 100:104 --output all.json`, or by any of its
ranks: `aikido_torch.trace.arm(100, 104, output="all.json")`. `follow()` does so again
and again, and tells the straggler policies what the verdicts say.

Nothing is recorded, and next to nothing is spent, before that. Each thread of a rank
has room for 32,768 spans; what comes when it is full is dropped and counted.
"""

from aikido_torch.trace._advise import Following, advise, follow
from aikido_torch.trace._arm import arm
from aikido_torch.trace._attribute import attribute, attribute_windows
from aikido_torch.trace._backups import BackupSummary
from aikido_torch.trace._chrome import write_chrome
from aikido_torch.trace._dump import Clock, Dump, read
from aikido_torch.trace._facts import LinkStep, RankStep, StepFacts, facts_of
from aikido_torch.trace._flight import write_flight_recorder
from aikido_torch.trace._html import write_html
from aikido_torch.trace._log import EventLog, log_events
from aikido_torch.trace._metrics import Metrics, serve
from aikido_torch.trace._pauses import Pause, pauses_of
from aikido_torch.trace._record import address, save, start, stop, take
from aikido_torch.trace._spans import Kind, Outcome, Span
from aikido_torch.trace._stages import PipelineSummary, StageSummary
from aikido_torch.trace._summary import PauseSummary, RankSummary, Summary, summarize
from aikido_torch.trace._text import report
from aikido_torch.trace._verdict import Culprit, Verdict
from aikido_torch.trace._watch import Watch, watch

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
    "Outcome",
    "Pause",
    "PauseSummary",
    "PipelineSummary",
    "RankStep",
    "RankSummary",
    "Span",
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
