# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cost of `register(check="warn")` in a healthy training, beside check="off".

Turns of 100 steps, which have one digest each, alternate between the two. Each turn
registers a new model, because steps beside a second registered model use another code
path. Prints the medians of the turns and the median of the ratios of neighbouring
turns, in wall time and in processor time of the rank, and the cost of one digest.
"""

import argparse
import gc
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.recovery._digest import Digesting
from aikido_torch.testing import run_ranks

STEPS = 100  # steps of a turn
WARM_UP = 20
BAR = 0.005  # largest share of a step for the checks
DIGEST_BAR = 0.001


class Training:
    """A multi-layer perceptron that trains with one value of `check`."""

    def __init__(self, width: int, layers: int, check: str) -> None:
        torch.manual_seed(0)
        blocks = [
            m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())
        ]
        self.net = nn.Sequential(*blocks)
        self.model = DistributedDataParallel(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4)
        self.handle = ddp.register(self.model, optimizer=self.optimizer, check=check)
        self.batch = torch.randn(64, width)

    def run(self, steps: int) -> None:
        end = self.handle.steps + steps
        while True:
            self.handle.catch_up()  # a rank that was late applies missed steps here
            if self.handle.steps >= end:
                return
            self.optimizer.zero_grad()
            self.model(self.batch).square().mean().backward()
            self.optimizer.step()


def turn(width: int, layers: int, check: str) -> tuple[float, float]:
    """Mean wall and processor seconds of one step."""
    training = Training(width, layers, check)
    training.run(WARM_UP)
    dist.barrier()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    training.run(STEPS)
    wall, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    training.handle.close()
    del training
    gc.collect()  # the next model must be the only registered one
    return wall / STEPS, cpu / STEPS


def digest_seconds(width: int, layers: int) -> float:
    """Processor seconds of one digest, with the state of AdamW."""
    training = Training(width, layers, "off")
    training.run(2)
    names = {id(p): name for name, p in training.net.named_parameters()}
    begin = time.process_time()
    for step in range(10):
        Digesting(step, names, training.optimizer).result()
    return (time.process_time() - begin) / 10


def train(
    rank: int, size: int, width: int, layers: int, turns: int
) -> tuple[list[list[tuple[float, float]]], float]:
    """Seconds by turn, without and with checks; and seconds of a digest."""
    times: list[list[tuple[float, float]]] = [[], []]
    for number in range(turns):
        # Each one goes first in every other turn.
        for i in (0, 1) if number % 2 else (1, 0):
            times[i].append(turn(width, layers, ("off", "warn")[i]))
    return times, digest_seconds(width, layers)


def row(name: str, off: list[float], on: list[float]) -> dict[str, float | str]:
    ratios = sorted(b / a for a, b in zip(off, on, strict=True))
    quarter = len(ratios) // 4
    return {
        "name": name,
        "off_ms": 1e3 * statistics.median(off),
        "on_ms": 1e3 * statistics.median(on),
        "ratio": statistics.median(ratios),
        "low": ratios[quarter],
        "high": ratios[-1 - quarter],
        "bar": 1 + BAR,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    sizes = (options.width, options.layers, options.turns)
    times, digest = run_ranks(options.ranks, train, *sizes, deadline=600)[0]
    rows = [
        row(name, *([t[k] for t in turns] for turns in times))
        for k, name in enumerate(("wall", "processor"))
    ]
    for each in rows:
        print(
            f"{each['name']}: {each['off_ms']:.3f} ms without checks, "
            f"{each['on_ms']:.3f} ms with them, ratio {each['ratio']:.4f} "
            f"({each['low']:.4f} to {each['high']:.4f} in half of the turns; bar "
            f"{each['bar']})"
        )
    share = digest / STEPS / (float(rows[1]["off_ms"]) / 1e3)
    print(
        f"digest: {1e3 * digest:.2f} ms every {STEPS} steps, {share:.5f} of the "
        f"processor time of a step (bar {DIGEST_BAR})"
    )
    rows.append({"name": "digest", "share": share, "bar": DIGEST_BAR})
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file)
    has_passed = all(float(each["ratio"]) <= 1 + BAR for each in rows[:2])
    return int(not has_passed or share > DIGEST_BAR)


if __name__ == "__main__":
    raise SystemExit(main())
