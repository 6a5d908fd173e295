# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Measurements of benchmarks/tracing.py."""
