# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Background copy of the shards: coalesced deltas, send order, consistent point.

Pure: no threads, no clock. An owner has a `FlushQueue`; each member has an equal
`ConsistentPoint`.

```
owner:  record(step) -> pending --take--> in flight --acknowledge--> copied
        a further record of a pending shard is coalesced with the pending delta
```
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from aikido_torch.errors import ConfigError, InternalError

__all__ = ["ConsistentPoint", "Delta", "FlushPlan", "FlushQueue"]


@dataclass(frozen=True)
class Delta:
    """Change of one shard over one or more steps.

    Attributes:
        shard: number of the shard.
        after: last step that the copy has already; -1: no step.
        step: step that the copy has with this delta.
        num_bytes: bytes on the wire. Coalesced steps have the bytes of one step.
    """

    shard: int
    after: int
    step: int
    num_bytes: int


@dataclass(frozen=True)
class FlushPlan:
    """Deltas that are sent within the warning of an eviction.

    Attributes:
        deltas: deltas to send, in this order.
        left_behind: deltas for which there is no time.
        seconds: time for all deltas, those left behind included.
        warning_s: time until the eviction, in seconds.
    """

    deltas: tuple[Delta, ...]
    left_behind: tuple[Delta, ...]
    seconds: float
    warning_s: float

    @property
    def is_complete(self) -> bool:
        """True if all deltas are sent, so that no step is lost."""
        return not self.left_behind

    @property
    def reason(self) -> str:
        """One sentence for the log."""
        num = len(self.deltas) + len(self.left_behind)
        times = f"take {self.seconds:.3g} s of {self.warning_s:.3g} s of warning"
        if self.is_complete:
            return f"{num} deltas {times}; no step is lost"
        return (
            f"{num} deltas {times}; {len(self.left_behind)} of them are not sent, so "
            "the job returns to its consistent point"
        )


class FlushQueue:
    """Deltas of the shards of one owner that the reliable members do not have yet.

    A shard has one pending delta at most, and one delta in flight at most.
    """

    def __init__(self) -> None:
        self._pending: dict[int, Delta] = {}
        self._in_flight: dict[int, Delta] = {}
        self._last: dict[int, int] = {}  # last recorded step by shard

    def own(self, shard: int, step: int) -> None:
        """Begins with a shard whose copy has the state after `step`; -1: none."""
        self._drop(shard)
        self._last[shard] = step

    def disown(self, shard: int) -> None:
        """Ends with a shard that has another owner now."""
        self._drop(shard)
        self._last.pop(shard, None)

    def record(self, shard: int, step: int, num_bytes: int) -> Delta:
        """Adds the change of a shard in a step to its pending delta.

        Args:
            shard: number of a shard that this member owns.
            step: number of the step; higher than that of the last record.
            num_bytes: bytes of the delta on the wire.

        Returns:
            The pending delta of the shard.

        Raises:
            InternalError: the shard has another owner, or the steps go back.
        """
        last = self._last.get(shard)
        if last is None or step <= last:
            raise InternalError(
                f"elastic: step {step} of shard {shard} is recorded for the copy after "
                f"step {last}; please report this."
            )
        # A delta that is on the wire already cannot be coalesced with another one.
        before = self._pending.get(shard)
        delta = Delta(shard, before.after if before else last, step, num_bytes)
        if before is not None:
            delta = replace(delta, num_bytes=max(num_bytes, before.num_bytes))
        self._pending[shard] = delta
        self._last[shard] = step
        return delta

    @property
    def pending_bytes(self) -> int:
        """Bytes that the copies lack, those in flight included."""
        return sum(delta.num_bytes for delta in self._all())

    def take(self) -> Delta | None:
        """The oldest pending delta, which is now in flight; None: nothing to send.

        A shard with a delta in flight waits, so that its copy receives deltas in order.
        """
        ready = [d for d in self._pending.values() if d.shard not in self._in_flight]
        if not ready:
            return None
        delta = min(ready, key=_age)
        del self._pending[delta.shard]
        self._in_flight[delta.shard] = delta
        return delta

    def acknowledge(self, delta: Delta) -> None:
        """The copy has this delta. A delta of an earlier placement is ignored."""
        if self._in_flight.get(delta.shard) == delta:
            del self._in_flight[delta.shard]

    def fail(self, delta: Delta) -> None:
        """The delta was not sent: it is pending again, with later steps coalesced."""
        if self._in_flight.get(delta.shard) != delta:
            return
        del self._in_flight[delta.shard]
        later = self._pending.get(delta.shard)
        if later is not None:
            most = max(delta.num_bytes, later.num_bytes)
            delta = replace(later, after=delta.after, num_bytes=most)
        self._pending[delta.shard] = delta

    def roll_back(self, step: int) -> None:
        """Forgets all deltas: owners and copies have the state after `step` again."""
        self._pending.clear()
        self._in_flight.clear()
        self._last = dict.fromkeys(self._last, step)

    def plan(self, warning_s: float, bytes_per_s: float) -> FlushPlan:
        """Deltas to send before an eviction, oldest first.

        Args:
            warning_s: seconds until the eviction.
            bytes_per_s: measured rate to the reliable members.

        Raises:
            ConfigError: a number is negative or not finite.
        """
        for name, value in (("warning_s", warning_s), ("bytes_per_s", bytes_per_s)):
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(
                    f"elastic: {name} is {value!r}; it takes a finite number from 0 on."
                )
        order = sorted(self._all(), key=_age)
        sent: list[Delta] = []
        num_bytes = 0
        for delta in order:
            num_bytes += delta.num_bytes
            if _seconds(num_bytes, bytes_per_s) > warning_s:
                break
            sent.append(delta)
        return FlushPlan(
            deltas=tuple(sent),
            left_behind=tuple(order[len(sent) :]),
            seconds=_seconds(self.pending_bytes, bytes_per_s),
            warning_s=warning_s,
        )

    def _all(self) -> Iterable[Delta]:
        return [*self._in_flight.values(), *self._pending.values()]

    def _drop(self, shard: int) -> None:
        self._pending.pop(shard, None)
        self._in_flight.pop(shard, None)


class ConsistentPoint:
    """Last step of which the copies have all shards, and the versions to keep for it.

    A copy may have a later step of one shard than of another shard. So the copy keeps
    the version of the consistent point, and all later versions, until the point moves.

    Args:
        shards: numbers of all shards.
        step: step that all copies have; -1: the initial state.
        max_lag: most committed steps after the consistent point. An unwarned loss of
            owners costs at most that many steps.
    """

    def __init__(
        self, shards: Collection[int], step: int = -1, *, max_lag: int = 1
    ) -> None:
        if not shards:
            raise ConfigError("elastic: there are 0 shards; give 1 or more.")
        if type(max_lag) is not int or max_lag < 0:
            raise ConfigError(
                f"elastic: max_lag is {max_lag!r}; it takes a whole number of steps "
                "from 0 on."
            )
        self.step = step
        self.max_lag = max_lag
        self._versions = {shard: {step} for shard in shards}

    def record(self, delta: Delta) -> tuple[int, ...]:
        """The copy of a shard has a delta.

        Returns:
            Versions of all shards that no rollback needs any more: steps before the
            consistent point, ascending; usually empty.

        Raises:
            InternalError: the copy lacks the version on which the delta is based.
        """
        versions = self._versions[delta.shard]
        if delta.after not in versions:
            raise InternalError(
                f"elastic: a delta of shard {delta.shard} follows step {delta.after}, "
                f"and the copy has steps {sorted(versions)}; please report this."
            )
        versions.add(delta.step)
        point = max(set.intersection(*self._versions.values()))
        if point == self.step:
            return ()
        self.step = point
        old: set[int] = set()
        for kept in self._versions.values():
            old |= {step for step in kept if step < point}
            kept.difference_update(old)
        return tuple(sorted(old))

    def versions_of(self, shard: int) -> tuple[int, ...]:
        """Steps of a shard that its copy has, ascending."""
        return tuple(sorted(self._versions[shard]))

    def may_commit(self, step: int) -> bool:
        """True if `step` may be committed without more than `max_lag` steps at risk.

        Otherwise the members wait for the copies.
        """
        return step - self.step <= self.max_lag

    def roll_back(self) -> int:
        """Drops later versions of all shards, and returns the consistent point."""
        for shard in self._versions:
            self._versions[shard] = {self.step}
        return self.step


def _age(delta: Delta) -> tuple[int, int]:
    """Sort key: the delta whose copy is behind the most comes first."""
    return delta.after, delta.shard


def _seconds(num_bytes: int, bytes_per_s: float) -> float:
    if not num_bytes:
        return 0.0
    return num_bytes / bytes_per_s if bytes_per_s else math.inf
