# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A checkpoint of one plan as one of another, so that training goes on with that."""

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline._checkpoint import (
    Place,
    check_state,
    read_state,
    trainable_names,
    write_state,
)

__all__ = ["recut"]


def recut(
    folder: str | os.PathLike[str], stages: Sequence[nn.Module], *, before: int
) -> int:
    """Writes the newest complete checkpoint again, as one of these stages.

    For one process, while no pipeline uses the folder. Tensors are known by their
    names, so stages are those that `cut` makes of one model. What was there stays.

    Args:
        stages: of the new plan; what is in them is not looked at.
        before: how many stages the checkpoint has.

    Returns:
        Its step, which `restore` of the new pipeline will return.

    Raises:
        ConfigError: there is none; the stages are of another model; or optimizers have
            several groups of parameters, or not the same settings on all stages.
        OSError: a file cannot be written.
    """
    step, states = _newest(Path(folder), before)
    tensors, optimized, settings = _merged(states)
    life = uuid.uuid4().hex
    written = []
    for number, stage in enumerate(stages):
        place = Place(Path(folder), number, len(stages))
        own = stage.state_dict()
        model = {name: tensors[name] for name in own if name in tensors}
        check_state(number, model, own, Path(folder))
        for name in own:
            tensors.pop(name, None)
        names = trainable_names(stage)
        optimizer = _optimizer(names, optimized, settings) if settings else None
        state = {
            "model": model,
            "optimizer": optimizer if names else None,
            "life": life,
            "parameters": names,
        }
        written.append((place.file(step), state))
    if tensors:
        raise ConfigError(
            f'the checkpoint has "{min(tensors)}", and no stage has; these are stages '
            "of another model."
        )
    for file, state in written:
        write_state(file, state)
    return step


def _newest(folder: Path, count: int) -> tuple[int, list[dict[str, Any]]]:
    places = [Place(folder, number, count) for number in range(count)]
    for step in _steps(folder):
        states = [read_state(place.file(step)) for place in places]
        whole = [state for state in states if state is not None]
        if len(whole) == count and len({state["life"] for state in whole}) == 1:
            return step, whole
    raise ConfigError(
        f"{folder} has no complete checkpoint of {count} stages; save one first."
    )


def _steps(folder: Path) -> Iterator[int]:
    names = sorted((path.name for path in folder.glob("step-*")), reverse=True)
    for name in names:
        if name.removeprefix("step-").isdecimal():
            yield int(name.removeprefix("step-"))


def _merged(
    states: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """By name tensors and what optimizers keep of them, and settings of these."""
    tensors: dict[str, Any] = {}
    optimized: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for number, state in enumerate(states):
        for name, tensor in state["model"].items():
            if name in tensors:
                raise ConfigError(
                    f'several stages of the checkpoint have a "{name}"; only stages '
                    "whose names differ, as those of `cut`, can be cut anew."
                )
            tensors[name] = tensor
        if state["optimizer"] is None:
            continue
        groups = state["optimizer"]["param_groups"]
        if len(groups) != 1 or state["parameters"] is None:
            raise ConfigError(
                f"stage {number}: its optimizer has {len(groups)} groups of "
                "parameters, or was saved without their names; one group is cut anew."
            )
        own = {name: value for name, value in groups[0].items() if name != "params"}
        if settings and own != settings:
            raise ConfigError(
                f"stage {number}: its optimizer has the settings {own}, and those "
                f"before have {settings}; they have to be the same to be cut anew."
            )
        settings = own
        for at, name in enumerate(state["parameters"]):
            if at in state["optimizer"]["state"]:
                optimized[name] = state["optimizer"]["state"][at]
    return tensors, optimized, settings


def _optimizer(
    names: Sequence[str], optimized: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """As `torch.optim.Optimizer.state_dict` has it."""
    kept = {at: optimized[name] for at, name in enumerate(names) if name in optimized}
    group = {**settings, "params": [*range(len(names))]}
    return {"state": kept, "param_groups": [group]}
