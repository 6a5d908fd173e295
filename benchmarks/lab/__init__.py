# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Several hosts on one machine, with slow links between them; see README.md."""

from benchmarks.lab.lab import Lab, LabError, Link, Traffic, remove_leftovers
from benchmarks.lab.ranks import RankEnd
from benchmarks.lab.script import Event, on_off_flows, parse
from benchmarks.lab.warm import Program

__all__ = [
    "Event",
    "Lab",
    "LabError",
    "Link",
    "Program",
    "RankEnd",
    "Traffic",
    "on_off_flows",
    "parse",
    "remove_leftovers",
]
