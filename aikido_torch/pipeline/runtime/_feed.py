# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sources of the micro-batches of a run."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import torch

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.runtime._stage import Tensors

__all__ = ["BatchFeed", "LoaderFeed", "Order", "endless", "pair_of"]

_MOST_NUMBERS = 1024  # numbers of a tensor that are hashed to distinguish batches


def rows_of(value: Any, what: str) -> int:
    """Size of dimension 0 of a tensor, or of several tensors with equal size.

    Raises:
        ConfigError: a tensor has no dimension, or the sizes differ.
    """
    tensors = as_tensors(value, what)
    sizes = {tensor.shape[0] if tensor.dim() else None for tensor in tensors}
    if len(sizes) != 1 or None in sizes:
        raise ConfigError(
            f"{what} have tensors of {[list(t.shape) for t in tensors]}; dimension 0 "
            "of all of them counts the rows."
        )
    (size,) = sizes
    assert size is not None
    return size


def as_tensors(value: Any, what: str) -> Tensors:
    """A tuple of one tensor or several.

    Raises:
        ConfigError: the value is something else.
    """
    tensors = (value,) if isinstance(value, torch.Tensor) else value
    if not isinstance(tensors, tuple | list) or not all(
        isinstance(tensor, torch.Tensor) for tensor in tensors
    ):
        raise ConfigError(
            f"{what} are a {type(value).__name__}; pass a tensor or a tuple of tensors."
        )
    return tuple(tensors)


def pair_of(taken: Any) -> tuple[Any, Any]:
    """Inputs and targets from one item of a loader.

    Raises:
        ConfigError: the item is no pair.
    """
    if not isinstance(taken, tuple | list) or len(taken) != 2:
        raise ConfigError(
            f"the loader gave a {type(taken).__name__}; it takes one that gives pairs "
            "of inputs and targets."
        )
    return taken[0], taken[1]


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """The items of the loader, restarted at its end without limit.

    Raises:
        ConfigError: the loader has no items.
    """
    while True:
        is_empty = True
        for taken in loader:
            is_empty = False
            yield taken
        if is_empty:
            raise ConfigError(
                "the loader is at its end and gives no more batches; pass one that can "
                "be begun again, or ask for fewer steps."
            )


class Order:
    """Check that loaders of several ranks yield equal batches in equal order.

    It compares targets, because inputs may contain random augmentation of each rank.
    """

    def __init__(self) -> None:
        # Checksum of all targets so far; None if some are no tensors.
        self.mark: int | None = 0

    def note(self, target: Any) -> None:
        """Adds the next target."""
        tensors = (target,) if isinstance(target, torch.Tensor) else target
        is_told = isinstance(tensors, tuple | list) and all(
            isinstance(tensor, torch.Tensor) for tensor in tensors
        )
        if not is_told or self.mark is None:
            self.mark = None
            return
        for tensor in tensors:
            told = tensor.detach().reshape(-1)[:_MOST_NUMBERS].cpu().contiguous()
            head = f"{list(tensor.shape)}".encode()
            content = told.view(torch.uint8).numpy().tobytes()
            self.mark = zlib.crc32(head + content, self.mark)

    @staticmethod
    def differing(marks: Mapping[int, int | None]) -> tuple[int, int] | None:
        """Two keys whose loaders yielded different batches; None if there are none."""
        known = {key: mark for key, mark in marks.items() if mark is not None}
        for key, mark in known.items():
            first = next(iter(known))
            if mark != known[first]:
                return first, key
        return None


class BatchFeed:
    """One batch, cut along dimension 0 into micro-batches whose sizes differ by at most
    1.

    Args:
        inputs, targets: tensors; None on ranks that do not need them.
        num_micro_batches: number of parts.
    """

    def __init__(self, inputs: Any, targets: Any, num_micro_batches: int) -> None:
        self._count = num_micro_batches
        self._inputs: list[Tensors] = []
        self._targets: list[Any] = []
        self._full = 0
        if inputs is not None:
            self._full = self._full_of(rows_of(inputs, "inputs"))
            cut = self._cut(as_tensors(inputs, "inputs"))
            self._inputs = [tuple(map(_counted_alone, part)) for part in cut]
        if targets is not None:
            self._full_target = self._full_of(rows_of(targets, "targets"))
            cut = self._cut(as_tensors(targets, "targets"))
            is_one = isinstance(targets, torch.Tensor)
            self._targets = [part[0] if is_one else part for part in cut]

    def _full_of(self, rows: int) -> int:
        if rows == 0:
            raise ConfigError("the batch has no rows.")
        return -(-rows // self._count)

    def _cut(self, tensors: Tensors) -> list[Tensors]:
        parts = [torch.tensor_split(tensor, self._count) for tensor in tensors]
        return list(zip(*parts, strict=True))

    def inputs(self, micro_batch: int) -> tuple[Tensors, float]:
        """Inputs of the first stage, and the weight of the micro-batch."""
        taken = self._inputs[micro_batch]
        return taken, taken[0].shape[0] / self._full

    def target(self, micro_batch: int, weight: float) -> Any:
        """Targets for the last stage."""
        taken = self._targets[micro_batch]
        rows = rows_of(taken, "targets")
        if rows / self._full_target != weight:
            raise ConfigError(
                f"micro-batch {micro_batch} has {rows} rows of targets, "
                f"{rows / self._full_target:g} of a full one, and its inputs are "
                f"{weight:g} of a full one; inputs and targets of a step have as many "
                "rows."
            )
        return taken


def _counted_alone(part: torch.Tensor) -> torch.Tensor:
    """The same memory with its own version counter.

    Views of one tensor share its version counter. If a stage changes its input in
    place, autograd would report a change of tensors that other micro-batches have
    saved.
    """
    return part if part.requires_grad else part.data


class LoaderFeed:
    """Batches of a loader, each as one micro-batch; the loader is restarted at its end.

    Args:
        loader: yields pairs of inputs and targets; None on ranks that need neither.
        count: number of batches to take; further micro-batches of a run have no rows.
        of_first, of_last: micro-batches of a run whose first or last stage this rank
            computes.
    """

    def __init__(
        self,
        loader: Iterable[Any] | None,
        count: int,
        of_first: Set[int],
        of_last: Set[int],
    ) -> None:
        self._batches = endless(loader) if loader is not None else None
        self.order = Order()
        self._left = count
        self._of_first = of_first
        self._of_last = of_last
        self._full = 0  # rows of the first batch
        self.begin_run()

    def begin_run(self) -> None:
        """Starts to count micro-batches at 0 again."""
        self._next = 0
        self._inputs: dict[int, tuple[Tensors, float]] = {}
        self._targets: dict[int, Any] = {}

    def end_run(self, num_micro_batches: int) -> None:
        """Takes the remaining batches of the run, which this rank does not use."""
        if self._batches is not None:
            self._fetch(num_micro_batches - 1)

    def inputs(self, micro_batch: int) -> tuple[Tensors, float]:
        """Inputs of the first stage, and the weight of the micro-batch."""
        self._fetch(micro_batch)
        return self._inputs.pop(micro_batch)

    def target(self, micro_batch: int, weight: float) -> Any:
        """Targets for the last stage."""
        self._fetch(micro_batch)
        target = self._targets.pop(micro_batch)
        if (target is None) != (weight == 0):
            raise ConfigError(
                f"the loader has ended at micro-batch {micro_batch} on one of the "
                "ranks of the first and the last stage and not on the other; give all "
                "of them the same."
            )
        return target

    def _fetch(self, micro_batch: int) -> None:
        while self._next <= micro_batch:
            b = self._next
            self._next += 1
            inputs: Tensors = ()
            target = None
            weight = 0.0
            if self._left > 0:
                self._left -= 1
                inputs, target, weight = self._taken()
            if b in self._of_first:
                self._inputs[b] = inputs, weight
            if b in self._of_last:
                self._targets[b] = target

    def _taken(self) -> tuple[Tensors, Any, float]:
        if self._batches is None:
            raise ConfigError(
                "this rank has the first or the last stage and no loader; pass one."
            )
        inputs, target = pair_of(next(self._batches))
        self.order.note(target)
        rows = rows_of(inputs, "inputs")
        self._full = self._full or rows
        return as_tensors(inputs, "inputs"), target, rows / self._full
