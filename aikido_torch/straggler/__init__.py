# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Policies for late ranks: who is waited for, and how long."""

from aikido_torch.straggler._carry import Carry
from aikido_torch.straggler._policies import (
    ActiveBackup,
    Policy,
    SkipStraggler,
    WaitAll,
)
from aikido_torch.straggler._steps import StepCounters
from aikido_torch.straggler.report import report

__all__ = [
    "ActiveBackup",
    "Carry",
    "Policy",
    "SkipStraggler",
    "StepCounters",
    "WaitAll",
    "report",
]
