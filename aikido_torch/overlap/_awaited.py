# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Marks on parameters whose value or gradient is not final, so that reads wait.

A marked parameter has a class with a `__torch_function__`, which sees each function of
torch that takes the parameter. It calls the owner of the parameter, and the owner
waits. So an average of the weights or a norm of the gradients is right without a call
of `synchronize()`. A parameter without a mark costs nothing.

Reading the shape or another property that does not show elements does not count as a
read. Parameters of other classes than nn.Parameter are never marked, because such a
class may have its own `__torch_function__`.
"""

import inspect
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

__all__ = ["Owner", "can_be_marked", "claim", "mark", "unmark"]

# Attributes that show the elements of a tensor, or another tensor that shows them.
_VALUES = {"H", "T", "_base", "_cdata", "data", "imag", "mH", "mT", "real"}
_GRADIENT = {getattr(torch.Tensor.grad, access) for access in ("__get__", "__set__")}
_FACTS = {
    getattr(attribute, access)
    for name, attribute in vars(torch._C.TensorBase).items()
    if inspect.isgetsetdescriptor(attribute) and name not in _VALUES
    for access in ("__get__", "__set__")
} - _GRADIENT
_FACTS |= {
    torch.Tensor.dim,
    torch.Tensor.element_size,
    torch.Tensor.is_complex,
    torch.Tensor.is_contiguous,
    torch.Tensor.is_floating_point,
    torch.Tensor.nelement,
    torch.Tensor.numel,
    torch.Tensor.register_hook,
    torch.Tensor.size,
    torch.Tensor.stride,
}


class Owner(Protocol):
    """Object that waits for the values and gradients of its marked parameters."""

    def _on_read(self, parameter: torch.Tensor, *, of_gradient: bool) -> None: ...


# Owners by the id of the parameter. An owner that was collected waits for nothing.
_owners: weakref.WeakValueDictionary[int, Owner] = weakref.WeakValueDictionary()


class _Awaited(nn.Parameter):
    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _FACTS:
            of_gradient = func in _GRADIENT
            for value in tree_leaves((args, kwargs)):
                if isinstance(value, _Awaited):
                    _tell(value, of_gradient)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


def _tell(parameter: _Awaited, of_gradient: bool) -> None:
    owner = _owners.get(id(parameter))
    if owner is None:
        unmark([parameter])
    else:
        owner._on_read(parameter, of_gradient=of_gradient)


def can_be_marked(parameter: torch.Tensor) -> bool:
    """True if `mark` has an effect on the parameter."""
    return type(parameter) in (nn.Parameter, _Awaited)


def claim(parameters: Iterable[torch.Tensor], owner: Owner) -> None:
    """Makes `owner` the owner of the parameters, without keeping it alive."""
    for parameter in parameters:
        _owners[id(parameter)] = owner


def mark(parameters: Iterable[torch.Tensor]) -> None:
    """From now on, each read of these parameters calls their owner first."""
    for parameter in parameters:
        if type(parameter) is nn.Parameter:
            parameter.__class__ = _Awaited


def unmark(parameters: Iterable[torch.Tensor]) -> None:
    """From now on, reads of these parameters call nobody."""
    for parameter in parameters:
        if type(parameter) is _Awaited:
            parameter.__class__ = nn.Parameter  # type: ignore[assignment]
