# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cost of `register(check="warn")` in a healthy training, beside check="off".

Both train the same model in turns of 100 steps, which have one digest each. Prints the
medians of the turns and their ratio, in wall time and in processor time of the rank.
"""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.testing import run_ranks

STEPS = 100  # of a turn
BAR = 0.005  # share of a step that the checks may take


class Training:
    """A multi-layer perceptron under one kind of check."""

    def __init__(self, width: int, layers: int, check: str) -> None:
        torch.manual_seed(0)
        blocks = [
            m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())
        ]
        net = nn.Sequential(*blocks)
        self.model = DistributedDataParallel(net, process_group=dist.new_group())
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        self.handle = ddp.register(self.model, optimizer=self.optimizer, check=check)
        self.batch = torch.randn(64, width)

    def turn(self) -> tuple[float, float]:
        """Wall and processor seconds of one step, on average."""
        dist.barrier()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for _ in range(STEPS):
            self.handle.catch_up()
            self.optimizer.zero_grad()
            self.model(self.batch).square().mean().backward()
            self.optimizer.step()
        wall, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
        return wall / STEPS, cpu / STEPS


def train(rank: int, size: int, width: int, layers: int, turns: int) -> list[float]:
    """Medians: wall without and with checks, processor time without and with."""
    trainings = [Training(width, layers, check) for check in ("off", "warn")]
    for training in trainings:
        training.turn()
    times: list[list[tuple[float, float]]] = [[], []]
    for turn in range(turns):
        # Each goes first in every other turn.
        for i in (0, 1) if turn % 2 else (1, 0):
            times[i].append(trainings[i].turn())
    return [statistics.median(t[k] for t in times[i]) for k in (0, 1) for i in (0, 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    sizes = (options.width, options.layers, options.turns)
    off, on, cpu_off, cpu_on = run_ranks(options.ranks, train, *sizes, deadline=600)[0]
    rows = [
        {"name": "wall", "off_ms": 1e3 * off, "on_ms": 1e3 * on, "ratio": on / off},
        {
            "name": "processor",
            "off_ms": 1e3 * cpu_off,
            "on_ms": 1e3 * cpu_on,
            "ratio": cpu_on / cpu_off,
        },
    ]
    for row in rows:
        print(
            f"{row['name']}: {row['off_ms']:.3f} ms without checks, "
            f"{row['on_ms']:.3f} ms with them, ratio {row['ratio']:.4f} (bar {1 + BAR})"
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file)
    return int(any(row["ratio"] > 1 + BAR for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
