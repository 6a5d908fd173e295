# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Active-Backup: what it saves, and what it costs in time, computation and bytes.

Bars are fixed beforehand (--list). Cases with links or bytes need root, for the hosts
of lab/; `accuracy` and `two-late` do without. A case that fails says so and the next
one runs.
"""

import contextlib
import sys
from pathlib import Path

import typer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.backup_cases import accuracy, late, link, resources
from benchmarks.straggler_cases import command

CASES = [*accuracy.CASES, *late.CASES, *resources.CASES, *link.CASES]


def main(
    cases: command.Names = None,
    json_file: common.JsonPath = None,
    full: command.Full = False,
    seed: command.Seed = 0,
    details: command.Details = None,
    show_list: command.ShowList = False,
) -> None:
    """Measures Active-Backup against its bars."""
    command.run(
        "Active-Backup",
        CASES,
        cases,
        json_file=json_file,
        is_full=full,
        seed=seed,
        details=details,
        show_list=show_list,
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
