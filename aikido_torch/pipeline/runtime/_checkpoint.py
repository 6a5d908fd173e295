# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Checkpoint files of stages, and the rule which files form a complete checkpoint.

`<folder>/step-0000000120/stage-1-of-3.pt` is stage 1 after 120 batches. A file gets its
name only when its content is complete and on the disk. So a rank that dies while it
writes leaves no file that looks valid. A step is complete when all its files exist: no
rank has to wait for others, or to report the end of its writing. A file ends with its
checksum; a file with a wrong checksum counts as missing.

Each file has the identifier of the life that wrote it. A life of a pipeline lasts from
its construction or a restore to its end or the next restore. A step whose files come
from two lives is not complete, because the stages were trained differently.
"""

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aikido_torch._seal import check_seal, seal
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.runtime._ranks import Ranks
from aikido_torch.pipeline.runtime._stage import StageRun

__all__ = [
    "Place",
    "check_state",
    "load_stages",
    "names_by_group",
    "newest_states",
    "read_state",
    "save_stage",
    "trainable_names",
    "write_state",
]

_FOLDER = re.compile(r"step-(\d+)")
_FILE = re.compile(r"stage-(\d+)-of-(\d+)\.pt")


@dataclass(frozen=True)
class Place:
    """Location of the file of one stage."""

    folder: Path
    stage: int
    num_stages: int

    def file(self, step: int) -> Path:
        name = f"stage-{self.stage}-of-{self.num_stages}.pt"
        return self.folder / f"step-{step:010d}" / name


def save_stage(place: Place, step: int, run: StageRun, life: str) -> None:
    """Writes the file of one stage.

    Args:
        place: location of the file.
        step: number of batches that the stage was trained on.
        run: the stage.
        life: identifier of the life that writes the file.

    Raises:
        OSError: it cannot be written.
    """
    optimizer = run.optimizer.state_dict() if run.optimizer else None
    model = run.module.state_dict()
    write_state(
        place.file(step),
        {
            "model": model,
            "optimizer": optimizer,
            "life": life,
            "parameters": trainable_names(run.module),
            "groups": names_by_group(run.optimizer, run.module)
            if run.optimizer
            else None,
        },
    )


def trainable_names(module: nn.Module) -> list[str]:
    """Names of the trained parameters, in the order of the stage's optimizer."""
    return [name for name, p in module.named_parameters() if p.requires_grad]


def names_by_group(
    optimizer: torch.optim.Optimizer, module: nn.Module
) -> list[list[str]]:
    """Names of the parameters of an optimizer, group by group."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    return [
        [names.get(parameter, "") for parameter in group["params"]]
        for group in optimizer.param_groups
    ]


def newest_states(
    places: Mapping[int, Place],
    runs: Mapping[int, StageRun],
    stages: Sequence[Sequence[int]],
    ranks: Ranks,
) -> tuple[int, dict[int, Any]] | None:
    """The states of the newest step whose files, for all stages, have the same life.

    All ranks call it together. A replica that lacks the file gets the state from a
    replica that has it.

    Args:
        places, runs: file location and run of each stage of this rank.
        stages: for each stage the ranks that have it.
        ranks: the ranks of the pipeline.

    Returns:
        The step, and the state for each stage of this rank; None if there is none.

    Raises:
        ConfigError: the files belong to another plan; raised on all ranks.
    """
    seen = ranks.together(lambda: {s: _steps_of(place) for s, place in places.items()})
    steps = [
        {step for rank in having for step in seen[rank][s]}
        for s, having in enumerate(stages)
    ]
    damaged: dict[int, list[int]] = {}  # by step: stages with a damaged file
    for step in sorted(set.intersection(*steps), reverse=True):
        files = {s: place.file(step) for s, place in places.items()}
        states = {s: read_state(file) for s, file in files.items()}
        broken = [s for s, state in states.items() if not state and files[s].exists()]
        told = ranks.together(
            lambda states=states, files=files, broken=broken: (  # type: ignore[misc]
                _readable(states, files, runs),
                broken,
            )
        )
        lives = [lives for lives, _ in told]
        if any(broken for _, broken in told):
            damaged[step] = sorted({s for _, broken in told for s in broken})
        of_stages = [
            {lives[r][s] for r in own if s in lives[r]} for s, own in enumerate(stages)
        ]
        whole = sorted(set.intersection(*of_stages))
        if not whole:
            continue
        having = [
            [r for r in own if lives[r].get(s) == whole[0]]
            for s, own in enumerate(stages)
        ]
        for s in runs:
            if len(having[s]) < len(stages[s]):
                states[s] = ranks.from_first(s, having[s], states[s])  # type: ignore[assignment]
        damaged.pop(step, None)  # another replica had an intact file
        _tell(damaged, f"step {step} is restored")
        return step, states
    _tell(damaged, "there is no older checkpoint, and nothing is restored")
    return None


def _tell(damaged: Mapping[int, Sequence[int]], instead: str) -> None:
    """Warns on all ranks, also on ranks with intact files."""
    for step, stages in damaged.items():
        files = " and ".join(f"stage {s}" for s in stages)
        warnings.warn(
            f"step {step} is not restored, since its file of {files} is damaged; "
            f"{instead}.",
            stacklevel=3,
        )


def load_stages(states: Mapping[int, Any], runs: Mapping[int, StageRun]) -> None:
    """Loads the states of `newest_states`. If it raises, a part may have been
    loaded.
    """
    for s, run in runs.items():
        run.module.load_state_dict(states[s]["model"])
        if run.optimizer is not None:
            run.optimizer.load_state_dict(states[s]["optimizer"])


def _readable(
    states: Mapping[int, dict[str, Any] | None],
    files: Mapping[int, Path],
    runs: Mapping[int, StageRun],
) -> dict[int, str]:
    """The life of each readable file, by stage."""
    for s, state in states.items():
        if state is not None:
            check_state(s, state["model"], runs[s].module.state_dict(), files[s])
    return {s: state["life"] for s, state in states.items() if state is not None}


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a file atomically: the path has the old content or the complete new one.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w+b") as file:
            torch.save(dict(state), file)
            seal(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    # The names are entries of these folders, which must reach the disk as well.
    for folder in (path.parent, path.parent.parent):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_state(path: Path) -> dict[str, Any] | None:
    """The state that `write_state` wrote; None if the file is missing or damaged."""
    if not path.exists():
        return None
    try:
        check_seal(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        parts = {part: state[part] for part in ("model", "optimizer", "life")}
        # Files of earlier versions lack these entries.
        return parts | {key: state.get(key) for key in ("parameters", "groups")}
    except Exception as error:
        warnings.warn(
            f"{path} cannot be read ({type(error).__name__}: {error}); an older "
            "checkpoint is looked for.",
            stacklevel=2,
        )
        return None


def _steps_of(place: Place) -> list[int]:
    """Steps for which the stage has a file.

    Raises:
        ConfigError: all files belong to pipelines with another number of stages.
    """
    steps, others = [], set()
    for path in place.folder.glob("step-*/stage-*.pt"):
        folder, file = _FOLDER.fullmatch(path.parent.name), _FILE.fullmatch(path.name)
        if folder is None or file is None:
            continue
        if int(file[2]) != place.num_stages:
            others.add(int(file[2]))
        elif int(file[1]) == place.stage:
            steps.append(int(folder[1]))
    if others and not steps:
        raise ConfigError(
            f"stage {place.stage} of {place.num_stages} has no checkpoint in "
            f"{place.folder}: those there are of a plan with "
            f"{' or '.join(map(str, sorted(others)))} stages. Use that plan, or "
            "another folder."
        )
    return steps


def check_state(
    stage: int, saved: Mapping[str, Any], own: Mapping[str, Any], where: Path
) -> None:
    """Checks that a module with state `own` can load the saved state.

    Raises:
        ConfigError: it belongs to another stage; the text names stage and tensor.
    """

    def told(value: Any) -> str:
        if not isinstance(value, torch.Tensor):
            return f"a {type(value).__name__}"
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{list(value.shape)} of {dtype}"

    for name in [*own, *saved]:
        have = told(own[name]) if name in own else "nothing"
        found = told(saved[name]) if name in saved else "nothing"
        if have != found:
            raise ConfigError(
                f'stage {stage}: "{name}" is {have} in this pipeline and {found} in '
                f"{where}, which is of another plan. Use that plan, or another folder."
            )
