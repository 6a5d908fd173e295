# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Digests of the parameters, the optimizer state and the optimizer options.

Equal values have equal digests. The memory layout of a tensor and the order of entries
in a dictionary do not count, because a copied or loaded state may differ in both.
Buffers are excluded, because those of batch normalisation differ between ranks in a
healthy training.
"""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aikido_torch import _C

__all__ = ["Digesting", "StateDigest", "device_digest", "named_state", "option_values"]

_PLAIN = (bool, int, float, complex, str, type(None))
# The name is compared, because importing the class takes long.
_SHARDED = "ZeroRedundancyOptimizer"
# Reading this many bytes takes less time than starting a thread.
_FEW_BYTES = 4 << 20
_CHUNK = 1 << 20  # Elements of a device tensor that are processed at a time.


@dataclass(frozen=True)
class StateDigest:
    """The digests of one rank's state before one step.

    Attributes:
        step: number of optimizer steps that the state has behind it.
        parts: the digest of each tensor and option, by name.
    """

    step: int
    parts: Mapping[str, int]

    @property
    def total(self) -> str:
        """One digest of all parts, as a hexadecimal text."""
        text = repr(sorted(self.parts.items())).encode()
        return hashlib.blake2b(text, digest_size=16).hexdigest()

    def first_difference(self, other: "StateDigest") -> str | None:
        """The name of the first part that differs; None if all are equal."""
        for name in [*self.parts, *other.parts]:
            if self.parts.get(name) != other.parts.get(name):
                return name
        return None


def named_state(
    names: Mapping[int, str], optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a step changes, in an order that is the same on all ranks.

    Args:
        names: names of the parameters by their ids.
        optimizer: optimizer of the parameters. With a ZeroRedundancyOptimizer each rank
            has another part of the optimizer state, so only the parameters count.
    """
    is_sharded = any(c.__name__ == _SHARDED for c in type(optimizer).__mro__)
    for g, group in enumerate(optimizer.param_groups):
        for i, parameter in enumerate(group["params"]):
            name = names.get(id(parameter), f"param_groups[{g}]['params'][{i}]")
            yield name, parameter
            state = {} if is_sharded else optimizer.state.get(parameter, {})
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizer.state[{name}].{key}", value


def option_values(optimizer: torch.optim.Optimizer) -> dict[str, object]:
    """The optimizer's options that are numbers, texts or tuples, by place."""
    found: dict[str, object] = {}
    for g, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key == "params":
                continue
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                value = value.item()
            if isinstance(value, (tuple, *_PLAIN)):
                found[f"optimizer.param_groups[{g}].{key}"] = value
    return found


class Digesting:
    """A digest that is computed while the training goes on.

    The training thread makes it, and calls `finish` before anything changes a tensor.
    Tensors in host memory are read at once if they have few bytes, otherwise by a
    thread of this object. Tensors on a device are read by the device's current stream.

    Args:
        step: number of optimizer steps that the state has behind it.
        names: names of the parameters by their ids.
        optimizer: optimizer of the parameters.
    """

    def __init__(
        self, step: int, names: Mapping[int, str], optimizer: torch.optim.Optimizer
    ) -> None:
        self._step = step
        self._options = option_values(optimizer)
        self._host: dict[str, torch.Tensor] = {}
        self._on_device: dict[str, torch.Tensor] = {}
        for name, tensor in named_state(names, optimizer):
            local = _local(tensor.detach())
            if local.device.type == "cpu":
                self._host[name] = local
            else:
                self._on_device[name] = device_digest(local)
        self._found: list[int] = []
        self._thread: threading.Thread | None = None
        if sum(tensor.nbytes for tensor in self._host.values()) <= _FEW_BYTES:
            self._read()
            return
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        # contiguous() copies only if the index order differs from the memory order.
        tensors = [tensor.contiguous() for tensor in self._host.values()]
        self._found = _C.digests(tensors)

    def finish(self) -> None:
        """Waits until the tensors in host memory have been read."""
        if self._thread is not None:
            self._thread.join()

    def result(self) -> StateDigest:
        """Waits for all parts and returns the digest."""
        self.finish()
        parts = dict(zip(self._host, self._found, strict=True))
        for name, value in self._on_device.items():
            parts[name] = int(value)
        for name, option in self._options.items():
            text = repr(option).encode()
            found = hashlib.blake2b(text, digest_size=8).digest()
            parts[name] = int.from_bytes(found, "little")
        return StateDigest(self._step, parts)


def device_digest(tensor: torch.Tensor) -> torch.Tensor:
    """Digest of a tensor as one int64 scalar on the tensor's device, without a wait.

    Each chunk of elements is multiplied with pseudo-random odd weights and summed; the
    sums are combined by a polynomial in 64-bit arithmetic.
    """
    flat = tensor.contiguous().flatten().view(torch.uint8)
    if flat.numel() % 4 == 0 and flat.storage_offset() % 4 == 0:
        flat = flat.view(torch.int32)
    weights = _weights(min(_CHUNK, flat.numel()), flat.device)
    found = torch.full((), tensor.nbytes, dtype=torch.int64, device=flat.device)
    for chunk in torch.split(flat, _CHUNK):
        weighed = (chunk.to(torch.int64) * weights[: chunk.numel()]).sum()
        found = found * 0x2545F4914F6CDD1D + weighed
    return found


def _weights(count: int, device: torch.device) -> torch.Tensor:
    # Odd weights, so that a change of one element always changes the sum. All other
    # bits are pseudo-random.
    numbers = torch.arange(count, dtype=torch.int64, device=device)
    mixed = numbers * -7046029254386353131 + 1442695040888963407
    mixed = (mixed ^ (mixed >> 29)) * -4658895280553007687
    return mixed | 1


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a DTensor that lies on this rank; other tensors as they are."""
    to_local: Any = getattr(tensor, "to_local", None)
    local = tensor if to_local is None else to_local()
    assert isinstance(local, torch.Tensor)
    return local
