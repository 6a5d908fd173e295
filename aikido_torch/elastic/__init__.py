# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Training on machines that come and go, without a restart.

Some machines are reliable, and many cheap machines disappear with or without a warning.
A member is `reliable` or `transient` for its whole life.
"""

__all__: list[str] = []
