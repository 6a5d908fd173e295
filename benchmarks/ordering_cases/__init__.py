# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases of benchmarks/ordering.py, judged like those of straggler_cases/case.py.

```text
crossover.py    size above which fewer bytes beat fewer messages, by latency
ddp.py          training whose sums continue in the next forward, beside DDP
ddp_plan.py     one training, in the form for its ranks
ddp_rank.py     a rank that trains, one training after the other
ddp_runs.py     starts the ranks and collects their observations
forward.py      forward passes with parameters over the link, in TAC's order
forward_rank.py a rank that does them
urgent.py       an urgent allreduce after others that are not urgent
urgent_plan.py  one turn of it, in the form for its ranks
urgent_rank.py  a rank that takes turns
urgent_runs.py  starts the ranks and collects their observations
urgent_stream.py, urgent_stream_rank.py
                an urgent message during continuous bulk traffic
urgent_tuning.py
                the limit of bytes in flight after a change of rate, beside
                fixed limits
```
"""
