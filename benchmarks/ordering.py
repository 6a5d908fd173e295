# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Order of transfers: urgent transfers beside bulk, and training that uses the order.

Bars are fixed in advance (--list). The cases need root, for the hosts of lab/. A case
that fails reports it, and the next one runs.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.ordering_cases import (
    conv,
    crossover,
    ddp,
    forward,
    urgent,
    urgent_stream,
    urgent_tuning,
)
from benchmarks.straggler_cases import command

CASES = [
    *urgent.CASES,
    *urgent_stream.CASES,
    *urgent_tuning.CASES,
    *crossover.CASES,
    *ddp.CASES,
    *conv.CASES,
    *forward.CASES,
]


main = command.command(
    "the order of transfers",
    CASES,
    "Measures the order of transfers against its bars.",
)

if __name__ == "__main__":
    command.start(main)
