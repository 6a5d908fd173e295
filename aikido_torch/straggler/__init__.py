# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Policies for late ranks: waiting times, skipped ranks and stand-ins."""

from aikido_torch.straggler._carry import Carry
from aikido_torch.straggler._policies import (
    ActiveBackup,
    Policy,
    SkipStraggler,
    WaitAll,
)
from aikido_torch.straggler._progress import Progress
from aikido_torch.straggler._report import report
from aikido_torch.straggler._share_watch import ShareWatch
from aikido_torch.straggler._steps import StepCounters, Steps
from aikido_torch.straggler._waiting import Waiting

__all__ = [
    "ActiveBackup",
    "Carry",
    "Policy",
    "Progress",
    "ShareWatch",
    "SkipStraggler",
    "StepCounters",
    "Steps",
    "WaitAll",
    "Waiting",
    "report",
]
