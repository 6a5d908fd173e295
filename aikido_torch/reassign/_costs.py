# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Predicted cost of each sample, from a function or a list of the user."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aikido_torch.errors import ConfigError

__all__ = ["Cost", "costs_of_list", "costs_of_part", "joined"]

# Function of a sample, or one number for each sample.
Cost = Callable[[Any], float] | Sequence[float]

_log = logging.getLogger("aikido")
_TELL_EACH_S = 5.0


def costs_of_list(costs: object, num_samples: int) -> npt.NDArray[np.float64]:
    """The costs as an array.

    Raises:
        ConfigError: there is not one positive, finite number for each sample.
    """
    try:
        found = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"StepLoader: cost is a {type(costs).__name__} that is no list of numbers "
            f"({error}); it takes a function of a sample, or one number per sample."
        ) from error
    if found.shape != (num_samples,):
        raise ConfigError(
            f"StepLoader: cost has the shape {list(found.shape)}, but the dataset has "
            f"{num_samples} samples; give one number for each sample."
        )
    wrong = np.flatnonzero(~(np.isfinite(found) & (found > 0)))
    if len(wrong):
        raise ConfigError(why_wrong(int(wrong[0]), float(found[wrong[0]])))
    return found


def why_wrong(index: int, value: object) -> str:
    """Sentence about a cost that is no positive, finite number."""
    return (
        f"StepLoader: the cost of sample {index} is {value!r}; a cost is a finite "
        "number above 0, in any unit."
    )


def costs_of_part(
    cost: Callable[[Any], float],
    sample: Callable[[int], Any],
    indices: range,
    clock: Callable[[], float] = time.monotonic,
) -> npt.NDArray[np.float64] | str:
    """Costs of these samples, or a sentence about the first one without a valid cost.

    Args:
        cost: function of the user.
        sample: reads a sample.
        indices: of the samples.
        clock: seconds, for the lines in the log about a long evaluation.
    """
    found = np.empty(len(indices))
    begin = told = clock()
    for place, index in enumerate(indices):
        try:
            value = float(cost(sample(index)))
        except Exception as error:
            return (
                f"StepLoader: cost raised {type(error).__name__} for sample {index}: "
                f"{error}"
            )
        if not (math.isfinite(value) and value > 0):
            return why_wrong(index, value)
        found[place] = value
        if (now := clock()) - told > _TELL_EACH_S:
            told = now
            _log.info(
                "StepLoader: the costs of %d of %d samples are known after %.0f s.",
                place + 1,
                len(indices),
                now - begin,
            )
    return found


def joined(
    parts: Sequence[npt.NDArray[np.float64] | str],
) -> npt.NDArray[np.float64]:
    """Costs of all samples, from the parts of all ranks in order.

    Raises:
        ConfigError: a part is a sentence; the text names its rank.
    """
    for rank, part in enumerate(parts):
        if isinstance(part, str):
            raise ConfigError(f"{part.rstrip('.')} (found by rank {rank}).")
    return np.concatenate([part for part in parts if not isinstance(part, str)])
