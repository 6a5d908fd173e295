# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What a pipeline will do: profiles, partitions, cuts of the model, and schedules."""

__all__: list[str] = []
