# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The tensors of one micro-batch as one message whose size both ends know in advance.

Note [promise of a stage]
The first output of a stage determines its promise: number, dtypes and shapes of the
tensors, and which of them need a gradient. The promise is sent once
(`Promise.message_of`). From then on each message has room for such tensors, and a
trailer with the rows of each tensor and the weight of the micro-batch (its share of a
full one). So receives can be posted long before the size of a micro-batch is known.
With fewer rows, room stays empty. With more rows, the message says so, and the tensors
follow in a second message (`Packed.overflow`).
"""

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from aikido_torch.errors import ConfigError

__all__ = ["MESSAGE_BYTES", "Packed", "Promise", "TensorPromise", "Unpacked"]

# Size of the message with a promise.
MESSAGE_BYTES = 4096
# Alignment of each tensor in a message, in bytes.
_ALIGNMENT = 16
# The trailer has the weight, and the rows of each tensor.
_END_DTYPE = torch.float64
_MOST_ENDS = 64  # number of trailers that are cached with a promise
# Value in place of the rows if the tensors follow in a second message.
_OVERFLOWS = -1


@dataclass(frozen=True)
class TensorPromise:
    """One tensor of a promise; its dimension 0 counts rows, and may be smaller."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    needs_gradient: bool

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def told(self) -> str:
        return f"{list(self.shape)} of {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Packed:
    """A message, and the second message if there was not enough room."""

    buffer: torch.Tensor
    overflow: torch.Tensor | None


@dataclass(frozen=True)
class Unpacked:
    """Content of a message; `overflow_rows` are the rows of tensors in a second
    message.
    """

    tensors: tuple[torch.Tensor, ...]
    weight: float
    overflow_rows: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Promise:
    """Form of each message between two stages."""

    tensors: tuple[TensorPromise, ...]

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> "Promise":
        return cls(
            tuple(
                TensorPromise(tuple(t.shape), t.dtype, t.requires_grad) for t in tensors
            )
        )

    @staticmethod
    def message_of(promise: "Promise | None") -> torch.Tensor:
        """A message of MESSAGE_BYTES bytes with a promise, or with None for no promise.

        Raises:
            ConfigError: the promise has too many tensors for the message.
        """
        told = promise and [
            (list(t.shape), str(t.dtype).removeprefix("torch."), t.needs_gradient)
            for t in promise.tensors
        ]
        text = json.dumps(told).encode()
        if len(text) > MESSAGE_BYTES:
            raise ConfigError(
                f"a stage returns {len(told or ())} tensors, more than can be told in "
                f"{MESSAGE_BYTES} bytes; join some of them."
            )
        return torch.frombuffer(bytearray(text.ljust(MESSAGE_BYTES)), dtype=torch.uint8)

    @classmethod
    def from_message(cls, message: torch.Tensor) -> "Promise | None":
        """The promise in a message of `message_of`."""
        told = json.loads(bytes(message.tolist()))
        if told is None:
            return None
        return cls(
            tuple(
                TensorPromise(tuple(shape), getattr(torch, dtype), needs)
                for shape, dtype, needs in told
            )
        )

    @functools.cached_property
    def gradients(self) -> "Promise":
        """The promise of the gradients that are sent back."""
        kept = (t for t in self.tensors if t.needs_gradient)
        return Promise(tuple(replace(t, needs_gradient=False) for t in kept))

    @functools.cached_property
    def num_bytes(self) -> int:
        """Bytes of a message."""
        told = _END_DTYPE.itemsize * (1 + len(self.tensors))
        return _END_DTYPE.itemsize * self._end + _rounded_up(told)

    @functools.cached_property
    def _end(self) -> int:
        size = sum(_rounded_up(t.num_bytes) for t in self.tensors)
        return size // _END_DTYPE.itemsize

    def check(
        self, tensors: Sequence[torch.Tensor], stage: int, micro_batch: int
    ) -> None:
        """Checks that the outputs of a stage differ from its promise only in their
        rows.

        Raises:
            ConfigError: they differ in more.
        """
        if len(tensors) != len(self.tensors) or any(
            given.dtype != promised.dtype
            or len(given.shape) != len(promised.shape)
            or given.shape[1:] != promised.shape[1:]
            for given, promised in zip(tensors, self.tensors, strict=True)
        ):
            raise ConfigError(
                f"stage {stage} returned for micro-batch {micro_batch} "
                f"{_all_told(self.of(tensors))}, and before {_all_told(self)}; all "
                "micro-batches have the same shapes but for dimension 0."
            )
        for number, (given, promised) in enumerate(
            zip(tensors, self.tensors, strict=True)
        ):
            if given.requires_grad != promised.needs_gradient:
                now, before = ("with", "without")[:: 1 if given.requires_grad else -1]
                raise ConfigError(
                    f"stage {stage} returned tensor {number} of micro-batch "
                    f"{micro_batch} {now} need of a gradient, and before {before}; "
                    "either all micro-batches need one for it or none does."
                )

    def buffer(self, device: torch.device) -> torch.Tensor:
        """A new buffer for a message."""
        return torch.empty(self.num_bytes, dtype=torch.uint8, device=device)

    def pack(
        self,
        tensors: Sequence[torch.Tensor] | None,
        weight: float,
        device: torch.device,
    ) -> Packed:
        """Copies tensors that passed `check` into a message; None means no rows."""
        if tensors is not None and len(tensors) == 1 and self._is_full(tensors[0]):
            end = self._full_ends.get(weight)
            if end is None:
                # With counts of tokens, nearly each weight is different.
                if len(self._full_ends) >= _MOST_ENDS:
                    self._full_ends.clear()
                end = self._full_ends[weight] = self._end_of_full(weight, device)
            buffer = torch.cat((tensors[0].detach().reshape(-1), end))
            return Packed(buffer.view(torch.uint8), None)
        buffer = self.buffer(device)
        rows = [0] * len(self.tensors)
        overflow = None
        if tensors is not None:
            rows = [_rows_of(tensor.shape) for tensor in tensors]
            if any(
                r > _rows_of(t.shape) for r, t in zip(rows, self.tensors, strict=True)
            ):
                promise = self.of(tensors)
                overflow = promise.buffer(device)
                promise._fill(overflow, tensors)
                rows = [_OVERFLOWS - r for r in rows]
            else:
                self._fill(buffer, tensors)
        told = torch.tensor([weight, *rows], dtype=_END_DTYPE)
        buffer.view(_END_DTYPE)[self._end : self._end + len(told)] = told
        return Packed(buffer, overflow)

    def unpack(self, buffer: torch.Tensor) -> Unpacked:
        """The tensors in a message, as views."""
        end = buffer.view(_END_DTYPE)[self._end : self._end + 1 + len(self.tensors)]
        weight, *told = end.tolist()
        rows = [int(r) for r in told]
        if any(r < 0 for r in rows):
            return Unpacked((), weight, tuple(_OVERFLOWS - r for r in rows))
        return Unpacked(self._tensors_in(buffer, rows), weight)

    def of_rows(self, rows: Sequence[int]) -> "Promise":
        """The same promise with other numbers of rows."""
        return Promise(
            tuple(
                replace(t, shape=(r, *t.shape[1:]) if t.shape else ())
                for t, r in zip(self.tensors, rows, strict=True)
            )
        )

    def tensors_in(self, buffer: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors of a second message, which has no trailer."""
        return self._tensors_in(buffer, [_rows_of(t.shape) for t in self.tensors])

    def _is_full(self, tensor: torch.Tensor) -> bool:
        return tensor.shape == self._full_shape

    @functools.cached_property
    def _full_shape(self) -> tuple[int, ...] | None:
        """Shape of the only tensor, if no padding follows it; otherwise None."""
        first = self.tensors[0]
        is_dense = first.num_bytes == _rounded_up(first.num_bytes)
        return first.shape if is_dense and len(self.tensors) == 1 else None

    @functools.cached_property
    def _full_ends(self) -> dict[float, torch.Tensor]:
        """By weight: the trailer after a tensor with all promised rows."""
        return {}

    def _end_of_full(self, weight: float, device: torch.device) -> torch.Tensor:
        empty = self.pack(None, weight, device).buffer.view(_END_DTYPE)[self._end :]
        empty[1] = _rows_of(self.tensors[0].shape)
        return empty.view(self.tensors[0].dtype)

    def _fill(self, buffer: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
        rows = [_rows_of(tensor.shape) for tensor in tensors]
        with torch.no_grad():
            for room, tensor in zip(
                self._tensors_in(buffer, rows), tensors, strict=True
            ):
                room.copy_(tensor)

    def _tensors_in(
        self, buffer: torch.Tensor, rows: Sequence[int]
    ) -> tuple[torch.Tensor, ...]:
        return tuple(
            buffer.view(place.dtype).as_strided(
                (r, *place.shape) if place.has_rows else (), place.strides, place.begin
            )
            for place, r in zip(self._places, rows, strict=True)
        )

    @functools.cached_property
    def _places(self) -> list["_Place"]:
        found, at = [], 0
        for t in self.tensors:
            strides = [math.prod(t.shape[i + 1 :]) for i in range(len(t.shape))]
            begin = at // t.dtype.itemsize
            found.append(
                _Place(t.dtype, t.shape[1:], tuple(strides), begin, bool(t.shape))
            )
            at += _rounded_up(t.num_bytes)
        return found


@dataclass(frozen=True)
class _Place:
    """Place of a tensor in a message; strides and offset in elements."""

    dtype: torch.dtype
    shape: tuple[int, ...]  # shape of a row
    strides: tuple[int, ...]
    begin: int
    has_rows: bool


def _rounded_up(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _rows_of(shape: Sequence[int]) -> int:
    return shape[0] if shape else 1


def _all_told(promise: Promise) -> str:
    return ", ".join(t.told() for t in promise.tensors) or "nothing"
