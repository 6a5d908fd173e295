# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tells the recorder of a trace what a rank does of a schedule.

Each section has the name "KIND stage S micro-batch M", such as "forward stage 1
micro-batch 3"; `trace` reads it back. "pipeline run" is one run of the schedule, and
one step of the trace. "planned stage S: N ns" is what the plan says that a stage takes.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aikido_torch import _C

__all__ = ["Teller"]

_RUN = "pipeline run"


class Teller:
    """Of one rank. For the thread that trains; costs next to nothing while disarmed.

    Args:
        recorder: of the process; None tells nobody.
        planned_s: seconds that the plan has for the stages of this rank, by stage.
    """

    def __init__(
        self,
        recorder: _C.Recorder | None = None,
        planned_s: Mapping[int, float] | None = None,
    ) -> None:
        self._recorder = recorder
        self._planned_s = dict(planned_s or {})
        self._names: dict[str, int] = {}

    def begin(self) -> int:
        """The time at which something begins; 0 while nothing is recorded."""
        is_armed = self._recorder is not None and self._recorder.is_armed
        return time.monotonic_ns() if is_armed else 0

    def end(self, kind: str, stage: int, micro_batch: int, begun: int) -> None:
        """What began then has ended; `micro_batch` is -1 where there is none."""
        if not begun:
            return
        name = f"{kind} stage {stage}"
        if micro_batch >= 0:
            name += f" micro-batch {micro_batch}"
        self._section(name, begun)

    @contextmanager
    def run(self) -> Iterator[None]:
        """A run of the schedule is inside; afterwards the next step is under way."""
        if self._recorder is None:
            yield
            return
        begun, step = self.begin(), self._recorder.step
        yield
        if begun:
            self._section(_RUN, begun)
            for stage, seconds in self._planned_s.items():
                self._section(f"planned stage {stage}: {seconds * 1e9:.0f} ns", begun)
        # Hooks of `trace.watch` on an optimizer have counted it already.
        if self._recorder.step == step:
            self._recorder.next_step()

    def _section(self, name: str, begun: int) -> None:
        assert self._recorder is not None
        if name not in self._names:
            self._names[name] = self._recorder.name(name)
        self._recorder.section(
            self._names[name], begun, time.monotonic_ns(), self._recorder.step
        )
