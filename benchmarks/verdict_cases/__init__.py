# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What benchmarks/verdicts.py measures."""
