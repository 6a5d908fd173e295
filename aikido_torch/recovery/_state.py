# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The training state of a rank: everything that lets two ranks compute the same.

A snapshot consists of an outline and data. The outline is a pickle in which tensors are
replaced by numbers; the data has the bytes of these tensors. Ranks of a group trust
each other's pickles, as in torch's own `broadcast_object_list`.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

__all__ = ["Difference", "Snapshot", "Stateful", "TrainingState"]

_ALIGNMENT = 64


class Stateful(Protocol):
    """A learning rate scheduler, a GradScaler, or any object with these two methods."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that must be equal on all ranks."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Replaces the whole state by a result of state_dict()."""


@dataclass(frozen=True)
class Snapshot:
    """The state at one step, as it is sent."""

    outline: torch.Tensor
    data: torch.Tensor


class Difference(NamedTuple):
    """First place where the states of two ranks do not fit together."""

    path: str
    own: str
    theirs: str

    def sentence(self, own_rank: int, rank: int) -> str:
        """Error text of a rank that cannot copy the state of `rank`."""
        argument = self.path.split(".")[0].split("[")[0]
        return (
            f"catch_up: {argument} differs between ranks: {self.path} is {self.own} on "
            f"rank {own_rank} but {self.theirs} on rank {rank}; nothing was copied; "
            f"give all ranks the same {argument}."
        )


class _Placed(NamedTuple):
    """Place of a tensor in the data of a snapshot."""

    offset: int
    dtype: torch.dtype
    shape: torch.Size
    device: str


class TrainingState:
    """The training state of one rank. For the training thread, between two steps.

    Args:
        module: the model without its DistributedDataParallel.
        optimizer: optimizer of its parameters.
        others: further objects, by the names that errors use.
        has_rng: True if torch's default generators belong to the state.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        others: Mapping[str, Stateful],
        *,
        has_rng: bool,
    ) -> None:
        self._module = module
        self._optimizer = optimizer
        self._others = dict(others)
        self._has_rng = has_rng
        self._device = next(
            (p.device for p in module.parameters()), torch.device("cpu")
        )

    def nbytes(self) -> int:
        """Bytes of the tensors in a snapshot taken now."""
        return sum(
            leaf.nbytes
            for part in (self._model(), self._groups())
            for leaf in _tensors(part)
        )

    def gradient_scale(self) -> float:
        """Scale of the GradScaler among the other objects; 1 if there is none."""
        scale = 1.0
        for other in self._others.values():
            if isinstance(other, torch.amp.GradScaler):
                scale *= other.get_scale()
        return scale

    def take(self, notes: Callable[[], object] = dict) -> Snapshot:
        """A copy of the state. Blocks while it copies, but not for other ranks.

        Args:
            notes: called for the value that `read` returns as "notes"; it is never
                applied.
        """
        outline, tensors = pickled(self.parts() | {"notes": notes()})
        data = torch.empty(bytes_of(tensors), dtype=torch.uint8)
        for placed, tensor in tensors:
            _bytes_at(data, placed).copy_(tensor.detach())
        return Snapshot(torch.frombuffer(bytearray(outline), dtype=torch.uint8), data)

    def parts(self) -> dict[str, Any]:
        """The content of a snapshot. Its tensors are those of the training, not
        copies.
        """
        parts: dict[str, Any] = {
            "model": self._model(),
            "optimizer": self._groups(),
            "state": {name: o.state_dict() for name, o in self._others.items()},
        }
        if self._has_rng:
            parts["rng"] = _generators()
        return parts

    def read(self, snapshot: Snapshot) -> dict[str, Any]:
        """The parts for `apply`. Their tensors are views of the snapshot if
        possible.
        """
        outline = snapshot.outline.numpy().tobytes()
        parts: dict[str, Any] = unpickled(outline, snapshot.data, self._device)
        return parts

    def difference(self, parts: dict[str, Any]) -> Difference | None:
        """First reason why `parts` cannot be applied on this rank; None if they can."""
        found = _difference(self._model(), parts["model"], "model")
        if found is None:
            own = self._groups()
            _adopt_empty(own, parts["optimizer"])
            found = _difference(own, parts["optimizer"], "optimizer")
        if found is None:
            found = _difference(
                {
                    name: dict.fromkeys(o.state_dict())
                    for name, o in self._others.items()
                },
                {name: dict.fromkeys(state) for name, state in parts["state"].items()},
                "state",
            )
        return found

    def apply(self, parts: dict[str, Any]) -> None:
        """Applies `parts`, all or nothing. Requires: `difference` has returned None."""
        self._load_others(parts["state"])
        with torch.no_grad():
            for name, tensor in self._model().items():
                tensor.copy_(parts["model"][name])
            groups = self._optimizer.param_groups
            for group, copied in zip(groups, parts["optimizer"], strict=True):
                for key, value in copied["options"].items():
                    group[key] = _merged(group[key], value)
                for p, state in zip(group["params"], copied["params"], strict=True):
                    if state:
                        own = self._optimizer.state[p]
                        for key, value in state.items():
                            own[key] = _merged(own.get(key), value)
        if "rng" in parts:
            _set_generators(parts["rng"])

    def _load_others(self, states: dict[str, Any]) -> None:
        # These objects belong to the user and may raise; then the earlier ones are
        # restored.
        before = {
            name: pickle.loads(pickle.dumps(other.state_dict()))
            for name, other in self._others.items()
        }
        loaded = []
        try:
            for name, other in self._others.items():
                loaded.append(name)
                other.load_state_dict(states[name])
        except BaseException:
            for name in loaded[:-1]:
                self._others[name].load_state_dict(before[name])
            raise

    def _model(self) -> dict[str, torch.Tensor]:
        return dict(self._module.named_parameters()) | dict(
            self._module.named_buffers()
        )

    def _groups(self) -> list[dict[str, Any]]:
        state = self._optimizer.state
        return [
            {
                "options": {k: v for k, v in group.items() if k != "params"},
                "params": [dict(state.get(p, {})) for p in group["params"]],
            }
            for group in self._optimizer.param_groups
        ]


def _generators() -> dict[str, Any]:
    found: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found["cuda"] = torch.cuda.get_rng_state(torch.cuda.current_device())
    return found


def _set_generators(states: dict[str, Any]) -> None:
    # Clones, because torch reads a view from the beginning of its storage.
    torch.set_rng_state(states["cpu"].clone())
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].clone(), torch.cuda.current_device())


def pickled(value: Any) -> tuple[bytes, list[tuple["_Placed", torch.Tensor]]]:
    """The outline of `value`, and its tensors with their places in the data."""
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(value)
    return stream.getvalue(), pickler.tensors


def bytes_of(tensors: list[tuple["_Placed", torch.Tensor]]) -> int:
    """Size of the data for these tensors, in bytes."""
    return max((placed.offset + t.nbytes for placed, t in tensors), default=0)


def unpickled(outline: bytes, data: torch.Tensor, device: torch.device) -> Any:
    """The value that `pickled` got. Its tensors are views of `data`, or are on
    `device`.
    """
    return _Unpickler(io.BytesIO(outline), data, device).load()


class _Pickler(pickle.Pickler):
    """Pickler that writes tensors as places; `tensors` lists them."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[tuple[_Placed, torch.Tensor]] = []
        self.num_bytes = 0

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        if not isinstance(obj, torch.Tensor):
            return None
        placed = _Placed(self.num_bytes, obj.dtype, obj.shape, obj.device.type)
        self.tensors.append((placed, obj))
        self.num_bytes += -(-obj.nbytes // _ALIGNMENT) * _ALIGNMENT
        return tuple(placed)


class _Unpickler(pickle.Unpickler):
    """Unpickler that makes tensors of places, on the CPU or on `device` as before."""

    def __init__(
        self, stream: io.BytesIO, data: torch.Tensor, device: torch.device
    ) -> None:
        super().__init__(stream)
        self._data = data
        self._device = device

    def persistent_load(self, pid: Any) -> torch.Tensor:
        placed = _Placed(*pid)
        found = _bytes_at(self._data, placed)
        return found if placed.device == "cpu" else found.to(self._device)


def _bytes_at(data: torch.Tensor, placed: _Placed) -> torch.Tensor:
    size = placed.dtype.itemsize * placed.shape.numel()
    found = data[placed.offset : placed.offset + size]
    return found.view(placed.dtype).view(placed.shape)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _tensors(item)]
    return []


def _merged(own: Any, copied: Any) -> Any:
    """`copied`, written into the memory of `own` if that is a tensor."""
    if not isinstance(copied, torch.Tensor):
        return copied
    if isinstance(own, torch.Tensor):
        return own.copy_(copied)
    return copied.clone()


def _adopt_empty(own: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    # A parameter that was never stepped on this rank has no state yet, and accepts any.
    for group, other in zip(own, theirs, strict=False):
        states, others = group["params"], other["params"]
        for i, state in enumerate(others[: len(states)]):
            if not states[i]:
                states[i] = state


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "present" if value is None else f"a {type(value).__name__}"


def _difference(own: Any, theirs: Any, path: str) -> Difference | None:
    """First difference of keys, lengths, dtypes and shapes; plain values may differ."""
    if isinstance(own, dict) and isinstance(theirs, dict):
        for key in [*own, *(k for k in theirs if k not in own)]:
            below = f"{path}.{key}"
            if key not in own:
                return Difference(below, "missing", _text(theirs[key]))
            if key not in theirs:
                return Difference(below, _text(own[key]), "missing")
            if found := _difference(own[key], theirs[key], below):
                return found
        return None
    is_list = isinstance(own, list) and isinstance(theirs, list)
    if is_list and len(own) == len(theirs):
        for i, (a, b) in enumerate(zip(own, theirs, strict=True)):
            if found := _difference(a, b, f"{path}[{i}]"):
                return found
        return None
    has_tensor = isinstance(own, torch.Tensor) or isinstance(theirs, torch.Tensor)
    if (is_list or has_tensor) and _text(own) != _text(theirs):
        return Difference(path, _text(own), _text(theirs))
    return None
