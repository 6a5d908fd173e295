# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Detection of Python code in a model that reads tensor values, as `if x.sum() > 0:`.

A profile describes the layers that one input used. Code that reads a value may use
other layers for other inputs, or use them more or less often, and a profile cannot show
that. Such code is detected by the torch functions that it calls: bool(x), x.item(),
x[mask] and similar. Reads in torch's own modules, and reads of parameters and buffers,
are ignored.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

__all__ = ["ValueReads"]

_READS = frozenset(
    ("__bool__", "__float__", "__index__", "__int__", "item", "numpy", "tolist")
)
# The number of rows of their result depends on the data.
_SIZES = frozenset(("argwhere", "masked_select", "nonzero", "unique"))
_TORCH = str(Path(torch.__file__).parent)
_MOST_PLACES = 3  # number of places that the warning names


class ValueReads(TorchFunctionMode):
    """Mode that records reads of values while it is active."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._own = {id(t) for t in (*model.parameters(), *model.buffers())}
        # "file:line", and the function that is called there.
        self.places: dict[str, str] = {}

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if _is_read(name, args) and id(args[0]) not in self._own:
            place = _place_of(sys._getframe(1))
            if place is not None:
                self.places.setdefault(place, name.strip("_"))
        return func(*args, **(kwargs or {}))

    def warn(self) -> None:
        """Warns once with all places, if there are any."""
        if not self.places:
            return
        found = [f"{place} ({what})" for place, what in self.places.items()]
        more = len(found) - _MOST_PLACES
        places = ", ".join(found[:_MOST_PLACES]) + (f" and {more} more" * (more > 0))
        warnings.warn(
            f"the model reads values of tensors at {places}. Where layers or their "
            "sizes depend on them, the profile is right for the sample inputs alone, "
            "and other inputs may take other layers. Give inputs as the training has "
            "them, or make the module around it one layer by whole=...",
            stacklevel=2,
        )


def _is_read(name: str, args: Sequence[Any]) -> bool:
    if not args or not isinstance(args[0], torch.Tensor):
        return False
    if name in ("__getitem__", "__setitem__") and len(args) > 1:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        masks = (torch.bool, torch.uint8)
        return any(isinstance(i, torch.Tensor) and i.dtype in masks for i in index)
    return name in _READS or name in _SIZES


def _place_of(frame: FrameType | None) -> str | None:
    """The line of the model that reads; None if that is a line of torch."""
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_TORCH):
        return None
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


# Files between the model's line and this mode.
_BETWEEN = {
    __file__,
    *(f"{_TORCH}/{name}" for name in ("_tensor.py", "overrides.py", "functional.py")),
}
