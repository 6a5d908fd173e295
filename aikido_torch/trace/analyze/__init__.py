# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What the traces of all ranks show: steps, summaries, culprits and advice."""

__all__: list[str] = []
