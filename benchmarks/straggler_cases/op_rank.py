# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank that calls allreduce, block by block (plan.py); started by runs.py.

It reports, per block, begin, end and outcome of each of its calls.
"""

import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[2]))

import aikido_torch
from aikido_torch.straggler import Policy, SkipStraggler, WaitAll
from benchmarks.lab import rank as lab_rank
from benchmarks.launch import emit, leave
from benchmarks.straggler_cases.meeting import Meeting
from benchmarks.straggler_cases.plan import ARMS, PLAN_FILE, Block, from_json

WITHIN_S = 300.0  # Time-out of a call or a meeting; after that something hangs
TELL_S = 1.0  # interval of progress reports


def policy_of(block: Block) -> Policy | None:
    """The policy of the block's arm. None: Gloo, or aikido's calls through torch."""
    arm = block.arm
    if arm.startswith("gloo") or arm == "plain":
        return None
    if arm == "fixed":
        assert block.deadline_ms is not None
        return SkipStraggler(
            floor_ms=block.deadline_ms,
            ceiling_ms=block.deadline_ms,
            warmup_operations=1,  # the smallest valid value
        )
    if arm.startswith("skip"):
        return SkipStraggler()
    return WaitAll(rebalance=True) if arm == "exact" else WaitAll()


def text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class Groups:
    """A group per arm, made when it is first needed; all ranks must ask together."""

    def __init__(self) -> None:
        self._groups: dict[str, dist.ProcessGroup] = {}

    def of(self, arm: str, *, fresh: bool = False) -> dist.ProcessGroup:
        if fresh and arm in self._groups:
            group = self._groups.pop(arm)
            if dist.get_rank() in ARMS[arm]:
                dist.destroy_process_group(group)
        if arm not in self._groups:
            self._groups[arm] = dist.new_group(
                ranks=list(ARMS[arm]),
                backend="gloo" if arm.startswith("gloo") else "aikido",
                timeout=timedelta(seconds=WITHIN_S),
            )
        return self._groups[arm]


class Notes:
    """File of this rank with a line per block, which is too long for standard
    output.
    """

    def __init__(self, folder: str):
        self._path = Path(folder, f"{dist.get_rank()}.jsonl")

    def add(self, index: int, **facts: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"block": index, **facts}) + "\n")
        if dist.get_rank() == 0:
            emit(ended=index)


class Seen:
    """Observations of a rank in a block."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._size = dist.get_world_size(group)
        self._skipped: dict[int, list[int]] = {}
        # Owners whose shard ended without a rank; the other owners' shards are
        # complete.
        self._closed_by: dict[int, list[int]] = {}
        self._reasons: dict[str, int] = {}
        self._deadlines: list[float] = []
        self._sums: list[int] = []
        self._error: str | None = None
        self._error_s: float | None = None

    def begin(self) -> None:
        self._begins.append(time.monotonic())

    def end(self, work: Any) -> None:
        self._ends.append(time.monotonic())
        outcome = work.outcome() if hasattr(work, "outcome") else None
        if outcome is None:
            return
        if outcome.skipped:
            op = len(self._ends) - 1
            self._skipped[op] = list(outcome.skipped)
            present = {shard.owner: shard.contributors for shard in outcome.shards}
            self._closed_by[op] = [
                owner for owner, ranks in present.items() if len(ranks) < self._size
            ]
        self._reasons[outcome.reason] = self._reasons.get(outcome.reason, 0) + 1
        self._deadlines.append(round(outcome.deadline_ms, 3))

    def add_sum(self, tensor: torch.Tensor) -> None:
        self._sums.append(zlib.crc32(tensor.numpy()))

    def fail(self, error: Exception) -> None:
        self._error = text_of(error)
        self._error_s = time.monotonic()

    def facts(self) -> dict[str, Any]:
        return {
            "begins": self._begins,
            "ends": self._ends,
            "skipped": self._skipped,
            "closed_by": self._closed_by,
            "reasons": self._reasons,
            "deadlines": self._deadlines,
            "sums": self._sums,
            "error": self._error,
            "error_s": self._error_s,
        }


def call_of(
    block: Block, group: dist.ProcessGroup | None
) -> Callable[[torch.Tensor], Any]:
    """The allreduce of a block; it returns its work."""
    policy = policy_of(block)
    if policy is None:
        return lambda tensor: dist.all_reduce(tensor, group=group)
    return lambda tensor: aikido_torch.all_reduce(tensor, group=group, policy=policy)


class Rank:
    def __init__(self, meeting: Meeting, notes: Notes):
        self._rank = dist.get_rank()
        self._meeting, self._notes = meeting, notes
        self._groups = Groups()
        self._source = torch.empty(0)

    def run(self, index: int, block: Block, notices: set[int]) -> bool:
        """Runs a block. Returns False if an error ended it, so that groups are
        unusable.
        """
        group = self._groups.of(block.arm, fresh=block.fresh)
        if self._source.numel() != block.num_bytes // 4:
            seeded = torch.Generator().manual_seed(self._rank)
            # Integers: their sums are exact for any set of contributors.
            self._source = torch.randint(
                -8, 9, (block.num_bytes // 4,), generator=seeded
            ).float()
        seen = Seen(group)
        is_member = self._rank in block.members()
        is_teller = self._rank == block.counted()[0]
        self._meeting.meet("block", index)
        is_well = True
        if is_member or block.step_s is not None:
            call = call_of(block, group if is_member else None)
            is_well = self._operations(
                block, call if is_member else None, seen, notices if is_teller else None
            )
        self._notes.add(index, **seen.facts())
        self._meeting.meet("end", index)
        return is_well

    def _operations(
        self,
        block: Block,
        call: Callable[[torch.Tensor], Any] | None,
        seen: Seen,
        notices: set[int] | None,
    ) -> bool:
        tensor = self._source.clone()
        told = time.monotonic()
        for op in range(block.ops):
            if block.step_s is not None:
                self._meeting.meet("step", op)
            tensor.copy_(self._source)
            if pause := block.pause_s(self._rank, op):
                time.sleep(pause)
            if notices and op in notices:
                self._meeting.tell(reached=op)
            if call is None:
                continue
            seen.begin()
            try:
                work = call(tensor)
            except RuntimeError as error:
                seen.fail(error)
                if not block.may_fail:
                    raise
                return False
            seen.end(work)
            if block.is_checked or op == block.ops - 1:
                seen.add_sum(tensor)
            if notices is not None and time.monotonic() - told > TELL_S:
                told = time.monotonic()
                emit(done=op + 1)
        if notices and block.ops in notices:
            self._meeting.tell(reached=block.ops)
        return True


def main() -> None:
    argument = json.loads(sys.argv[1])
    blocks = from_json(Path(argument["folder"], PLAN_FILE).read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=WITHIN_S))
    meeting = Meeting(argument["folder"], dist.get_rank(), within_s=WITHIN_S)
    lab_rank.ready()
    rank = Rank(meeting, Notes(argument["folder"]))
    try:
        for index, (block, notices) in enumerate(blocks):
            if not rank.run(index, block, notices):
                os._exit(0)  # the remaining calls of its groups could only wait
        dist.destroy_process_group()
    except RuntimeError as error:
        emit(rank=dist.get_rank(), failed=text_of(error))
        raise


if __name__ == "__main__":
    main()
    leave()
