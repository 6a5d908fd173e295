# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank of the benchmark of collectives; started by collectives.py.

allreduce_ranks.py describes the timing of an operation. A case is a function that
prepares an operation on one backend and returns it. Results of the backends are
compared.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[1]))

import aikido_torch  # noqa: F401  (registers the backend)
from benchmarks.allreduce_ranks import WARM_UP, Meeting
from benchmarks.launch import emit, leave
from benchmarks.least_exchange import Least, least_over, round_trips

ROUND_TRIPS = 200
# Factor of turns for short operations, which vary most.
MORE_TURNS = {"ping-pong": 4}
IDLE_S = 3.0
RESET_PEAK = "5"  # written to /proc/self/clear_refs, it resets VmHWM
LAYERS, WIDTH = 12, 64
Case = tuple[Callable[[], object], torch.Tensor]  # the operation, and its result


def numbers(count: int, seed: int) -> torch.Tensor:
    """Random integers as floats, whose sums are exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, (count,), generator=generator).float()


def collective(name: str, num_bytes: int, group: dist.ProcessGroup) -> Case:
    """Case of a collective.

    `num_bytes` is the size that each rank has before or after it, whichever is larger.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = numbers(num_bytes // 4, rank)
    part = numbers(num_bytes // 4 // size, rank)
    if name == "allreduce":
        # In place, and with the same result for any number of calls.
        return lambda: dist.all_reduce(whole, dist.ReduceOp.MAX, group=group), whole
    if name == "broadcast":
        return lambda: dist.broadcast(whole, 0, group=group), whole
    if name == "allgather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group), whole
    if name == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group), part
    if name == "alltoall":
        result = torch.zeros_like(whole)
        return lambda: dist.all_to_all_single(result, whole, group=group), result
    raise ValueError(f"no collective is called {name!r}")


def ping_pong(num_bytes: int, group: dist.ProcessGroup) -> Case:
    """Ping-pong of ranks 0 and 1; the other ranks do nothing."""
    tensor = numbers(num_bytes // 4, 1)
    return lambda: round_trips(tensor, ROUND_TRIPS, group), tensor


def send(num_bytes: int, group: dist.ProcessGroup) -> Case:
    """Message from rank 0 to rank 1; the other ranks do nothing."""
    rank = dist.get_rank()
    tensor = numbers(num_bytes // 4, 0 if rank == 0 else 1)

    def operation() -> None:
        if rank == 0:
            dist.send(tensor, 1, group=group)
        elif rank == 1:
            dist.recv(tensor, 0, group=group)

    return operation, tensor


def training_step(group: dist.ProcessGroup) -> Case:
    """A step of a small model in which each layer is a bucket."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*layers),
        process_group=group,
        bucket_cap_mb=WIDTH * WIDTH * 4 / 2**20,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(8, WIDTH)

    def operation() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return operation, torch.zeros(1)


def make(case: dict, group: dist.ProcessGroup) -> Case:
    match case["name"]:
        case "ping-pong":
            return ping_pong(case["num_bytes"], group)
        case "send":
            return send(case["num_bytes"], group)
        case "training step":
            return training_step(group)
    return collective(case["name"], case["num_bytes"], group)


def measure(
    case: dict,
    groups: dict[str, dist.ProcessGroup],
    least: Least | None,
    meeting: Meeting,
    *,
    iterations: int,
    alternations: int,
) -> tuple[dict[str, list[float]], int]:
    """Like measure_size() of allreduce_ranks.py, with the least exchange as a third
    method.
    """
    made = {name: make(case, group) for name, group in groups.items()}
    operations = {name: operation for name, (operation, _) in made.items()}
    if least is not None and case["name"] in least.cases:
        operations["least"] = least.operation(
            case["name"], case["num_bytes"], ROUND_TRIPS
        )
    times = ROUND_TRIPS * 2 if case["name"] == "ping-pong" else 1
    seconds: dict[str, list[float]] = {name: [] for name in operations}
    num_late = 0
    for alternation in range(alternations * MORE_TURNS.get(case["name"], 1)):
        order = list(operations)[:: 1 if alternation % 2 == 0 else -1]
        for name in order:
            warm_up = WARM_UP if alternation == 0 else 1
            for i in range(warm_up + iterations):
                taken, is_in_time = meeting.time(lambda: None, operations[name])
                if i >= warm_up:
                    seconds[name].append(taken / times)
                    num_late += not is_in_time
    (_, ours), (_, reference) = made.values()
    if not torch.equal(ours, reference):
        raise SystemExit(
            f"Rank {dist.get_rank()}: {case['name']} gives other results on "
            f"{' than on '.join(groups)}."
        )
    return seconds, num_late


def idle_share() -> float:
    """Share of a core that aikido's threads of this process use while idle."""

    def used_ns() -> int:
        tasks = Path("/proc/self/task").iterdir()
        ours = [t for t in tasks if (t / "comm").read_text().startswith("aikido")]
        return sum(int((t / "schedstat").read_text().split()[0]) for t in ours)

    before = used_ns()
    time.sleep(IDLE_S)
    return (used_ns() - before) / 1e9 / IDLE_S


def memory_of(names: list[str], num_bytes: int, group: dist.ProcessGroup) -> dict:
    """Largest memory in bytes of each collective beside the user's tensors.

    Memory that an earlier collective has left in this process counts for later ones,
    too.
    """

    def status(field: str) -> int:
        (line,) = (
            line
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith(f"{field}:")
        )
        return int(line.split()[1]) * 1024

    before = status("VmRSS")
    peaks = {}
    for name in names:
        rss = status("VmRSS")
        operation, _ = collective(name, num_bytes, group)
        tensors = status("VmRSS") - rss
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
        operation()
        peak = torch.tensor([float(status("VmHWM") - before - tensors)])
        del operation, _
        dist.all_reduce(peak, dist.ReduceOp.MAX)
        peaks[name] = [peak.item()]
    return peaks


def main() -> None:
    plan = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    meeting = Meeting(dist.group.WORLD)
    groups = {name: dist.new_group(backend=name) for name in ("aikido", "gloo")}
    for group in groups.values():  # makes the connections
        dist.all_reduce(torch.ones(1), group=group)
    bare = plan["bare"] and Path(plan["bare"])
    least = least_over(plan["least_over"], bare)
    for number, case in enumerate(plan["cases"]):
        if case["name"] == "idle":
            share = torch.tensor([idle_share()])
            dist.all_reduce(share, dist.ReduceOp.MAX)
            seconds, num_late = {"share": [share.item()]}, 0
        elif case["name"] == "memory":
            group = groups["aikido"]
            seconds = memory_of(case["collectives"], case["num_bytes"], group)
            num_late = 0
        else:
            seconds, num_late = measure(
                case,
                groups,
                least,
                meeting,
                iterations=plan["iterations"],
                alternations=plan["alternations"],
            )
        if dist.get_rank() == 0:
            emit(number=number, seconds=seconds, num_late=num_late)
    if least is not None:
        least.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
