# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank of the allreduce benchmark; started by allreduce.py.

Timing of an operation: the ranks agree on a moment shortly ahead and sleep until then,
so both backends start from rest and on idle cores. The time runs from the start of the
last rank to the end of the last rank. All ranks use the machine's clock. A rank that
has finished rests until the others should have finished, too. Otherwise its work for
the next meeting would take cores from the others, and count in their times. If a rank
wakes up late, the operation is repeated, up to MOST_ATTEMPTS times. A remaining late
start is counted, because such a time measures the machine rather than the backend.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[1]))

from aikido_torch import Options
from benchmarks.launch import emit, leave
from benchmarks.least_exchange import Least, least_over

TOLERATED_S = 0.001  # from the agreed start to the start of the last rank
# After an operation. An operation that takes longer is hardly affected by a meeting.
REST_S = 0.02
MOST_ATTEMPTS = 3  # per measurement
WARM_UP = 3


class Meeting:
    """Synchronizer that starts all ranks at one moment and learns when the last one
    ended.
    """

    def __init__(self, group: dist.ProcessGroup):
        self._group = group
        self._margin_s = 0.015  # time from the agreement on a start to the start

    def time(
        self, prepare: Callable[[], object], operation: Callable[[], object]
    ) -> tuple[float, bool]:
        """Seconds from the last start to the last end, and True if that start was on
        time.

        All ranks must call it.
        """
        for _ in range(MOST_ATTEMPTS):
            prepare()
            self._latest(0.0)  # so that all ranks reach the next line within a few ms
            (agreed,) = self._latest(time.monotonic() + self._margin_s)
            time.sleep(max(0.0, agreed - time.monotonic()))
            start = time.monotonic()
            operation()
            end = time.monotonic()
            time.sleep(REST_S)
            start, end = self._latest(start, end)
            if start - agreed <= TOLERATED_S:
                return end - start, True
            self._margin_s = min(2 * self._margin_s, 0.03)
        return end - start, False

    def _latest(self, *values: float) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._group)
        return tensor.tolist()


def finished(device: torch.device, call: Callable[..., object], *args, **kwargs):
    """Calls a function and waits until the device has done the queued work."""
    call(*args, **kwargs)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_of(name: str, rank: int) -> torch.device:
    """Device of this rank; ranks share devices if there are fewer than ranks."""
    if name == "cpu":
        return torch.device(name)
    if not torch.cuda.is_available():
        raise SystemExit("No CUDA device here; measure with --device cpu.")
    torch.cuda.set_device(rank % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def measure_size(
    num_bytes: int,
    groups: dict[str, dist.ProcessGroup],
    least: Least | None,
    meeting: Meeting,
    *,
    iterations: int,
    alternations: int,
    device: torch.device,
) -> tuple[dict[str, list[float]], int]:
    """Seconds per operation and group, and the number of late starts.

    `least` is measured like a group if it is given. Ends the program with a sentence if
    results differ.
    """
    generator = torch.Generator().manual_seed(dist.get_rank())
    # Integers, whose sums are exact: results are bitwise equal in any order of
    # addition.
    source = torch.randint(-8, 9, (num_bytes // 4,), generator=generator).float()
    source = source.to(device)
    buffers = {name: torch.empty_like(source) for name in groups}
    operations = {
        name: (
            partial(finished, device, buffers[name].copy_, source),
            partial(finished, device, dist.all_reduce, buffers[name], group=group),
        )
        for name, group in groups.items()
    }
    if least is not None:
        operations["least"] = (lambda: None, least.operation("allreduce", num_bytes, 1))
    seconds: dict[str, list[float]] = {name: [] for name in operations}
    num_late = 0
    for alternation in range(alternations):
        # A B, B A, A B: no backend always follows the same one.
        for name in list(operations)[:: 1 if alternation % 2 == 0 else -1]:
            warm_up = WARM_UP if alternation == 0 else 1
            for i in range(warm_up + iterations):
                taken, is_in_time = meeting.time(*operations[name])
                if i >= warm_up:
                    seconds[name].append(taken)
                    num_late += not is_in_time
        reference = buffers["gloo"]
        for name, ours in buffers.items():
            if not torch.equal(ours, reference):
                raise SystemExit(
                    f"Rank {dist.get_rank()}: the results of {name} and gloo differ "
                    f"in {(ours != reference).sum()} of {ours.numel()} elements."
                )
        if dist.get_rank() == 0:
            emit(done=1)
    return seconds, num_late


def group_of(name: str, device: torch.device) -> dist.ProcessGroup:
    """The process group for a name of a measured method."""
    if name == "nccl":
        return dist.new_group(backend="nccl")
    if device.type == "cpu":
        options = Options(collectives_algorithm=name)
    elif name == "ipc":
        options = Options(devices_nccl="off", devices_ipc="on")
    else:
        options = Options(
            collectives_algorithm=name, devices_nccl="off", devices_ipc="off"
        )
    return dist.new_group(backend="aikido", pg_options=options)


def main() -> None:
    plan = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    meeting = Meeting(dist.group.WORLD)
    device = device_of(plan["device"], dist.get_rank())
    groups = {name: group_of(name, device) for name in plan["algorithms"]}
    groups["gloo"] = dist.new_group(backend="gloo")
    least = least_over(plan["least_over"])
    for num_bytes in plan["sizes"]:
        seconds, num_late = measure_size(
            num_bytes,
            groups,
            least,
            meeting,
            iterations=plan["iterations"],
            alternations=plan["alternations"],
            device=device,
        )
        if dist.get_rank() == 0:
            emit(num_bytes=num_bytes, seconds=seconds, num_late=num_late)
    if least is not None:
        least.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
