# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases of benchmarks/reassign.py, which runs them as straggler.py runs its own.

```text
plan.py     work of each micro-batch, slowness of each rank, and the ideal
runs.py     starts the ranks of a case and collects their observations
rank.py     a rank: computes by a timer, in each arm
figures.py  from observations of ranks to seconds per step, moves and losses
cases.py    the cases and their bars
short.py    the short form of `make test`
```
"""
