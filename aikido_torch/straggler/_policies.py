# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The policies as frozen values; csrc/straggler holds the decisions themselves."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from aikido_torch import _C
from aikido_torch._names import refuse_unknown_names
from aikido_torch.errors import ConfigError

__all__ = ["ActiveBackup", "Policy", "SkipStraggler", "WaitAll"]


_COUNTS = ("max_consecutive_skips", "warmup_operations")
_DEFAULT_CEILING_MS = 10_000.0
# Half of the most ranks that a group may have whose calls skip.
_MOST_BACKUPS = 512


class Policy:
    """Base of all policies. All ranks of a call must pass equal policies.

    A value of a wrong type and an unknown option are refused at once. A value out of
    its range is refused by the call, by `register` or by `OverlappedDataParallel`, on
    all ranks, also if only one rank passes it.
    """

    def native(self) -> _C.PolicyOptions:
        """The same in the engine's form.

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
    """Skips nobody: each result is full, and has the same bits for any late rank.

    Attributes:
        rebalance: a rank that is late again and again, because it calls late or has a
            slow link, owns no shard until it has been in time for long. Once it has
            called, an allreduce of S bytes takes the time of S bytes over its link,
            instead of 2 (n-1) / n times that. The rank is in every result. A lost rank
            ends the call with an error, as with rebalance=False.

    Raises:
        ConfigError: rebalance is not a bool; or there is no such option.
    """

    rebalance: bool = False

    def __post_init__(self) -> None:
        _check_flag("WaitAll", "rebalance", self.rebalance)

    def native(self) -> _C.PolicyOptions:
        return _C.PolicyOptions.wait_all(rebalance=self.rebalance)


@refuse_unknown_names
@dataclass(frozen=True, kw_only=True)
class SkipStraggler(Policy):
    """Goes on without ranks that are late; all ranks get the same result.

    The clock starts when `min_contributors` contributions have arrived, so that nobody
    is skipped when everybody is slow. How long the others wait then is learnt from
    recent operations: the policy takes the rule that would have made most progress,
    which is contributions per second. If waiting for all ranks makes more progress, the
    policy waits. The defaults suit most users.

    Attributes:
        min_contributors: no result has fewer contributions. None is more than half of
            the ranks; or half of an even number of ranks, four or more, if the others
            are late at once.
        floor_ms, ceiling_ms: shortest and longest deadline after the quorum. A
            contribution that arrives too slowly to be in time gets half of its
            deadline. The ceiling must be below the timeout of the call. None is 10 s,
            or half of that timeout if the timeout is not longer than 10 s.
        max_consecutive_skips: after so many skips of a rank in a row the group waits
            for it.
        warmup_operations: operations of one size that wait up to the ceiling before
            deadlines are learnt.
        slack: factor between an observed lag and its deadline, at least 1.
        worth: value of a missing contribution, from 0 (nothing is lost without it) to 1
            (every sample counts). With 1 the policy makes as many contributions per
            second as possible. With less it prefers more steps per second.
        divisor: "contributors" divides a mean by the number of contributions in it,
            "world" by the number of ranks.
        masks: "shard": each shard of a tensor is closed by itself, so a late rank may
            be in some shards. "bucket": a rank is in the whole result or in none of it.
            Then one rank sums the whole tensor, in turns. A single call takes n times
            as long; n calls at the same time take as long as with "shard".
        log_full: behaviour if there is no room left for the missed results of a late
            rank (`straggler.log_bytes`, for all policies of a group together). "wait"
            waits for that rank. "leave" goes on without it, if more than half of the
            ranks and `min_contributors` are left. Its calls then fail until it has
            copied the state of another rank, as `catch_up` of `aikido_torch.ddp` does.

    Raises:
        ConfigError: a value is of another type, or there is no such option, and the
            text has the nearest. See `Policy` for a value that is out of its range.
    """

    min_contributors: int | None = None
    floor_ms: float = 20.0
    ceiling_ms: float | None = None
    max_consecutive_skips: int = 100
    warmup_operations: int = 3
    slack: float = 1.5
    worth: float = 1.0
    divisor: Literal["contributors", "world"] = "contributors"
    masks: Literal["shard", "bucket"] = "shard"
    log_full: Literal["wait", "leave"] = "wait"

    def __post_init__(self) -> None:
        title = type(self).__name__
        for name in ("min_contributors", *_COUNTS):
            if (value := getattr(self, name)) is not None or name in _COUNTS:
                _check_whole(title, name, value)
        for name in ("floor_ms", "ceiling_ms", "slack", "worth"):
            if (value := getattr(self, name)) is not None or name != "ceiling_ms":
                _check_number(title, name, value)
        for name in ("divisor", "masks", "log_full"):
            _check_name(title, name, getattr(self, name))

    def native(self) -> _C.PolicyOptions:
        return _skip_options(self)


@refuse_unknown_names
@dataclass(frozen=True, kw_only=True)
class ActiveBackup(SkipStraggler):
    """As `SkipStraggler`, but the last ranks are backups that stand in for late ones.

    The last `backups` ranks are backups, and the other ranks are primaries. The work of
    primary d is *data shard* d. A backup computes a data shard as well and offers it.
    The backup is asked for it only if the primary has no time left. The first complete
    contribution counts, once. So a step without a late primary costs no bandwidth, and
    a step with a late primary loses nothing. `outcome().stand_ins` has pairs of a data
    shard and the backup that it came from, and `outcome().out` the excluded ranks.
    Everything else is about data shards: `min_contributors`, the divisor, `skipped`.

    With DistributedDataParallel, `BackupSampler` gives each rank its batches, and
    `aikido_torch.ddp.register(..., sampler=...)` does the rest. The mechanism is this
    project's own.

    Attributes:
        backups: how many of the ranks, at most half of them.
        mode: "shadow": a backup computes the data shard of one primary,
            `all_reduce(..., data_shard=d)`. "substitute": it computes other data, which
            fill the hole of any primary. "n_plus_b": every rank computes data of its
            own, and a call ends with as many contributions as there are primaries, from
            any ranks; so it fails with more dead ranks than `backups`. "replicate": one
            backup for each primary; all compute and send always.
        verify_shadows: for debugging, with "shadow" and "replicate". Backups always
            send. A call fails on every rank, with the names, if a backup has other bits
            than its primary.
        min_contributors: as with `SkipStraggler`, of the data shards.
        floor_ms, ceiling_ms, max_consecutive_skips, warmup_operations, slack, worth,
            divisor, masks, log_full: as with `SkipStraggler`.

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
        is_number = abs(value) < 1 << 63  # it becomes a float
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
        # 0 stands for "more than half" inside.
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
        masks=policy.masks,
        log_full=policy.log_full,
        **backups,
    )


def check_ceiling(call: str, policy: Policy | None, timeout: timedelta) -> None:
    """Refuses a policy that cannot skip anybody before `timeout` is over."""
    ceiling_ms = getattr(policy, "ceiling_ms", None)
    timeout_ms = timeout / timedelta(milliseconds=1)
    if ceiling_ms is not None and ceiling_ms >= timeout_ms:
        title = type(policy).__name__
        raise ConfigError(
            f"{call}: {title}: ceiling_ms is {ceiling_ms:g} but the timeout of the "
            f"call is {timeout_ms:g} ms: it would fail before a late rank is "
            "skipped; use a shorter ceiling_ms, or None, or a longer timeout."
        )
