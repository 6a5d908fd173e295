# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Results of a loss function, and the weight of micro-batches.

Note [weight of a loss]
A pipeline calls the loss function once for each micro-batch and makes one update of
several micro-batches. A loss that is the mean over rows is weighed by rows. A loss that
is a sum, or a mean over tokens whose number differs between rows, would give wrong
gradients with these weights, and its value alone does not show its kind. So a loss
function may return the sum and the count by which it must be divided. Gradients of sums
are added up over micro-batches and replicas, and divided by the sum of counts. The
count of a micro-batch is sent back to earlier stages with its gradient.

A loss without a count is checked at the first, second, fourth, eighth ... micro-batch.
The micro-batch is cut in two: the loss of the whole must be the mean of the losses of
both parts, weighed by rows. The same must hold for its first row and the first row of
the next micro-batch. The check restores the state of the random generators.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from aikido_torch.errors import ConfigError

__all__ = ["Loss", "LossCheck", "check_loss_function", "loss_of", "told"]

# Limit of the elements of a micro-batch's first row that are kept until the next one.
_MOST_KEPT = 1 << 24

_REMEDY = (
    "Return the sum and the count that it is divided by, as in "
    '(cross_entropy(outputs, targets, reduction="sum"), targets.numel()), or the mean '
    "over rows"
)


@dataclass(frozen=True)
class Loss:
    """Loss of one micro-batch."""

    root: torch.Tensor  # tensor with which the backward begins
    count: float | None  # divisor of `root`; None: `root` is the mean over rows

    @property
    def mean(self) -> torch.Tensor:
        """The loss value for users."""
        value = self.root.detach()
        return value / self.count if self.count else value


def check_loss_function(loss_fn: Any) -> None:
    """Refuses a loss function with an attribute that shows a sum or no reduction.

    Raises:
        ConfigError: `reduction` is "sum" or "none", or it is not callable.
    """
    if not callable(loss_fn):
        raise ConfigError(
            f"loss_fn is a {type(loss_fn).__name__}; pass a function of what the last "
            "stage returns and the targets."
        )
    reduction = getattr(loss_fn, "reduction", None)
    if isinstance(loss_fn, partial):
        reduction = loss_fn.keywords.get("reduction", reduction)
    if reduction in ("sum", "none"):
        raise ConfigError(
            f'loss_fn has reduction="{reduction}": {_of_many("its value")} {_REMEDY}.'
        )


def loss_of(returned: Any, stage: int, micro_batch: int) -> Loss:
    """The loss in the result of a loss function.

    Args:
        returned: the result.
        stage, micro_batch: for the error text.

    Raises:
        ConfigError: it is no scalar tensor, and no pair of a sum and a count.
    """
    is_pair = isinstance(returned, tuple | list) and len(returned) == 2
    total, count = returned if is_pair else (returned, None)
    if isinstance(count, torch.Tensor) and count.numel() == 1:
        count = count.item()
    is_number = isinstance(count, int | float) and not isinstance(count, bool)
    is_one = isinstance(total, torch.Tensor) and total.dim() == 0
    start = f"stage {stage}, the last: loss_fn returned "
    if not is_one or (is_pair and not is_number):
        raise ConfigError(
            f"{start}{told(returned)} for micro-batch {micro_batch}; it takes a tensor "
            "of one number, without dimensions, or a pair of such a sum and the count "
            "that it is divided by."
        )
    if count is None:
        return Loss(total, None)
    if not math.isfinite(count) or count < 0:
        raise ConfigError(
            f"{start}the count {count} for micro-batch {micro_batch}; it takes a "
            "finite number from 0 up."
        )
    return Loss(total, float(count))


class LossCheck:
    """Check whether a loss without a count is the mean over rows."""

    def __init__(self, loss_fn: Callable[[Any, Any], Any] | None) -> None:
        self._loss_fn = loss_fn
        self._num_seen = 0
        self._has_warned = False
        # First row of the micro-batch before, if that was checked.
        self._one_row: _Row | None = None

    def is_due(self) -> bool:
        """True if the next micro-batch must be checked; counts it."""
        self._num_seen += 1
        return self._num_seen & (self._num_seen - 1) == 0 or self._one_row is not None

    def look(
        self,
        outputs: Any,
        target: Any,
        loss: torch.Tensor,
        *,
        same_random_numbers: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Checks one micro-batch, after its loss was computed.

        Args:
            outputs: outputs of the last stage.
            target: targets.
            loss: the loss of the whole micro-batch.
            same_random_numbers: context for each further call of the loss function.

        Raises:
            ConfigError: the loss is no mean over rows.
        """
        before, self._one_row = self._one_row, None
        rows = _common_rows(outputs, target)
        if rows is None:
            self._warn("its arguments have no rows in common along dimension 0")
            return
        whole = float(loss.detach())

        def loss_of_part(outputs: Any, target: Any) -> float:
            assert self._loss_fn is not None
            with torch.no_grad(), same_random_numbers():
                return float(self._loss_fn(outputs, target))

        try:
            if rows > 1:
                at = (rows + 1) // 2
                parts = [
                    loss_of_part(*_part((outputs, target), rows, *cut))
                    for cut in ((0, at), (at, rows))
                ]
                self._judge(whole, parts, [at, rows - at], loss.dtype)
            one = _Row(*_part((outputs, target), rows, 0, 1))
            if before is None and one.num_numbers() <= _MOST_KEPT:
                self._one_row = one
            # The same row twice detects a sum; two rows also detect a mean over tokens.
            other = before if before is not None and before.fits(one) else one
            # The loss may use random numbers, so both are computed with the same random
            # state.
            parts = [loss_of_part(row.outputs, row.target) for row in (other, one)]
            both = loss_of_part(*other.with_rows_of(one))
            self._judge(both, parts, [1, 1], loss.dtype)
        except ConfigError:
            raise
        except Exception as error:
            self._warn(f"it fails for a part: {type(error).__name__}: {error}")

    def _warn(self, why: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        warnings.warn(
            f"whether loss_fn is the mean over rows cannot be checked, since {why}. "
            f"Gradients are wrong if it is a sum or a mean over tokens. {_REMEDY}.",
            stacklevel=2,
        )

    def _judge(
        self, whole: float, parts: list[float], rows: list[int], dtype: torch.dtype
    ) -> None:
        if not math.isfinite(whole):
            return
        mean = sum(p * r for p, r in zip(parts, rows, strict=True)) / sum(rows)
        # Sums of many numbers in another order differ by more than one rounding.
        tolerance = math.sqrt(torch.finfo(dtype).eps) * max(map(abs, (whole, *parts)))
        if abs(whole - mean) <= tolerance:
            return
        is_sum = abs(whole - sum(parts)) <= tolerance
        what = (
            "is the sum over rows"
            if is_sum
            else "is neither the mean nor the sum over rows, maybe a mean over tokens"
        )
        raise ConfigError(
            f"loss_fn {what}: it is {whole:.6g} for {sum(rows)} rows, {parts[0]:.6g} "
            f"for the first {rows[0]} of them and {parts[1]:.6g} for the other "
            f"{rows[1]}. "
            f"{_of_many('It')} {_REMEDY}; with (loss * rows, rows) "
            "it is weighed by rows whatever it is."
        )


def _of_many(what: str) -> str:
    return f"{what} says not how micro-batches and replicas are weighed."


def told(value: Any) -> str:
    """Description of a value for an error text."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {list(value.shape)}"
    if isinstance(value, tuple | list) and len(value) == 2:
        return f"a {type(value).__name__} of {told(value[0])} and {told(value[1])}"
    return f"a {type(value).__name__}"


def _tensors_in(value: Any) -> Sequence[torch.Tensor] | None:
    tensors = (value,) if isinstance(value, torch.Tensor) else value
    if not isinstance(tensors, tuple | list) or not tensors:
        return None
    is_known = all(isinstance(t, torch.Tensor) and t.dim() > 0 for t in tensors)
    return tensors if is_known else None


def _rows_of(value: Any) -> int | None:
    tensors = _tensors_in(value)
    sizes = {tensor.shape[0] for tensor in tensors} if tensors else set()
    return sizes.pop() if len(sizes) == 1 else None


def _common_rows(outputs: Any, target: Any) -> int | None:
    """Common number of rows; one argument may have several entries per row, as for
    tokens.
    """
    sizes = [_rows_of(outputs), _rows_of(target)]
    known = [size for size in sizes if size is not None and size > 0]
    if len(known) < len(sizes) or max(known) % min(known):
        return None
    return min(known)


def _part(values: tuple[Any, Any], rows: int, begin: int, end: int) -> tuple[Any, Any]:
    """Copies of rows, because a loss function may change its arguments in place."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        each = tensor.shape[0] // rows
        return tensor.detach()[begin * each : end * each].clone()

    outputs, target = values
    return _mapped(cut, outputs), _mapped(cut, target)


def _mapped(call: Callable[..., torch.Tensor], value: Any, *others: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return call(value, *others)
    return tuple(call(*tensors) for tensors in zip(value, *others, strict=True))


@dataclass(frozen=True)
class _Row:
    """The first row of a micro-batch."""

    outputs: Any
    target: Any

    def num_numbers(self) -> int:
        values = (*(_tensors_in(self.outputs) or ()), *(_tensors_in(self.target) or ()))
        return sum(tensor.numel() for tensor in values)

    def fits(self, other: "_Row") -> bool:
        def shapes(seen: "_Row") -> list[torch.Size]:
            values = (_tensors_in(seen.outputs) or (), _tensors_in(seen.target) or ())
            return [tensor.shape for of_kind in values for tensor in of_kind]

        return shapes(self) == shapes(other)

    def with_rows_of(self, other: "_Row") -> tuple[Any, Any]:
        """Outputs and targets of both rows."""

        def joined(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
            return torch.cat((one, two))

        return (
            _mapped(joined, self.outputs, other.outputs),
            _mapped(joined, self.target, other.target),
        )
