# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The policies as frozen dataclasses; csrc/straggler has the code that decides."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from aikido_torch import _C
from aikido_torch._names import Renamed, refuse_unknown_names, rename_options
from aikido_torch.errors import ConfigError

__all__ = ["ActiveBackup", "Policy", "SkipStraggler", "WaitAll"]


_rename_options = rename_options(
    masks=Renamed("granularity"),
    log_full=Renamed("on_log_full", {"leave": "exclude"}),
)
_COUNTS = ("max_consecutive_skips", "warmup_operations")
_DEFAULT_CEILING_MS = 10_000.0
# Half of the largest size of a group whose calls may skip ranks.
_MOST_BACKUPS = 512


class Policy:
    """Base of all policies. All ranks of a call must pass equal policies.

    A value of a wrong type and an unknown option are refused at once. A value out of
    its range is refused by the call, by `register` or by `OverlappedDataParallel`, on
    all ranks, also if only one rank passes it.
    """

    def native(self) -> _C.PolicyOptions:
        """Returns the policy as the options of the C++ engine.

        Raises:
            ConfigError: a value is out of its range in a group of any size, or it is
                none of the policies below.
        """
        raise ConfigError(
            f"{type(self).__name__} has no native() and so says nothing to the engine; "
            "pass WaitAll(), SkipStraggler(...) or ActiveBackup(...)."
        )


@refuse_unknown_names
@dataclass(frozen=True, kw_only=True)
class WaitAll(Policy):
    """Skips no rank: each result is full, and its bits do not depend on late ranks.

    Attributes:
        rebalance: a rank that is late again and again, because it calls late or has a
            slow link, sums no shard of the result until it has been in time for long.
            From its call on, an allreduce of S bytes then takes the time of S bytes
            over its link, instead of 2 (n-1) / n times that. The rank's contribution is
            in every result. A dead rank ends the call with an error, as with
            rebalance=False.

    Raises:
        ConfigError: rebalance is not a bool; or there is no such option.
    """

    rebalance: bool = False

    def __post_init__(self) -> None:
        _check_flag("WaitAll", "rebalance", self.rebalance)

    def native(self) -> _C.PolicyOptions:
        return _C.PolicyOptions.wait_all(rebalance=self.rebalance)


@_rename_options
@refuse_unknown_names
@dataclass(frozen=True, kw_only=True)
class SkipStraggler(Policy):
    """Goes on without ranks that are late; all ranks get the same result.

    The waiting time starts when `min_contributors` contributions have arrived, so no
    rank is skipped when all ranks are slow. Its length is learnt from recent
    operations: the policy takes the deadline that would have given most contributions
    per second. If waiting for all ranks gives more, the policy waits. The defaults suit
    most users.

    Attributes:
        min_contributors: no result has fewer contributions. None is more than half of
            the ranks; with an even number of four or more ranks it is exactly half if
            all other ranks are late at the same time.
        floor_ms, ceiling_ms: shortest and longest deadline, from the arrival of
            `min_contributors` contributions on. A contribution that arrives too slowly
            to be complete in time is skipped after half of its deadline. A contribution
            that is nearly complete at its deadline gets more time, up to its worth. The
            ceiling must be below the timeout of the call. None is 10 s, or half of that
            timeout if the timeout is not longer than 10 s.
        max_consecutive_skips: after this number of skips in a row, the group waits for
            the rank.
        warmup_operations: number of operations of one size that wait up to
            `ceiling_ms`, before deadlines are learnt.
        slack: factor from the observed lag of a rank to its deadline, at least 1.
        worth: value of a missing contribution, from 0 (nothing is lost without it) to 1
            (every sample counts). With 1 the policy makes as many contributions per
            second as possible. With less it prefers more steps per second.
        divisor: "contributors" divides a mean by the number of contributions in it,
            "world" by the number of ranks.
        granularity: "shard": each shard of a tensor ends on its own, so the
            contribution of a late rank may be in some shards. "bucket": a contribution
            is in the whole result or in no part of it. Then one rank sums the whole
            tensor; the ranks take turns. A single call takes n times as long; n calls
            at the same time take as long as with "shard".
        on_log_full: behaviour if there is no room left for the results that a late rank
            has missed (`straggler.log_bytes`, for all policies of a group together).
            "wait" waits for that rank. "exclude" excludes it, if more than half of the
            ranks and at least `min_contributors` remain. Its calls then fail until it
            has copied the state of another rank, as `catch_up` of `aikido_torch.ddp`
            does.

    Raises:
        ConfigError: a value has a wrong type, or there is no such option; the text then
            has the most similar name. See `Policy` for a value that is out of its
            range.
    """

    min_contributors: int | None = None
    floor_ms: float = 20.0
    ceiling_ms: float | None = None
    max_consecutive_skips: int = 100
    warmup_operations: int = 3
    slack: float = 1.5
    worth: float = 1.0
    divisor: Literal["contributors", "world"] = "contributors"
    granularity: Literal["shard", "bucket"] = "shard"
    on_log_full: Literal["wait", "exclude"] = "wait"

    def __post_init__(self) -> None:
        title = type(self).__name__
        for name in ("min_contributors", *_COUNTS):
            if (value := getattr(self, name)) is not None or name in _COUNTS:
                _check_whole(title, name, value)
        for name in ("floor_ms", "ceiling_ms", "slack", "worth"):
            if (value := getattr(self, name)) is not None or name != "ceiling_ms":
                _check_number(title, name, value)
        for name in ("divisor", "granularity", "on_log_full"):
            _check_name(title, name, getattr(self, name))

    def native(self) -> _C.PolicyOptions:
        return _skip_options(self)


@_rename_options
@refuse_unknown_names
@dataclass(frozen=True, kw_only=True)
class ActiveBackup(SkipStraggler):
    """As `SkipStraggler`, but the last ranks are backups that stand in for late ones.

    The last `backups` ranks are backups, and the other ranks are primaries. The work of
    primary d is *data shard* d. A backup computes a data shard as well and offers it.
    It sends its result only when asked, which happens when the time of the primary has
    passed. Only the first complete contribution counts. So a step without a late
    primary costs no extra bandwidth, and a step with a late primary loses no
    contribution. `outcome().stand_ins` has pairs of a data shard and the backup that it
    came from, and `outcome().out` the excluded ranks. `min_contributors`, the divisor
    and `skipped` count data shards instead of ranks.

    With DistributedDataParallel, `BackupSampler` gives each rank its batches, and
    `aikido_torch.ddp.register(..., sampler=...)` does the rest. This mechanism is our
    own design.

    Attributes:
        backups: number of backups, at most half of the ranks.
        mode: "shadow": a backup computes the data shard of one primary,
            `all_reduce(..., data_shard=d)`. "substitute": it computes other data, which
            replace the data of any late primary. "n_plus_b": every rank computes its
            own data, and a call ends when it has as many contributions as there are
            primaries, from any ranks; so it fails if more than `backups` ranks are
            dead. "replicate": one backup for each primary; all always compute and send.
        verify_shadows: for debugging, with "shadow" and "replicate". Backups always
            send. A call fails on every rank if the contribution of a backup has other
            bits than that of its primary; the error names both ranks.
        min_contributors: as with `SkipStraggler`, but counts data shards.
        floor_ms, ceiling_ms, max_consecutive_skips, warmup_operations, slack, worth,
            divisor, granularity, on_log_full: as with `SkipStraggler`.

    Raises:
        ConfigError: as with `SkipStraggler`.
    """

    backups: int = 1
    mode: Literal["shadow", "substitute", "n_plus_b", "replicate"] = "shadow"
    verify_shadows: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_whole("ActiveBackup", "backups", self.backups)
        _check_flag("ActiveBackup", "verify_shadows", self.verify_shadows)
        _check_name("ActiveBackup", "mode", self.mode)

    def native(self) -> _C.PolicyOptions:
        least = 1 if self.mode == "replicate" else 0
        if not least <= self.backups <= _MOST_BACKUPS:
            raise ConfigError(
                f"ActiveBackup: backups is {self.backups} but must be between {least} "
                f"and {_MOST_BACKUPS}, and at most half of the ranks."
            )
        return _skip_options(
            self,
            backups=self.backups,
            mode=self.mode,
            verify_shadows=self.verify_shadows,
        )


def _check_whole(policy: str, name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{policy}: {name} is {value!r}; it takes a whole number.")
    if abs(value) >= 1 << 31:
        raise ConfigError(f"{policy}: {name} is {value}; it takes one of 32 bits.")


def _check_number(policy: str, name: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isinstance(value, int):
        is_number = abs(value) < 1 << 63  # the engine takes a float
    if not is_number or (name.endswith("_ms") and value != value):
        raise ConfigError(f"{policy}: {name} is {value!r}; it takes a number.")


def _check_flag(policy: str, name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{policy}: {name} is {value!r}; it takes True or False.")


def _check_name(policy: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{policy}: {name} is {value!r}; it takes a name.")


def _skip_options(policy: SkipStraggler, **backups: Any) -> _C.PolicyOptions:
    title = type(policy).__name__
    for name in _COUNTS:
        if (value := getattr(policy, name)) < 0:
            raise ConfigError(f"{title}: {name} is {value}; it must not be negative.")
    least = policy.min_contributors
    if least is not None and least < 1:
        raise ConfigError(
            f"{title}: min_contributors is {least} but must be at least 1, or None for "
            "more than half of the ranks."
        )
    return _C.PolicyOptions.skip(
        # In the engine 0 means "more than half".
        min_contributors=least or 0,
        floor_ms=policy.floor_ms,
        ceiling_ms=(
            max(_DEFAULT_CEILING_MS, policy.floor_ms)
            if policy.ceiling_ms is None
            else policy.ceiling_ms
        ),
        max_consecutive_skips=policy.max_consecutive_skips,
        warmup_operations=policy.warmup_operations,
        slack=policy.slack,
        worth=policy.worth,
        divisor=policy.divisor,
        granularity=policy.granularity,
        on_log_full=policy.on_log_full,
        **backups,
    )


def check_ceiling(call: str, policy: Policy | None, timeout: timedelta) -> None:
    """Refuses a ceiling that is not below `timeout`: no rank could be skipped."""
    ceiling_ms = getattr(policy, "ceiling_ms", None)
    timeout_ms = timeout / timedelta(milliseconds=1)
    if ceiling_ms is not None and ceiling_ms >= timeout_ms:
        title = type(policy).__name__
        raise ConfigError(
            f"{call}: {title}: ceiling_ms is {ceiling_ms:g} but the timeout of the "
            f"call is {timeout_ms:g} ms: it would fail before a late rank is "
            "skipped; use a shorter ceiling_ms, or None, or a longer timeout."
        )
