# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Agreement of ranks on buckets: plan, compare with plain buckets, choose."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch.distributed as dist

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.overlap._iteration import Iteration, slowest
from aikido_torch.overlap._layout import Layout, by_module, plain, planned, predict
from aikido_torch.overlap._probe import clock_ahead_s, probe
from aikido_torch.overlap._retune import LEAST_GAIN, Retune, link_of
from aikido_torch.recovery._agreement import gather

__all__ = ["Planner"]

# Largest share of an iteration that a probe of transfers may take.
_PROBE_SHARE = 0.25

# The best plan, and the seconds of the present layout if the ranks keep that instead.
_Answer = tuple[Layout | None, float | None]


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

    def first(
        self, ready: Sequence[str], uses: Sequence[str], *, is_plain: bool
    ) -> Layout:
        """Plain buckets, or one for each module, until the first plan.

        Args:
            ready: all parameters, in the order in which their gradients become ready.
            uses: all parameters, in the order of their first use.
        """
        if is_plain:
            return plain(ready, self._bytes, self._kinds)
        return by_module(ready, uses, self._kinds)

    def next(self, current: Layout) -> Layout | None:
        """The layout that all ranks adopt now; None: they keep `current`.

        Requires: all sums have ended on all ranks.
        """
        if self.retune.trial.is_due:
            return self._tried()
        return self._newly_planned(current)

    def _tried(self) -> Layout:
        """The next side of the trial, or the better layout, as rank 0 decides."""
        trial = self.retune.trial
        if (plan := trial.plan_to_correct) is not None:
            self._correct(plan)
        answer: tuple[Layout, bool] = gather(trial.next(), self._group)[0]
        layout, is_over = answer
        trial.adopted(layout, is_over=is_over)
        self.retune.tried(layout.predicted_s or 0.0)
        return layout

    def _correct(self, plan: Layout) -> None:
        """Predicts the plan again, from the cost of its last turn."""
        iteration, costs = self._seen_by_all()
        link = link_of(costs)
        if link is not None and self._is_first:
            self.retune.trial.correct(predict(plan, iteration, self._bytes, link))

    def _seen_by_all(self) -> tuple[Iteration, list[tuple[float, float]]]:
        """The slowest rank's iteration, and (bytes, seconds) of transfers."""
        retune = self.retune
        ahead_s = 0.0 if self._is_first else clock_ahead_s(self._backend)
        own = retune.iteration, retune.computing_s, retune.sums_by(ahead_s or 0.0)
        seen = gather((*own, ahead_s is not None), self._group)
        costs = retune.add_transfers(
            [sums for _, _, sums, _ in seen],
            is_one_clock=all(is_known for *_, is_known in seen),
        )
        return slowest([it for it, *_ in seen], [each for _, each, *_ in seen]), costs

    def _newly_planned(self, current: Layout) -> Layout | None:
        retune, trial = self.retune, self.retune.trial
        within_s = _PROBE_SHARE * (retune.measured_s or 0.0)
        retune.add_link(probe(self._group, within_s=within_s))
        iteration, _ = self._seen_by_all()
        # Only rank 0 knows which plans were rejected, because rates of links are
        # observed per rank.
        own = self._answer(iteration, current) if self._is_first else (None, None)
        answer: _Answer = gather(own, self._group)[0]
        layout, keeps_s = answer
        if layout is None or layout.predicted_s is None:
            retune.planned(retune.measured_s or 0.0, is_equal=True)
            return None
        if keeps_s is not None:
            retune.planned(keeps_s, is_equal=True)
            return replace(current, predicted_s=keeps_s, candidates=layout.candidates)
        is_equal = layout.sends_as(current)
        plain_s = retune.recent_s if current.is_plain else ()
        retune.planned(layout.predicted_s, is_equal=is_equal)
        if not is_equal:
            ready = [name for bucket in layout.buckets for name in bucket]
            trial.begin(layout, plain(ready, self._bytes, self._kinds), plain_s)
        return layout

    @property
    def _is_first(self) -> bool:
        return self._backend.place[0] == 0

    def _answer(self, iteration: Iteration, current: Layout) -> _Answer:
        plan = self._planned(iteration)
        link = self.retune.link
        if plan is None or plan.predicted_s is None or link is None:
            return plan, None
        now_s = self.retune.measured_s
        if not current.is_plain:  # both by the same costs
            now_s = predict(current, iteration, self._bytes, link)
        if now_s is None:
            return plan, None
        gains_little = plan.predicted_s > (1 - LEAST_GAIN) * now_s
        keeps = gains_little or self.retune.trial.has_rejected(plan)
        return plan, now_s if keeps else None

    def _planned(self, iteration: Iteration) -> Layout | None:
        link = self.retune.link
        if link is None:
            return None
        try:
            return planned(iteration, self._bytes, link, self._kinds)
        except ConfigError as error:  # the other ranks wait for an answer
            text = f"OverlappedDataParallel keeps its buckets, without a plan: {error}"
            warnings.warn(text, stacklevel=2)
            return None
