# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Profiles in files, and profiles of chains of layers."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan._arguments import numbers

__all__ = ["chain", "read_profile", "write_profile"]


def read_profile(path: str | os.PathLike[str]) -> _C.Profile:
    """Reads a profile in the text format of PipeDream's profiler.

    Raises:
        ConfigError: the text is invalid or inconsistent; the error names the file and
            the line or layer.
        OSError: the file cannot be read.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"path is a {type(path).__name__}; it takes that of a file.")
    try:
        return _C.Profile.parse(Path(path).read_text())
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"{os.fspath(path)}: {error}") from None


def write_profile(
    path: str | os.PathLike[str], profile: _C.Profile, *, plan: _C.Plan | None = None
) -> None:
    """Writes a profile; with a plan of this profile, also the stage of each layer.

    Raises:
        ConfigError: an argument has another type, or the plan is of another profile.
        OSError: the file cannot be written.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"path is a {type(path).__name__}; it takes that of a file.")
    if not isinstance(profile, _C.Profile):
        raise ConfigError(f"profile is a {type(profile).__name__}; pass a Profile.")
    if plan is not None and not isinstance(plan, _C.Plan):
        raise ConfigError(f"plan is a {type(plan).__name__}; pass a Plan or None.")
    if plan is not None:
        profile = profile.with_stages(plan)
    Path(path).write_text(profile.text())


def chain(
    *,
    forward_ms: Sequence[float],
    backward_ms: Sequence[float],
    activation_bytes: Sequence[float],
    parameter_bytes: Sequence[float],
    ids: Sequence[str] | None = None,
) -> _C.Profile:
    """A profile of a chain, in which each layer needs the layer before.

    Args:
        forward_ms, backward_ms: milliseconds of one mini-batch on one machine, by
            layer.
        activation_bytes: bytes of each layer's output, for one mini-batch.
        parameter_bytes: bytes of each layer's weights.
        ids: names of the layers; None is "layer0", "layer1" and so on.

    Raises:
        ConfigError: the lengths differ, or a figure is negative or no number.
    """
    columns = {
        "forward_ms": numbers("forward_ms", forward_ms),
        "backward_ms": numbers("backward_ms", backward_ms),
        "activation_bytes": numbers("activation_bytes", activation_bytes),
        "parameter_bytes": numbers("parameter_bytes", parameter_bytes),
    }
    count = len(columns["forward_ms"])
    names = [f"layer{i}" for i in range(count)] if ids is None else list(ids)
    lengths = {"ids": len(names)} | {name: len(v) for name, v in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ConfigError(f"chain: {told} entries; all need one for each layer.")
    layers = [
        _C.Layer(
            names[i],
            forward_ms=columns["forward_ms"][i],
            backward_ms=columns["backward_ms"][i],
            activation_bytes=columns["activation_bytes"][i],
            parameter_bytes=columns["parameter_bytes"][i],
        )
        for i in range(count)
    ]
    return _C.Profile(layers, list(itertools.pairwise(names)))
