# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Log of the items that one rank computed in each step, and its replay."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from aikido_torch.errors import ConfigError
from aikido_torch.reassign._items import OwnItems

__all__ = ["AssignmentLog", "ReplayedItems", "StepRecord"]

_MOST_STEPS = 100_000
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """Items of one rank in a step.

    Attributes:
        begun: labels of the items that the rank began the step with.
        computed: owner and label of the items in its gradient, in order.
        knew_last: True if the sums began in the backward of the last item.
        num_given: own items that helpers took.
        seconds: time that the rank computed.
        cost_begun, cost_computed: predicted costs of `begun` and `computed`.
        has_counted: True if the gradient is in the result; None if not known yet.
    """

    begun: Sequence[int]
    computed: Sequence[tuple[int, int]]
    knew_last: bool
    num_given: int = 0
    seconds: float = 0.0
    cost_begun: float = 0.0
    cost_computed: float = 0.0
    has_counted: bool | None = None


class AssignmentLog:
    """Records of the last 100,000 steps of one rank, by number of the step."""

    def __init__(self) -> None:
        self.steps: dict[int, StepRecord] = {}

    def add(self, step: int, record: StepRecord) -> None:
        """Adds a step of this rank."""
        self.steps[step] = record
        if len(self.steps) > _MOST_STEPS:
            del self.steps[next(iter(self.steps))]

    def on_outcome(self, step: int, *, has_counted: bool) -> None:
        """The result of an added step is known."""
        if step in self.steps:
            self.steps[step] = replace(self.steps[step], has_counted=has_counted)

    def state_dict(self) -> dict[str, Any]:
        """The records as plain lists and numbers, for torch.save or JSON."""
        records = [asdict(each) for each in self.steps.values()]
        return {"version": _VERSION, "steps": [*self.steps], "records": records}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "AssignmentLog":
        """The log of a `state_dict`.

        Raises:
            ConfigError: it is no such state.
        """
        if not isinstance(state, Mapping) or state.get("version") != _VERSION:
            raise ConfigError(
                f"StepLoader: replay is a {type(state).__name__} that is no log; give "
                "the result of log() of a StepLoader, of the same rank."
            )
        log = cls()
        for step, record in zip(state["steps"], state["records"], strict=True):
            pairs = [(owner, label) for owner, label in record["computed"]]
            log.add(step, StepRecord(**record | {"computed": pairs}))
        return log

    def counted(self, step: int) -> StepRecord:
        """Items that a replay of the step computes: none if they did not count."""
        record = self.steps.get(step)
        if record is None or record.has_counted is False:
            return StepRecord(begun=(), computed=(), knew_last=False)
        return record


class ReplayedItems(OwnItems):
    """Exchange that gives the items of a log, in the order of the log.

    Args:
        rank: this rank.
        log: log of the run to repeat.
    """

    def __init__(self, rank: int, log: AssignmentLog) -> None:
        super().__init__(rank)
        self._log = log

    def begin(self, step: int, labels: list[int], costs: list[float]) -> None:
        """See `Exchange`. The labels are those of the log."""
        record = self._log.counted(step)
        self._begin([*record.computed], knows_last=record.knew_last)
