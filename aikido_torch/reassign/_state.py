# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""State of a `StepLoader` for a training that goes on later. Pure."""

import logging
from collections.abc import Mapping
from typing import Any

from aikido_torch.data._state import check_same, check_state, wrong_state
from aikido_torch.reassign._place import LoopPlace
from aikido_torch.reassign._plan import Plan

__all__ = ["pending_of", "read_state", "write_state"]

# A state can be loaded only if all of these are equal; otherwise items would differ.
_SAME = (
    *("num_samples", "batch_size", "micro_batch_size"),
    *("shuffle", "seed", "drop_last"),
)

_log = logging.getLogger("aikido")


def write_state(
    plan: Plan, place: tuple[int, int], rank: int | None, pending: list[int]
) -> dict[str, Any]:
    """The state, of plain numbers only.

    Args:
        plan: items of all epochs.
        place: epoch, and number of its steps that have passed.
        rank: of the pending items; None: not known, and there are none.
        pending: items of this rank to issue again.
    """
    epoch, step = place
    return {
        "epoch": epoch,
        "step": step,
        "rank": rank,
        "pending": pending,
        "of": {name: getattr(plan, name) for name in _SAME},
    }


def read_state(plan: Plan, place: LoopPlace, state: Mapping[str, Any]) -> None:
    """Checks the state and moves `place` to it.

    Raises:
        ConfigError: it is no state, or of other items.
    """
    _check(state)
    own = {name: getattr(plan, name) for name in _SAME}
    check_same("StepLoader", "micro-batches", own, state["of"])
    place.resume(state["epoch"], state["step"])


def pending_of(state: Mapping[str, Any], rank: int) -> list[int]:
    """Items of `rank` that the state has. Logs if they are of another rank."""
    pending: list[int] = list(state["pending"])
    if pending and state["rank"] != rank:
        _log.warning(
            "StepLoader: the loaded state is of rank %s, so rank %d does not know its "
            "own lost micro-batches, which are not issued again. Save and load the "
            "state of each rank to keep them.",
            state["rank"],
            rank,
        )
        return []
    return pending


def _check(state: Mapping[str, Any]) -> None:
    numbers, others = ("epoch", "step"), ("rank", "pending")
    check_state("StepLoader", state, numbers=numbers, others=others)
    pending = state["pending"]
    if not isinstance(pending, list) or not all(type(p) is int for p in pending):
        raise wrong_state("StepLoader", f"has pending={pending!r}")
