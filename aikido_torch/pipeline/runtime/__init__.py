# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runs a pipeline: stages, messages, checkpoints, and changes of the plan."""

__all__: list[str] = []
