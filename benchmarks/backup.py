# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Active-Backup: its gain, and its cost in time, computation and bytes.

Bars are fixed in advance (--list). Cases with links or bytes need root, for the hosts
of lab/; `accuracy` and `two-late` do not. A case that fails reports it, and the next
one runs.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.backup_cases import accuracy, late, link, resources
from benchmarks.straggler_cases import command

CASES = [*accuracy.CASES, *late.CASES, *resources.CASES, *link.CASES]


main = command.command(
    "Active-Backup",
    CASES,
    "Measures Active-Backup against its bars.",
)

if __name__ == "__main__":
    command.start(main)
