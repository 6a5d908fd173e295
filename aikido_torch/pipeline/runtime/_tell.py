# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trace records of the instructions that a rank executes.

Each section has the name "KIND stage S micro-batch M", such as "forward stage 1
micro-batch 3"; `trace` parses it. "pipeline run" is one run of the schedule, and one
step of the trace. "planned stage S: N ns" is the planned time of a stage.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aikido_torch import _C

__all__ = ["Teller"]

_RUN = "pipeline run"


class Teller:
    """Recorder of one rank. For the training thread only; nearly free while disarmed.

    Args:
        recorder: the recorder of the process; None records nothing.
        planned_s: planned seconds of the stages of this rank, by stage.
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
        """Start time of an instruction in ns; 0 while nothing is recorded."""
        is_armed = self._recorder is not None and self._recorder.is_armed
        return time.monotonic_ns() if is_armed else 0

    def end(self, kind: str, stage: int, micro_batch: int, begun: int) -> None:
        """Records an instruction that began at `begun`; `micro_batch` is -1 if it has
        none.
        """
        if not begun:
            return
        name = f"{kind} stage {stage}"
        if micro_batch >= 0:
            name += f" micro-batch {micro_batch}"
        self._section(name, begun)

    @contextmanager
    def run(self) -> Iterator[None]:
        """Context of one run of the schedule, which is one step of the trace."""
        if self._recorder is None:
            yield
            return
        begun, step = self.begin(), self._recorder.step
        yield
        if begun:
            self._section(_RUN, begun)
            for stage, seconds in self._planned_s.items():
                self._section(f"planned stage {stage}: {seconds * 1e9:.0f} ns", begun)
        # Hooks of `trace.watch` on an optimizer have counted the step already.
        if self._recorder.step == step:
            self._recorder.next_step()

    def _section(self, name: str, begun: int) -> None:
        assert self._recorder is not None
        if name not in self._names:
            self._names[name] = self._recorder.name(name)
        self._recorder.section(
            self._names[name], begun, time.monotonic_ns(), self._recorder.step
        )
