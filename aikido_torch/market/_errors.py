# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Error of the market tools, which work without torch."""

__all__ = ["MarketError"]


class MarketError(ValueError):
    """A trace, a price or an argument is wrong; the text names the file and line."""
