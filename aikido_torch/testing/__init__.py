# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Starts real ranks on this machine, and makes them late, stops or kills them."""

from aikido_torch.testing._faults import die, hold_python_lock, late, stop
from aikido_torch.testing._ranks import RanksFailedError, run_ranks

__all__ = ["RanksFailedError", "die", "hold_python_lock", "late", "run_ranks", "stop"]
