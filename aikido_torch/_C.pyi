# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Types of the native module; tests/python/rules/test_public_names.py compares them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, TypedDict

import torch
from torch._C._distributed_c10d import Backend, ReduceOp, Store, Work

class _BuildInfo(TypedDict):
    version: str
    torch: str
    compiler: str
    cuda: bool
    cxx11_abi: bool
    instruction_sets: list[str]

class _SettingRow(TypedDict):
    name: str
    option: str
    variable: str
    default: int | str
    minimum: int | None
    maximum: int | None
    agreed: bool
    help: str

class _Counters(TypedDict):
    operations: int
    partial_operations: int
    skipped_own: int
    failures: int
    stale_frames: int
    cancelled_bytes: int

def build_info() -> _BuildInfo: ...
def settings_table() -> list[_SettingRow]: ...
def resolve_settings(
    options: Mapping[str, str],
) -> dict[str, tuple[int | str, Literal["default", "environment", "option"]]]: ...
def interface_address(name: str) -> str: ...
def source_address(peer: str) -> str: ...

class PolicyOptions:
    @staticmethod
    def wait_all(*, rebalance: bool) -> PolicyOptions: ...
    @staticmethod
    def skip(
        *,
        min_contributors: int,
        floor_ms: float,
        ceiling_ms: float,
        max_consecutive_skips: int,
        warmup_operations: int,
        slack: float,
        divisor: str,
        masks: str,
        log_full: str,
    ) -> PolicyOptions: ...
    def __eq__(self, other: object, /) -> bool: ...

class ShardOutcome:
    @property
    def owner(self) -> int: ...
    @property
    def contributors(self) -> list[int]: ...
    @property
    def scale(self) -> float: ...
    @property
    def first_element(self) -> int: ...
    @property
    def num_elements(self) -> int: ...

class Outcome:
    @property
    def kind(self) -> Literal["complete", "partial", "aborted"]: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def contributors(self) -> list[int]: ...
    @property
    def skipped(self) -> list[int]: ...
    @property
    def skipped_by(self) -> list[int]: ...
    @property
    def scale(self) -> float: ...
    @property
    def shards(self) -> list[ShardOutcome]: ...
    @property
    def reason(self) -> str: ...
    @property
    def deadline_ms(self) -> float: ...
    @property
    def duration_ms(self) -> float: ...
    @property
    def was_committed(self) -> bool: ...
    @property
    def cancelled_bytes(self) -> int: ...

class Runtime:
    def __init__(self, host: str, handshake_timeout: timedelta) -> None: ...
    @property
    def address(self) -> str: ...
    @property
    def num_strangers(self) -> int: ...
    def stop(self) -> None: ...

class AikidoWork(Work):
    def outcome(self) -> Outcome | None: ...
    def is_completed(self) -> bool: ...

class AikidoBackend(Backend):
    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        group_name: str,
        options: Mapping[str, str],
        connect: bool = True,
    ) -> None: ...
    def all_reduce(
        self,
        tensor: torch.Tensor,
        op: ReduceOp,
        policy: PolicyOptions,
        priority: int,
        timeout: timedelta,
    ) -> AikidoWork: ...
    def reduce_scatter(
        self,
        output: torch.Tensor,
        inputs: list[torch.Tensor],
        op: ReduceOp,
        policy: PolicyOptions,
        priority: int,
        timeout: timedelta,
    ) -> AikidoWork: ...
    def reduce_scatter_tensor(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        op: ReduceOp,
        policy: PolicyOptions,
        priority: int,
        timeout: timedelta,
    ) -> AikidoWork: ...
    def handle(self) -> str: ...
    def change_members(
        self,
        uuid: int,
        handles: list[str],
        is_ordered: bool,
        timeout: timedelta | None,
    ) -> Work: ...
    @property
    def place(self) -> tuple[int, int]: ...
    @property
    def epoch(self) -> int: ...
    def shut_down_family(self) -> None: ...
    def perform_nocolor_split(self, device: torch.device) -> None: ...
    @property
    def committed_ahead(self) -> int: ...
    def pass_over(self, seq: int) -> None: ...
    def is_settled(self, seq: int, except_rank: int) -> bool: ...
    @property
    def num_calls(self) -> int: ...
    @property
    def call_timeout(self) -> timedelta: ...
    @property
    def standing(self) -> Literal["member", "returning", "refused"]: ...
    @property
    def counters(self) -> _Counters: ...
