# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Data of an operation, and the memory that it may and may not write to.

The data depend only on their key, so every rank knows the data of every other rank.
"""

from collections.abc import Sequence

import torch

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
COMPLEX = ("complex64", "complex128")
DTYPES = (*FLOATS, *INTEGERS, "bool", *COMPLEX)

_GUARD = 5  # elements on each side of a tensor


def values(dtype: str, shape: Sequence[int], *key: int) -> torch.Tensor:
    """Random data that depend only on dtype, shape and key.

    Floats are between 0.5 and 1.5. Their sums have no cancellation, but the rounding
    shows the order of the addition. Integers take their whole range, so that sums wrap.
    """
    seed = 0
    for number in key:
        seed = (seed * 1_000_003 + number + 1) % 2**61
    generator = torch.Generator().manual_seed(seed)
    if dtype == "bool":
        return torch.randint(0, 2, tuple(shape), generator=generator).bool()
    kind = getattr(torch, dtype)
    if dtype in INTEGERS:
        low, high = torch.iinfo(kind).min, torch.iinfo(kind).max
        return torch.randint(low, high, tuple(shape), generator=generator, dtype=kind)
    real = kind.to_real() if dtype in COMPLEX else kind
    wide = torch.float64 if real == torch.float64 else torch.float32
    parts = torch.rand((2, *shape), generator=generator, dtype=wide) + 0.5
    if dtype in COMPLEX:
        return torch.complex(parts[0], parts[1]).to(kind)
    return parts[0].to(kind)


class Memory:
    """The tensors of one operation on one rank.

    Each tensor has guard elements on both sides and starts at an unaligned offset.
    `wrong` lists the guards and the read-only tensors that were written to.

    any_strides: the call accepts tensors that are not contiguous; some are transposed.
    """

    def __init__(self, number: int, any_strides: bool = False) -> None:
        self._offset = number % 4
        self._is_transposed = any_strides and number % 3 == 0
        self._guarded: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._inputs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.outputs: list[torch.Tensor] = []

    def input(self, data: torch.Tensor) -> torch.Tensor:
        """A tensor that nobody may write to."""
        tensor = self._copy(data)
        self._inputs.append((tensor, data))
        return tensor

    def output(self, shape: Sequence[int], dtype: str) -> torch.Tensor:
        """A tensor with meaningless data that will hold a result."""
        tensor = self._copy(values(dtype, shape, 99))
        self.outputs.append(tensor)
        return tensor

    def in_out(self, data: torch.Tensor) -> torch.Tensor:
        """A tensor whose data the result replaces."""
        tensor = self._copy(data)
        self.outputs.append(tensor)
        return tensor

    def wrong(self) -> list[str]:
        found = []
        for i, (tensor, before) in enumerate(self._inputs):
            if not same_bits(tensor, before):
                found.append(f"input {i} was written to")
        for i, (guard, before, _) in enumerate(self._guarded):
            if not same_bits(guard, before):
                found.append(f"memory beside tensor {i // 2} was written to")
        return found

    def _copy(self, data: torch.Tensor) -> torch.Tensor:
        front = _GUARD + self._offset
        whole = torch.empty(front + data.numel() + _GUARD, dtype=data.dtype)
        whole.view(torch.uint8).fill_(1)
        for guard in (whole[:front], whole[front + data.numel() :]):
            self._guarded.append((guard, guard.clone(), whole))
        tensor = whole[front : front + data.numel()]
        if self._is_transposed:
            order = tuple(reversed(range(data.dim())))
            tensor = tensor.view(data.shape[::-1]).permute(order)
        else:
            tensor = tensor.view(data.shape)
        return tensor.copy_(data)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(a, b)


def is_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal apart from rounding; integers must be equal."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.is_floating_point() and not a.is_complex():
        return torch.equal(a, b)
    # Gloo rounds half-precision floats after every addition.
    factor = 4 if a.dtype.itemsize == 2 else 16
    tolerance = torch.finfo(a.dtype).eps * factor
    return torch.allclose(a, b, rtol=tolerance, atol=0)
