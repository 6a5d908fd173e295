# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases of benchmarks/progress.py, which runs them as straggler.py runs its own.

```text
plan.py      sizes of the net, arms, and patterns of lateness
figures.py   from observations of ranks to progress, share and accuracy
measuring.py runs the blocks of a case, and makes the rows that cases share
healthy.py   no rank is slow; hosts with bbr
pauses.py    one pause; a checkpoint on rank 0
links.py     an uplink that is slow at times, or shared
late.py      ranks that are late often, beside the best policy in hindsight
short.py     the short form of `make test`
```
"""
