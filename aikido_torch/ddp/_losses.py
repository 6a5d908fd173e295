# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Ways in which a loop loses the gain of skipping; each is reported once with a
remedy.
"""

import sys
import warnings
from collections.abc import Mapping
from types import FrameType

from aikido_torch.recovery._report import line_of, user_line

__all__ = ["CallNames", "Losses"]

# Steps without catch_up() after which a warning says that the call is missing.
_FORGOTTEN = 8
# Calls in which a rank waits for the source rank only.
_OF_ONE = ("broadcast", "broadcast_object_list")
_CALLS = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    *_OF_ONE,
)
_MODULE = "torch.distributed.distributed_c10d"


class CallNames:
    """Recorder of the calls of torch.distributed that this thread makes.

    It uses Python's profiling hook, which slows all calls, so it runs for one step.

    Attributes:
        found: name of each call, with the file and line of the user's code.
    """

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, int]] = {}
        self._is_watching = False

    def begin(self) -> None:
        """Begins to record; does nothing while the user's own profiler runs."""
        if sys.getprofile() is None:
            self._is_watching = True
            sys.setprofile(self._on_event)

    def end(self) -> None:
        """Ends the recording. Idempotent."""
        if self._is_watching:
            self._is_watching = False
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_name
        if event != "call" or name not in _CALLS:
            return
        if frame.f_globals.get("__name__") == _MODULE:
            self.found.setdefault(name, line_of(frame))


class Losses:
    """The losses of one handle. For the training thread only.

    Attributes:
        told: a sentence for each loss that was found.
        has_caught_up: True if the loop has called catch_up().
    """

    def __init__(self) -> None:
        self.told: list[str] = []
        self._kinds: set[str] = set()
        self._num_without_catch_up = 0
        self.has_caught_up = False

    def tell(self, kind: str, text: str, place: tuple[str, int] | None = None) -> None:
        """Warns once per kind, at `place` or at the present line of the user's code."""
        if kind not in self._kinds:
            self._kinds.add(kind)
            self.told.append(text)
            warnings.warn_explicit(text, UserWarning, *(place or user_line()))

    def tell_all(self, texts: Mapping[str, str]) -> None:
        """Calls `tell` for each text, by kind."""
        for kind, text in texts.items():
            self.tell(kind, text)

    def on_catch_up(self) -> None:
        """The loop has called catch_up()."""
        self.has_caught_up = True

    def on_own_step(self) -> None:
        """This rank does a step in which the policy may skip."""
        if self.has_caught_up:
            return
        self._num_without_catch_up += 1
        if self._num_without_catch_up >= _FORGOTTEN:
            self.tell(
                "catch_up",
                f"The loop has done {self._num_without_catch_up} steps without "
                "handle.catch_up(). A rank that is late once stays behind for good: "
                "each of its later gradients is too late and is thrown away. Call it "
                "at the top of the loop: while (step := step + handle.catch_up()) < "
                "steps.",
            )

    def tell_calls(
        self, per_step: int, found: dict[str, tuple[str, int]], *, is_shared: bool
    ) -> None:
        """Warns that the loop makes calls on the model's group in each step.

        Args:
            per_step: number of calls in a step.
            found: the calls whose name and line are known.
            is_shared: True if the buckets are reduced on that group too.
        """
        told = [name for name in found if is_shared or name not in _OF_ONE]
        if found and not told:
            return
        names = ", ".join(told) or "such as all_reduce or barrier"
        why = (
            "A late rank has to make each of them first, so it never catches up."
            if is_shared
            else "All ranks wait in them for a late rank, whatever the policy skips, "
            "so skipping gains nothing."
        )
        self.tell(
            "calls",
            f"The loop makes {per_step} calls on the model's group in each step "
            f"({names}). {why} Make them where handle.every(n) is true, or on each "
            "rank alone.",
            found[told[0]] if told else None,
        )
