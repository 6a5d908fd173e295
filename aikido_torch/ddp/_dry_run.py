# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trial at `register` of everything that could fail later when a rank is late.

A state is taken, pickled, read back, laid out and compared as for a late rank. Only the
bytes of plain tensors are not copied. Gradients are checked by the options of
DistributedDataParallel for each parameter.
"""

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch.errors import ConfigError
from aikido_torch.recovery._state import (
    Stateful,
    TrainingState,
    bytes_of,
    pickled,
    unpickled,
)

__all__ = ["check_gradients", "check_state", "where_to_set"]

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_FRAMEWORKS = (
    "Transformers: TrainingArguments(ddp_{0}={1}); Accelerate: "
    "DistributedDataParallelKwargs({0}={1}); Lightning: DDPStrategy({0}={1})"
)


def where_to_set(option: str, value: object) -> str:
    """Text that says where frameworks take an option of DistributedDataParallel."""
    return _FRAMEWORKS.format(option, value)


# ---- the state ----


def check_state(state: TrainingState, others: Mapping[str, Stateful]) -> None:
    """Refuses a state that cannot be sent to another rank or read by another rank.

    Args:
        state: training state of this rank, including `others`.
        others: the argument `state` of `register`, by name.

    Raises:
        ConfigError: with the path of the first part that is at fault.
    """
    for name, other in others.items():
        _check_other(f"state[{name!r}]", other)
    parts = state.parts()
    _check_optimizer_memory(parts["optimizer"])
    _check_leaves(parts, "")
    outline, tensors = _pickled("the state", parts)
    # Nothing writes to this memory, so the kernel never allocates its pages.
    data = torch.empty(bytes_of(tensors), dtype=torch.uint8)
    read = unpickled(outline, data, torch.device("cpu"))
    if found := state.difference(read):
        raise _refused(
            found.path,
            f"it is {found.own} here and {found.theirs} after it was pickled and read",
            "let state_dict() give the same keys, dtypes and shapes each time",
        )


def _check_other(path: str, other: Stateful) -> None:
    """Takes the state of `other` and loads it again, as a copy does."""
    try:
        given = other.state_dict()
    except Exception as error:
        raise _refused(
            path,
            f"its state_dict() raised {type(error).__name__}: {error}",
            "correct it, or leave it out of state",
        ) from error
    if not isinstance(given, dict):
        raise _refused(
            path,
            f"its state_dict() returned a {type(given).__name__}",
            "return a dict",
        )
    _check_leaves(given, path)
    _pickled(path, given)
    try:
        copy = pickle.loads(pickle.dumps(given))
        other.load_state_dict(copy)
    except Exception as error:
        raise _refused(
            path,
            "its load_state_dict() refused what its state_dict() had given, with "
            f"{type(error).__name__}: {error}",
            "let it take that",
        ) from error


def _check_leaves(value: Any, path: str) -> None:
    for inner, leaf in _leaves(value, path):
        if isinstance(leaf, torch.Tensor):
            _check_tensor(inner, leaf)
        else:
            _pickled(inner, leaf)


def _pickled(path: str, value: Any) -> tuple[bytes, list[tuple[Any, torch.Tensor]]]:
    try:
        return pickled(value)
    except Exception as error:
        raise _refused(
            path,
            f"it is a {type(value).__name__} that cannot be pickled "
            f"({type(error).__name__}: {error})",
            "leave it out of state_dict(), or use a function that can be imported",
        ) from error


def _check_tensor(path: str, tensor: torch.Tensor) -> None:
    what = f"{tensor.dtype} {list(tensor.shape)}"
    if tensor.layout != torch.strided:
        raise _refused(path, f"it is a {tensor.layout} tensor {what}", "make it dense")
    if tensor.is_meta or tensor.is_quantized:
        kind = "meta" if tensor.is_meta else "quantized"
        raise _refused(
            path, f"it is a {kind} tensor {what}", "give it plain numbers in memory"
        )
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    if any(size > 1 and stride == 0 for size, stride in strides):
        raise _refused(
            path,
            f"several elements of {what} share one place in memory (strides "
            f"{list(tensor.stride())}), so no copy can be written there",
            "make it .contiguous()",
        )
    if type(tensor) in _PLAIN:
        return
    try:
        torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    except Exception as error:
        raise _refused(
            path,
            f"a {type(tensor).__name__} cannot be copied into a plain tensor "
            f"({type(error).__name__}: {error})",
            "keep plain tensors there",
        ) from error


def _check_optimizer_memory(groups: Any) -> None:
    """Refuses optimizer entries that share memory.

    A rank that copies a state allocates memory for each entry, so sharing would be
    lost.
    """
    seen: dict[int, str] = {}
    for path, leaf in _leaves(groups, "optimizer"):
        if not isinstance(leaf, torch.Tensor) or leaf.numel() == 0 or leaf.is_meta:
            continue
        if ".options" in path or leaf.layout != torch.strided:
            continue
        other = seen.setdefault(leaf.data_ptr(), path)
        if other != path:
            raise _refused(
                path,
                f"it shares its memory with {other}, and a copy of the state would "
                "give each memory of its own",
                "give each parameter a state of its own",
            )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{path}[{i}]")
    else:
        yield path, value


def _refused(path: str, why: str, remedy: str) -> ConfigError:
    return ConfigError(
        f"register: {path} cannot be copied to a rank that was late: {why}; {remedy}."
    )


# ---- the gradients ----


def check_gradients(model: DistributedDataParallel, *, skips: bool) -> None:
    """Refuses gradients that bypass the hook, and gradients that are not dense floats.

    Args:
        model: the wrapped model.
        skips: True if the policy may go on without a rank.

    Raises:
        ConfigError: with the names of the parameters and the option to set.
    """
    if getattr(model, "_use_python_reducer", False):
        raise ConfigError(
            "register: torch._dynamo.config.optimize_ddp is 'python_reducer', with "
            "which DistributedDataParallel has no buckets; use 'ddp_optimizer', its "
            "default, before wrapping the model."
        )
    if getattr(model, "mixed_precision", None) is not None:
        raise ConfigError(
            "register: DistributedDataParallel(mixed_precision=...) reduces gradients "
            "in another dtype than that of the parameters, so catch_up has none for "
            "them; use torch.autocast, or parameters of the lower precision."
        )
    for names, why in _unfit(model, skips=skips):
        if names:
            shown = ", ".join([*names[:3], "..."] if len(names) > 3 else names)
            raise ConfigError(f"register: {len(names)} parameters ({shown}) {why}")


def _unfit(
    model: DistributedDataParallel, *, skips: bool
) -> Iterator[tuple[list[str], str]]:
    trained = {n: p for n, p in model.module.named_parameters() if p.requires_grad}
    sparse = [
        f"{name}.weight" if name else "weight"
        for name, module in model.module.named_modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    ]
    why = "have sparse gradients, which buckets cannot hold; use sparse=False."
    yield [name for name in sparse if name in trained], why
    delayed = {id(p) for p in getattr(model, "_delay_all_reduce_params", ())}
    why = (
        "are reduced outside of the hook (delay_all_reduce_named_params), with all "
        "ranks waiting; leave that argument out."
    )
    yield [n for n, p in trained.items() if id(p) in delayed], why
    others = [n for n, p in trained.items() if p.dtype not in _DTYPES and skips]
    why = (
        f"have gradients of {trained[others[0]].dtype if others else None}, of which a "
        "call that may skip makes no mean; it takes float16, bfloat16, float32 and "
        "float64: view complex numbers as real ones, or use policy=WaitAll()."
    )
    yield others, why
