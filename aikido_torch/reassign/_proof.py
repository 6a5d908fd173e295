# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Proof that each item counts once, from the lists of all contributors. Pure.

Note [proof of the partition]
Each rank publishes its list of a step before it contributes. So a rank that knows the
outcome can read the lists of all contributors without waiting, also if other ranks are
late or dead. An all-reduced bitmap would make all ranks wait for the late ones.
  Each item of a contributor's first list must be in the computed list of one
contributor, or the contributor must issue it again. It learns of a loss from the
outcome, or from a message that may be some steps late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aikido_torch.reassign._plan import place_of

__all__ = ["Proof", "RankLists"]

# Steps of its owner after which an item must be pending or issued again.
_PATIENCE = 16


@dataclass(frozen=True, kw_only=True)
class RankLists:
    """Lists of one rank in a step.

    Attributes:
        begun: items that the rank began the step with.
        computed: items in its contribution.
        waiting: items that the rank will issue again in a later step.
        num_dropped: items that the rank has given up so far.
    """

    begun: Sequence[int]
    computed: Sequence[int]
    waiting: Sequence[int] = ()
    num_dropped: int = 0


@dataclass(kw_only=True)
class _Missing:
    owner: int
    step: int
    num_seen: int = 0  # later steps of the owner


class Proof:
    """Items that have counted so far. For one thread.

    Attributes:
        num_counted: items that are in a sum.
        num_missing: items that were begun, are in no sum, and may still be issued.
    """

    def __init__(self) -> None:
        # Step and rank by item; finished epochs are kept, since lost items may follow.
        self._counted: dict[int, tuple[int, int]] = {}
        self._missing: dict[int, _Missing] = {}

    @property
    def num_counted(self) -> int:
        """See the class."""
        return len(self._counted)

    @property
    def num_missing(self) -> int:
        """See the class."""
        return len(self._missing)

    def check(self, step: int, lists: Mapping[int, RankLists]) -> str:
        """Adds a step. Returns a sentence about a wrong item; "" if all are right.

        Args:
            step: number of the step; later than that of the call before.
            lists: of the contributors, by rank.
        """
        for rank, own in sorted(lists.items()):
            for label in own.computed:
                if label in self._counted:
                    before, other = self._counted[label]
                    return (
                        f"{_name(label)} counts twice: rank {other} computed it in "
                        f"step {before}, and rank {rank} in step {step}."
                    )
                self._counted[label] = (step, rank)
        for rank, own in sorted(lists.items()):
            for label in own.begun:
                self._missing.pop(label, None)
                if label not in self._counted:
                    self._missing[label] = _Missing(owner=rank, step=step)
        return self._overdue(step, lists)

    def _overdue(self, step: int, lists: Mapping[int, RankLists]) -> str:
        for label, missing in [*self._missing.items()]:
            own = lists.get(missing.owner)
            if label in self._counted:
                del self._missing[label]
            elif own is None or missing.step == step:
                continue
            elif label in own.waiting:
                missing.num_seen = 0
            elif own.num_dropped:
                del self._missing[label]
            elif (seen := missing.num_seen + 1) <= _PATIENCE:
                missing.num_seen = seen
            else:
                return (
                    f"{_name(label)} counts never: rank {missing.owner} began step "
                    f"{missing.step} with it, no contributor computed it, and the rank "
                    "does not issue it again."
                )
        return ""


def _name(label: int) -> str:
    epoch, number = place_of(label)
    return f"Micro-batch {number} of epoch {epoch}"
