# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The cases of benchmarks/ordering.py, judged as those of straggler_cases/case.py.

crossover.py    from which size on fewer bytes beat fewer messages, by latency
ddp.py          training whose sums go on in the next forward, beside DDP
ddp_plan.py     one training, as its ranks get it
ddp_rank.py     a rank that trains, one training after the other
ddp_runs.py     starts the ranks and collects what they saw
forward.py      forward passes whose parameters come over the link, in TAC's order
forward_rank.py a rank that does them
urgent.py       an allreduce that is urgent, behind others that are not
urgent_plan.py  one turn of it, as its ranks get it
urgent_rank.py  a rank that takes turns
urgent_runs.py  starts the ranks and collects what they saw
urgent_stream.py, urgent_stream_rank.py
                an urgent message while bulk is on its way all the time
urgent_tuning.py
                the credit after a change of rate, beside fixed ones
"""
