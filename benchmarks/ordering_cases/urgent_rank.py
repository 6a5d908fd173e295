# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank that takes the turns of a plan, one after the other; see urgent_runs.py.

All sums are checked: they are sums of integers, known in advance.
"""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[2]))

import aikido_torch
from aikido_torch import Options
from benchmarks.launch import emit, leave
from benchmarks.ordering_cases.urgent_plan import PLAN_FILE, Turn, from_json
from benchmarks.straggler_cases.meeting import Meeting

WITHIN_S = 120.0  # Time-out of a call; after that something hangs


class Taker:
    """Caller of the allreduces of a turn, which reports their begins and ends."""

    def __init__(self, group: dist.ProcessGroup, turn: Turn):
        self._group, self._turn = group, turn
        self._rank, self._size = dist.get_rank(), dist.get_world_size()

    def _call(self, tensor: torch.Tensor, priority: int) -> Any:
        if self._turn.backend == "gloo":
            return dist.all_reduce(tensor, group=self._group, async_op=True)
        return aikido_torch.all_reduce(
            tensor, group=self._group, priority=priority, async_op=True
        )

    def _tensor(self, number: int, num_bytes: int) -> torch.Tensor:
        return torch.full((num_bytes // 4,), float(number + self._rank))

    def _check(self, number: int, tensor: torch.Tensor) -> None:
        want = self._size * number + self._size * (self._size - 1) / 2
        if not bool((tensor == want).all()):
            raise SystemExit(
                f"Rank {self._rank}: a sum of '{self._turn.name}' is not {want:g} "
                f"everywhere."
            )

    def prepare(self) -> None:
        turn = self._turn
        self._bulk = [self._tensor(i, turn.bulk_bytes) for i in range(turn.num_bulk)]
        self._urgent = self._tensor(turn.num_bulk, turn.urgent_bytes)

    def take(self) -> dict[str, float]:
        turn = self._turn
        seen = {"bulk_begin": time.monotonic()}
        works = [self._call(tensor, 0) for tensor in self._bulk]
        if turn.urgent_bytes:
            time.sleep(max(0.0, seen["bulk_begin"] + turn.after_s - time.monotonic()))
            seen["begin"] = time.monotonic()
            self._call(self._urgent, turn.priority).wait()
            seen["end"] = time.monotonic()
        for work in works:
            work.wait()
        seen["bulk_end"] = time.monotonic()
        for number, tensor in enumerate(self._bulk):
            self._check(number, tensor)
        if turn.urgent_bytes:
            self._check(turn.num_bulk, self._urgent)
        return seen


def main() -> None:
    folder = json.loads(sys.argv[1])["folder"]
    turns = from_json(Path(folder, PLAN_FILE).read_text())
    torch.set_num_threads(1)
    within = timedelta(seconds=WITHIN_S)
    dist.init_process_group("gloo", timeout=within)
    groups = {
        (backend, algorithm): dist.new_group(
            backend=backend,
            timeout=within,
            pg_options=Options(collectives_algorithm=algorithm) if algorithm else None,
        )
        for backend, algorithm in sorted({(t.backend, t.algorithm) for t in turns})
    }
    rank = dist.get_rank()
    meeting = Meeting(folder, rank, within_s=WITHIN_S)
    for number, turn in enumerate(turns):
        taker = Taker(groups[turn.backend, turn.algorithm], turn)
        taker.prepare()
        meeting.meet("settle", number)
        time.sleep(turn.settle_s)
        meeting.meet("turn", number)
        seen = taker.take()
        meeting.meet("end", number)
        emit(rank=rank, turn=number, **seen)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
