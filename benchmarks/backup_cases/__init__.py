# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The cases of benchmarks/backup.py, judged as those of straggler_cases/case.py.

plan.py      one training, as its ranks get it, and who is late in it
split.py     data that differ between ranks
rank.py      a rank that trains, one training after the other
runs.py      starts the ranks and collects what they saw
"""
