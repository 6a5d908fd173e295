# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases of benchmarks/backup.py, judged like those of straggler_cases/case.py.

```text
plan.py      one training, in the form for its ranks, and its late ranks
split.py     data that differ between ranks
rank.py      a rank that trains, one training after the other
runs.py      starts the ranks and collects their observations
```
"""
