# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Conversion of a checkpoint of one plan into a checkpoint of another plan."""

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan._arguments import whole
from aikido_torch.pipeline.runtime._checkpoint import (
    Place,
    check_state,
    names_by_group,
    read_state,
    trainable_names,
    write_state,
)
from aikido_torch.pipeline.runtime._stage import MakeOptimizer

__all__ = ["recut"]

# Entries of an optimizer's group that differ between stages by nature.
_NO_SETTINGS = ("params", "param_names")


def recut(
    folder: str | os.PathLike[str],
    stages: Sequence[nn.Module],
    *,
    before: int,
    optimizer: MakeOptimizer | None = None,
) -> int:
    """Writes the newest complete checkpoint again, for other stages of the same model.

    Run it in one process, while no pipeline uses the folder. Tensors are identified by
    their names, so the stages must be those that `cut` makes of one model. The old
    files stay.

    Args:
        folder: folder of the checkpoint.
        stages: modules of the new plan; their values are ignored.
        before: number of stages of the checkpoint.
        optimizer: the argument `optimizer` of the new pipeline. The new files have its
            groups of parameters. None: group 0 of a new stage has the parameters that
            were in group 0 of the old stages, and so on.

    Returns:
        The step of the checkpoint, which `restore` of the new pipeline will return.

    Raises:
        ConfigError: there is no checkpoint; the stages belong to another model;
            optimizers of the old stages have different settings for the same group, or
            different numbers of groups; or parameters of one new group had different
            settings.
        OSError: a file cannot be written.
    """
    step, states = _newest(Path(folder), whole("before", before, least=1))
    tensors = _tensors_of(states)
    kept = _Optimized()
    for number, old in enumerate(states):
        kept.add(number, old)
    if optimizer is None:
        kept.check_groups()
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
        groups = kept.groups_of(names)
        if optimizer is not None and names:
            trainable = [p for p in stage.parameters() if p.requires_grad]
            groups = names_by_group(optimizer(trainable), stage)
        state = {
            "model": model,
            "optimizer": kept.state_of(number, groups) if names and groups else None,
            "life": life,
            "parameters": names,
            "groups": groups,
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


def _tensors_of(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for state in states:
        for name, tensor in state["model"].items():
            if name in tensors:
                raise ConfigError(
                    f'several stages of the checkpoint have a "{name}"; only stages '
                    "whose names differ, as those of `cut`, can be cut anew."
                )
            tensors[name] = tensor
    return tensors


class _Optimized:
    """Optimizer states of all old stages, by name of the parameter."""

    def __init__(self) -> None:
        self._state: dict[str, Any] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        self._group: dict[str, int] = {}  # the group that it was in
        # Settings of the groups of each stage.
        self._of_stage: dict[int, list[dict[str, Any]]] = {}

    def add(self, stage: int, saved: Mapping[str, Any]) -> None:
        """Adds the optimizer of one stage.

        Raises:
            ConfigError: names of parameters were not saved with it.
        """
        optimizer = saved["optimizer"]
        if optimizer is None:
            return
        groups = optimizer["param_groups"]
        names = saved["groups"]
        if names is None and len(groups) == 1 and saved["parameters"] is not None:
            names = [saved["parameters"]]  # a checkpoint of an earlier version
        if names is None:
            raise ConfigError(
                f"stage {stage}: its optimizer has {len(groups)} groups of parameters "
                "and was saved by an earlier version, without their names; save it "
                "again."
            )
        for number, (group, own) in enumerate(zip(groups, names, strict=True)):
            settings = {key: group[key] for key in group if key not in _NO_SETTINGS}
            self._of_stage.setdefault(stage, []).append(settings)
            for name, at in zip(own, group["params"], strict=True):
                self._settings[name] = settings
                self._group[name] = number
                if at in optimizer["state"]:
                    self._state[name] = optimizer["state"][at]

    def check_groups(self) -> None:
        """Checks that group n of each stage has equal settings.

        Raises:
            ConfigError: the settings, or the numbers of groups, differ.
        """
        if not self._of_stage:
            return
        first, wanted = next(iter(self._of_stage.items()))
        for stage, found in self._of_stage.items():
            if len(found) != len(wanted):
                raise ConfigError(
                    f"stage {stage}: its optimizer has {len(found)} groups of "
                    f"parameters, and that of stage {first} has {len(wanted)}; pass "
                    "optimizer=, which says what the groups of the new stages are."
                )
            for number, (own, other) in enumerate(zip(found, wanted, strict=True)):
                if own != other:
                    raise ConfigError(
                        f"stage {stage}: its optimizer has the settings {own} in group "
                        f"{number}, and stage {first} has {other}; they have to be the "
                        "same to be cut anew."
                    )

    def groups_of(self, names: Sequence[str]) -> list[list[str]]:
        """Names of a new stage's parameters, in their old groups."""
        count = len(next(iter(self._of_stage.values()), []))
        groups: list[list[str]] = [[] for _ in range(count)]
        for name in names:
            if name in self._group:
                groups[self._group[name]].append(name)
        return groups

    def state_of(self, stage: int, groups: Sequence[Sequence[str]]) -> dict[str, Any]:
        """A state in the form of `torch.optim.Optimizer.state_dict`.

        Raises:
            ConfigError: parameters of a group had different settings.
        """
        state: dict[int, Any] = {}
        made: list[dict[str, Any]] = []
        at = 0
        for number, names in enumerate(groups):
            settings = self._settings_of(stage, number, names)
            made.append({**settings, "params": [*range(at, at + len(names))]})
            for name in names:
                if name in self._state:
                    state[at] = self._state[name]
                at += 1
        return {"state": state, "param_groups": made}

    def _settings_of(
        self, stage: int, number: int, names: Sequence[str]
    ) -> dict[str, Any]:
        known = [name for name in names if name in self._settings]
        if not known:  # an empty group, or a group of frozen parameters
            all_groups = next(iter(self._of_stage.values()))
            return all_groups[min(number, len(all_groups) - 1)]
        first = self._settings[known[0]]
        for name in known:
            if self._settings[name] != first:
                raise ConfigError(
                    f'stage {stage}: "{known[0]}" and "{name}" are in one group of the '
                    f"new optimizer, and had the settings {first} and "
                    f"{self._settings[name]}; give them groups of their own."
                )
        return first
