# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Policies for late ranks: waiting times, skipped ranks and stand-ins.

`WaitAll`, `SkipStraggler` and `ActiveBackup` are the policies; each is a `Policy`.
"""

from aikido_torch._moved import moved_names
from aikido_torch.straggler._carry import Carry
from aikido_torch.straggler._policies import (
    ActiveBackup,
    Policy,
    SkipStraggler,
    WaitAll,
)
from aikido_torch.straggler._report import report

__all__ = ["ActiveBackup", "Carry", "Policy", "SkipStraggler", "WaitAll", "report"]

__getattr__ = moved_names(
    __name__,
    {
        name: f"aikido_torch.data.{name}"
        for name in ("BackupSampler", "SeededDataset", "seed_of")
    },
)
