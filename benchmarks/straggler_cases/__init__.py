# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The cases of benchmarks/straggler.py; case.py says what one is, plan.py how it runs.

case.py      bars, rows, and what happens to a case that fails
plan.py      blocks of operations and of training steps, as the ranks get them
meeting.py   where ranks meet, beside the network that is measured
runs.py      starts the ranks of a case and collects what they saw
op_rank.py   a rank that calls allreduce, block by block
step_rank.py a rank that trains, block by block
command.py   lists and runs cases; those of benchmarks/backup.py too
records.py   from what ranks saw to times; links.py and the others judge them
"""
