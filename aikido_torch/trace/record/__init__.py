# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Records spans and events on each rank, and collects the traces of all ranks."""

__all__: list[str] = []
