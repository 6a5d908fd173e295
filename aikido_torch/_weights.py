# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Weights of contributions, as users give them."""

import math
import numbers

from aikido_torch.errors import ConfigError

__all__ = ["weight_of"]


def weight_of(call: str, weight: object) -> float:
    """`weight` as a float, which may be out of range.

    Args:
        call: what takes the weight, for the error.
        weight: the argument of the user.

    Raises:
        ConfigError: it is no number.
    """
    if isinstance(weight, numbers.Real) and not isinstance(weight, bool):
        try:
            return float(weight)
        except OverflowError:
            return math.inf
    raise ConfigError(
        f"{call}: weight is {weight!r}; pass a number, such as the number of samples "
        "of this rank (`.item()` of a tensor), or leave it out on all ranks."
    )
