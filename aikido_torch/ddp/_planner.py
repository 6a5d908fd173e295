# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Agreement of ranks on buckets: plan, compare with plain buckets, choose."""

import warnings
from collections.abc import Mapping, Sequence

import torch.distributed as dist

from aikido_torch import _C
from aikido_torch.ddp._agreement import gather
from aikido_torch.ddp._iteration import Iteration
from aikido_torch.ddp._layout import Layout, plain, planned
from aikido_torch.ddp._probe import clock_ahead_s, probe
from aikido_torch.ddp._retune import Retune
from aikido_torch.errors import ConfigError

__all__ = ["Planner"]

# Largest share of an iteration that a probe of transfers may take.
_PROBE_SHARE = 0.5


class Planner:
    """Maker of the layouts of one model. All ranks call it in the same steps.

    Args:
        backend: backend of the group.
        group: None is the default group.
        num_bytes: bytes of each parameter's gradient, by name.
        kinds: values that must be equal within a bucket, by name.

    Attributes:
        retune: measurements of this rank, which decide when it wants another layout.
    """

    def __init__(
        self,
        backend: _C.AikidoBackend,
        group: dist.ProcessGroup | None,
        num_bytes: Mapping[str, int],
        kinds: Mapping[str, object],
    ) -> None:
        self._backend = backend
        self._group = group
        self._bytes = num_bytes
        self._kinds = kinds
        self.retune = Retune()

    def next(self, current: Layout) -> Layout | None:
        """The layout that all ranks adopt now; None: they keep `current`.

        Requires: all sums have ended on all ranks.
        """
        if self.retune.trial.is_due:
            return self._tried()
        return self._newly_planned(current)

    def _tried(self) -> Layout:
        """The other side of the trial, or the layout that was faster on rank 0."""
        trial = self.retune.trial
        layout = trial.next()
        if trial.is_choice:
            layout = gather(layout, self._group)[0]
        trial.adopted(layout)
        self.retune.tried(layout.predicted_s or 0.0)
        return layout

    def _newly_planned(self, current: Layout) -> Layout | None:
        retune, trial = self.retune, self.retune.trial
        within_s = _PROBE_SHARE * (retune.measured_s or 0.0)
        retune.add_link(probe(self._group, within_s=within_s))
        is_first = self._backend.place[0] == 0
        ahead_s = 0.0 if is_first else clock_ahead_s(self._backend)
        sums = retune.sums_by(ahead_s or 0.0)
        seen = gather((retune.iteration, sums, ahead_s is not None), self._group)
        retune.add_transfers(
            [sums for _, sums, _ in seen],
            is_one_clock=all(is_known for _, _, is_known in seen),
        )
        own = self._planned([own for own, _, _ in seen]) if is_first else None
        # Only rank 0 knows which plans were rejected, because rates of links are
        # observed per rank.
        is_rejected = own is not None and trial.has_rejected(own)
        answer: tuple[Layout | None, bool] = gather((own, is_rejected), self._group)[0]
        layout, is_rejected = answer
        if layout is None or layout.predicted_s is None:
            return None
        if is_rejected:
            now_s = current.predicted_s or layout.predicted_s
            retune.planned(now_s, is_equal=True)
            return None
        is_equal = layout.sends_as(current)
        retune.planned(layout.predicted_s, is_equal=is_equal)
        if not is_equal:
            ready = [name for bucket in layout.buckets for name in bucket]
            trial.begin(layout, plain(ready, self._bytes, self._kinds))
        return layout

    def _planned(self, seen: Sequence[Iteration]) -> Layout | None:
        link = self.retune.link
        if link is None:
            return None
        slowest = max(seen, key=lambda iteration: iteration.compute_s)
        try:
            return planned(slowest, self._bytes, link, self._kinds)
        except ConfigError as error:  # the other ranks wait for an answer
            text = f"OverlappedDataParallel keeps its buckets, without a plan: {error}"
            warnings.warn(text, stacklevel=2)
            return None
