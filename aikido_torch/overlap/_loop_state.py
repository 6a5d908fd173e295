# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Place of a training loop in its steps, as seen by OverlappedDataParallel. Pure."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from aikido_torch.overlap._retune import FIRST_ITERATIONS

__all__ = ["LoopState", "PlanPhase"]


@dataclass(slots=True)
class LoopState:
    """What the loop does now. For the training thread only.

    Attributes:
        is_syncing: False under `no_sync()`, where gradients stay local.
        is_in_forward: True during a watched forward.
        is_closed: True after `close()`.
        is_catching_up: True while steps of other ranks are replayed.
        has_waited: True if the loop has waited for gradients in a step of its own, so
            that a replay needs its `apply`.
    """

    is_syncing: bool = True
    is_in_forward: bool = False
    is_closed: bool = False
    is_catching_up: bool = False
    has_waited: bool = False
    # Id of the backward that will send all gradients before it ends.
    _backward: int = -1

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Context in which `is_syncing` is False. Contexts may be nested."""
        before, self.is_syncing = self.is_syncing, False
        try:
            yield
        finally:
            self.is_syncing = before

    @contextlib.contextmanager
    def catching_up(self) -> Iterator[None]:
        """Context of a replay."""
        self.is_catching_up = True
        try:
            yield
        finally:
            self.is_catching_up = False

    def on_wait(self) -> None:
        """The loop, or the `apply` of a replay, waits for gradients."""
        self.has_waited |= not self.is_catching_up

    def begins(self, backward: int) -> bool:
        """True once for each backward whose gradients are summed.

        Args:
            backward: id of the running backward.
        """
        if self.is_closed or not self.is_syncing or backward == self._backward:
            return False
        self._backward = backward
        return True


class PlanPhase:
    """Rule for the steps after which all ranks change the layout of the buckets.

    It begins with buckets in the order of the first step. After `FIRST_ITERATIONS`
    steps it is settled.

    Args:
        plans: False if the user wants no plan.
        skips: True if the policy may skip ranks. Such a model begins with a plan, and
            other models with plain buckets.

    Attributes:
        is_settled: True if later layouts change only because a rank asks for a plan.
        num_steps: steps of this rank, without replayed ones.
    """

    def __init__(self, *, plans: bool, skips: bool) -> None:
        self._plans, self._skips = plans, skips
        self.is_settled = False
        self.num_steps = 0

    @property
    def tries(self) -> bool:
        """True if it begins with plain buckets, and tries plans beside them."""
        return self._plans and not self._skips

    @property
    def may_ask(self) -> bool:
        """True if this rank may ask all ranks for another plan."""
        return self.tries and self.is_settled

    def on_step(self, *, is_asked: bool) -> Literal["order", "settle", "plan", "keep"]:
        """A step has ended. All ranks get the same answer in the same step.

        Args:
            is_asked: True if a rank has asked for a plan.

        Returns:
            "order": adopt the order of the first step. "settle": the first steps are
            over, and models that do not try plans get their plan. "plan": plan anew.
        """
        self.num_steps += 1
        if self.num_steps == 1:
            self.is_settled = not self._plans
            return "order"
        if self.is_settled:
            return "plan" if is_asked else "keep"
        if self.num_steps <= FIRST_ITERATIONS:
            return "keep"
        self.is_settled = True
        return "settle"
