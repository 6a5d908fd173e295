# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Command `python -m aikido_torch.pipeline profile`."""

import importlib
import inspect
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline._typed import typed_errors
from aikido_torch.pipeline.plan._profile import write_profile
from aikido_torch.pipeline.plan._show import show_layers
from aikido_torch.profile._profiler import measure_model

__all__ = ["made_by", "profile_command", "sample"]


class Trace(StrEnum):
    """Ways to trace a model, for the command line."""

    AUTO = "auto"
    CHAIN = "chain"
    EXPORT = "export"


class Shared(StrEnum):
    """Treatment of layers that share a parameter, for the command line."""

    REFUSE = "refuse"
    MERGE = "merge"


def profile_command(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Option(
            help="package.module:factory; called without arguments, it returns the "
            "model, or the model and its inputs."
        ),
    ],
    output: Annotated[Path, typer.Option(help="Write the profile to this file.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="Shape of a random input: 32,3,224,224, or with a dtype, and for "
            "indices their number: 8,128:int64:50000. Repeat the option for each "
            "further input.",
        ),
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(help="Use only this many rows of dimension 0.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Runs whose median is the time.")] = (10),
    warm_up: Annotated[int, typer.Option(help="Runs before the measured ones.")] = 2,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1.")] = None,
    trace: Annotated[
        Trace, typer.Option(help="Method that finds the order of the layers.")
    ] = Trace.AUTO,
    whole: Annotated[
        list[str] | None,
        typer.Option(
            help="Modules to keep as one layer: a pattern such as 'blocks.*'."
        ),
    ] = None,
    shared: Annotated[
        Shared, typer.Option(help="Treatment of layers that share a parameter.")
    ] = Shared.REFUSE,
) -> None:
    """Measures the layers of a model, prints them and writes them to a file."""
    console = Console()
    with typed_errors(console, context):
        made, own_inputs = made_by(model)
        given: Any = tuple(sample(text) for text in inputs) if inputs else own_inputs
        if given is None:
            raise ConfigError(f"{model} returns a model and no inputs; give --input")
        measured = measure_model(
            made,
            given,
            micro_batch=micro_batch,
            repeats=repeats,
            warm_up=warm_up,
            device=device,
            trace=trace.value,
            whole=tuple(whole or ()),
            shared=shared.value,
        )
        show_layers(measured, console=console)
        write_profile(output, measured.profile)


def made_by(name: str) -> tuple[nn.Module, Any]:
    """The model that "package.module:factory" makes, and its inputs or None.

    Raises:
        ConfigError: there is no such factory, or its result is something else.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ConfigError(f'--model is "{name}"; it takes package.module:factory')
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f'--model is "{name}": {error}') from error
    if not callable(factory):
        raise ConfigError(
            f'--model is "{name}": that is a {type(factory).__name__}; it has to be a '
            "function or class, which is called without arguments"
        )
    try:
        with suppress(ValueError):  # a builtin may have no signature
            inspect.signature(factory).bind()
    except TypeError as error:
        raise ConfigError(
            f'--model is "{name}", which is called without arguments: {error}; write a '
            "function without arguments that returns the model"
        ) from error
    made = factory()
    model, own_inputs = (
        made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    )
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"{name} returns a {type(made).__name__}; it has to return a module, or a "
            "module and what to call it with"
        )
    return model, own_inputs


def sample(text: str) -> torch.Tensor:
    """A random tensor from "32,3,224,224", "32,10:float16" or "8,128:int64:50000".

    Raises:
        ConfigError: the text has another form.
    """
    sizes, _, rest = text.partition(":")
    kind, _, limit = rest.partition(":")
    dtype = getattr(torch, kind or "float32", None)
    try:
        shape = [int(size) for size in sizes.split(",")]
        high = int(limit) if limit else 2
    except ValueError:
        dtype = None
    if not isinstance(dtype, torch.dtype) or min(shape) < 1 or high < 1:
        raise ConfigError(
            f'--input is "{text}"; it takes a shape, and a type if it is not float32: '
            "32,3,224,224 or 8,128:int64:50000"
        )
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(high, shape, dtype=dtype)
