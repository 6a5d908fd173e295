# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Starts real ranks on this machine, and makes them late, stops or kills them.

`run_ranks(4, train)` calls `train` in four processes and returns their values. In a
rank, `late(seconds)` makes the thread sleep, `stop(seconds)` stops the process, and
`die()` kills it.
"""

from aikido_torch.testing._faults import die, late, stop
from aikido_torch.testing._ranks import run_ranks

__all__ = ["die", "late", "run_ranks", "stop"]
