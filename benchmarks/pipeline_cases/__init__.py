# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases of benchmarks/pipeline.py that need hosts with slow links.

```text
layers.py      layers that take a known time, and send and keep known bytes
plan.py        runs of pipelines, in the form for the ranks
rank.py        a rank: makes a pipeline for each run, and notes its computation
runs.py        starts the ranks of a case and collects their observations
records.py     from observations of ranks to periods and idle times
throughput.py  periods of plans, beside the partitioner's predictions
slow_link.py   one link becomes slow: fixed warm-ups, and adaptive ones
```
"""
