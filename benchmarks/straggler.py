# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Skip-straggler allreduce on hosts with slow links, late ranks and dead ranks.

Every case measures aikido, comparison values and Gloo in turns by the same processes,
and judges by bars that are fixed in advance (--list). It needs root, for the hosts of
lab/; only healthy-small does not. A case that fails reports it, and the next one runs.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.straggler_cases import command, faults, late, links, training

CASES = [*links.CASES, *late.CASES, *faults.CASES, *training.CASES]


main = command.command(
    "skip-straggler allreduce",
    CASES,
    "Measures skip-straggler allreduce against its bars, interleaved with Gloo.",
)

if __name__ == "__main__":
    command.start(main)
