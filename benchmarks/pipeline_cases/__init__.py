# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The cases of benchmarks/pipeline.py that need hosts with slow links.

layers.py      layers that take a known time, and send and keep a known number of bytes
plan.py        runs of pipelines, as the ranks get them
rank.py        a rank: makes a pipeline for each run, and notes when it computed
runs.py        starts the ranks of a case and collects what they saw
records.py     from what ranks saw to periods and idle times
throughput.py  periods of plans, beside what the partitioner says
slow_link.py   one link becomes slow: fixed warm-ups, and those that adapt
"""
