# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Record of the micro-batches that a rank takes over: spans, events and counters."""

from aikido_torch import _C
from aikido_torch._backend import (
    members_of_groups,
    recorder_of_process,
    taken_on,
)

__all__ = ["SECTION", "TakenWork"]

# Name of the span of one micro-batch.
SECTION = "taken over"


class TakenWork:
    """Micro-batches of other ranks that this rank has computed, in one group.

    The training thread adds them; any thread reads `by_owner`.

    Args:
        backend: backend of the group.

    Attributes:
        by_owner: for each owner, number of micro-batches and seconds of their
            computation.
    """

    def __init__(self, backend: _C.AikidoBackend) -> None:
        self.by_owner: dict[int, tuple[int, float]] = {}
        self._group = backend.group_name
        self._rank, _ = backend.place
        # Ranks in the job, as in spans.
        self._members = members_of_groups().get(backend.options.group_name, ())
        self._recorder = recorder_of_process()
        self._name = self._recorder.name(SECTION)
        taken_on[backend] = self

    def add(self, owner: int, label: int, begin_ns: int, seconds: float) -> None:
        """This rank has computed a micro-batch of `owner`.

        Args:
            owner: rank that began the step with it.
            label: its name.
            begin_ns: begin of its computation, by time.monotonic_ns().
            seconds: time of its computation.
        """
        count, total_s = self.by_owner.get(owner, (0, 0.0))
        self.by_owner[owner] = (count + 1, total_s + seconds)
        recorder = self._recorder
        recorder.took_over(self._group, self._rank, owner)
        if recorder.is_armed:
            end_ns = begin_ns + round(seconds * 1e9)
            known = owner < len(self._members)
            peer = self._members[owner] if known else owner
            recorder.section(
                self._name, begin_ns, end_ns, recorder.step, number=label, peer=peer
            )
