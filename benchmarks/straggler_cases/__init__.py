# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases of benchmarks/straggler.py; case.py defines a case, plan.py its blocks.

```text
case.py      bars, rows, and the treatment of a case that fails
plan.py      blocks of operations and training steps, in the form for the ranks
meeting.py   meeting point of ranks, outside of the measured network
runs.py      starts the ranks of a case and collects their observations
op_rank.py   a rank that calls allreduce, block by block
step_rank.py a rank that trains, block by block
command.py   lists and runs cases; also for benchmarks/backup.py
records.py   from observations to times; links.py and the others judge them
```
"""
