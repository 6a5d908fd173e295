# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Types of the dicts that the native module returns."""

from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    from aikido_torch import _C

__all__ = ["BuildInfo", "Counters", "MemberEvent", "QuietStep", "SettingRow"]

# When its last bucket was given, time.monotonic(); sums with their elements.
QuietStep: TypeAlias = "tuple[float, list[tuple[_C.AikidoWork, int]]]"


class BuildInfo(TypedDict):
    version: str
    torch: str
    compiler: str
    cuda: bool
    cxx11_abi: bool
    instruction_sets: list[str]


class SettingRow(TypedDict):
    name: str
    option: str
    variable: str
    default: int | str
    minimum: int | None
    maximum: int | None
    range: str
    agreed: bool
    help: str


class MemberEvent(TypedDict):
    number: int
    kind: str
    group: str
    rank: int
    member: int
    by: list[int]
    text: str


class Counters(TypedDict):
    operations: int
    partial_operations: int
    skipped_own: int
    failures: int
    stale_frames: int
    cancelled_bytes: int
    given_bytes: int
    replayed_operations: int
    replayed_bytes: int
    replayed_bytes_in: int
    replayed_us: int
    replayed_wait_all_us: int
    inner_operations: int
    ipc_operations: int
    chunks: int
    preemptions: int
    inversions: int
    overdue_chunks: int
    queued_us: int
    paused_us: int
    wire_us: int
    credit_bytes: int
    uplink_bytes_per_s: int
