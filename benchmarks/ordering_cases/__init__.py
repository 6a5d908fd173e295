# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The cases of benchmarks/ordering.py, judged as those of straggler_cases/case.py.

urgent.py       an allreduce that is urgent, behind others that are not
urgent_plan.py  one turn of it, as its ranks get it
urgent_rank.py  a rank that takes turns
urgent_runs.py  starts the ranks and collects what they saw
"""
