# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Checkpoints of stages in files; which of them make a whole one.

`<folder>/step-0000000120/stage-1-of-3.pt` is stage 1 after 120 batches. A file appears
under its name when it is whole and on the disk, so a rank that dies while it writes
leaves nothing that could be taken for one. A step is complete when all of its files are
there: nobody has to wait for the others, or to say when they are done. A file ends with
its checksum; one that was changed since counts as not there.

Each file names the life that wrote it: a pipeline from when it was made or restored to
when it ended or was restored again. A step that one life wrote a part of, and a later
one another part, is not complete: these were trained differently.
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
from aikido_torch.pipeline._ranks import Ranks
from aikido_torch.pipeline._stage import StageRun

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
    """Where the file of one stage is."""

    folder: Path
    stage: int
    num_stages: int

    def file(self, step: int) -> Path:
        name = f"stage-{self.stage}-of-{self.num_stages}.pt"
        return self.folder / f"step-{step:010d}" / name


def save_stage(place: Place, step: int, run: StageRun, life: str) -> None:
    """Writes the file of one stage.

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
    """Of the parameters that its optimizer has, in that order."""
    return [name for name, p in module.named_parameters() if p.requires_grad]


def names_by_group(
    optimizer: torch.optim.Optimizer, module: nn.Module
) -> list[list[str]]:
    """Names of the parameters that an optimizer has, group by group."""
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
    """What was saved at the newest step of which all stages have a file, of one life.

    All ranks call it. A replica without the file gets it from one that has it.

    Args:
        places, runs: of the stages of this rank.
        stages: the ranks that have each.

    Returns:
        That step, and what is to be loaded into each stage of this rank; or None.

    Raises:
        ConfigError: what is there is of another plan; on all ranks.
    """
    seen = ranks.together(lambda: {s: _steps_of(place) for s, place in places.items()})
    steps = [
        {step for rank in having for step in seen[rank][s]}
        for s, having in enumerate(stages)
    ]
    damaged: dict[int, list[int]] = {}  # by step: stages of files that are not whole
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
        damaged.pop(step, None)  # another replica had it
        _tell(damaged, f"step {step} is restored")
        return step, states
    _tell(damaged, "there is no older checkpoint, and nothing is restored")
    return None


def _tell(damaged: Mapping[int, Sequence[int]], instead: str) -> None:
    """On all ranks, also on those whose files are whole."""
    for step, stages in damaged.items():
        files = " and ".join(f"stage {s}" for s in stages)
        warnings.warn(
            f"step {step} is not restored, since its file of {files} is damaged; "
            f"{instead}.",
            stacklevel=3,
        )


def load_stages(states: Mapping[int, Any], runs: Mapping[int, StageRun]) -> None:
    """What `newest_states` found. When it raises, a part of it may be loaded."""
    for s, run in runs.items():
        run.module.load_state_dict(states[s]["model"])
        if run.optimizer is not None:
            run.optimizer.load_state_dict(states[s]["optimizer"])


def _readable(
    states: Mapping[int, dict[str, Any] | None],
    files: Mapping[int, Path],
    runs: Mapping[int, StageRun],
) -> dict[int, str]:
    """The life of each file that can be read, by stage."""
    for s, state in states.items():
        if state is not None:
            check_state(s, state["model"], runs[s].module.state_dict(), files[s])
    return {s: state["life"] for s, state in states.items() if state is not None}


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Under that name is nothing, or what was there before, or all of it.

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
    for folder in (path.parent, path.parent.parent):  # names are in there
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_state(path: Path) -> dict[str, Any] | None:
    """What `write_state` wrote; None when it is not there, or not what was written."""
    if not path.exists():
        return None
    try:
        check_seal(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        parts = {part: state[part] for part in ("model", "optimizer", "life")}
        # Files of earlier versions have none.
        return parts | {key: state.get(key) for key in ("parameters", "groups")}
    except Exception as error:
        warnings.warn(
            f"{path} cannot be read ({type(error).__name__}: {error}); an older "
            "checkpoint is looked for.",
            stacklevel=2,
        )
        return None


def _steps_of(place: Place) -> list[int]:
    """Steps for which the file of that stage is there.

    Raises:
        ConfigError: there are only files of a pipeline with another number of stages.
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
    """That a module with state `own` can take what was saved.

    Raises:
        ConfigError: it is of another stage; the sentence names stage and tensor.
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
