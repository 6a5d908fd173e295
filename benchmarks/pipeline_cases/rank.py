# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A rank of a case of pipelines: `rank.py {"folder": ...}` with plan.json in the
folder.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2]))

from aikido_torch import pipeline
from benchmarks.lab import rank as lab_rank
from benchmarks.launch import emit, leave
from benchmarks.pipeline_cases import layers
from benchmarks.pipeline_cases.plan import PLAN_FILE, Run, from_json

WITHIN_S = 120.0  # Time-out of a group's calls
LINKS_S = 0.3  # time in which the starting process changes links


def squares(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).mean()


def make_pipe(run: Run, specs: list[layers.Spec]) -> pipeline.Pipeline:
    def stage(numbers: list[int]) -> nn.Module:
        model = layers.model_of(specs)
        return nn.Sequential(*(model[number] for number in numbers))

    return pipeline.Pipeline(
        [lambda numbers=numbers: stage(numbers) for numbers in run.stages],
        schedule=pipeline.schedule(stages=len(run.stages), **run.schedule),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        loss_fn=squares,
        adapt=pipeline.Adapt(**run.adapt) if run.adapt else None,
    )


def do(index: int, run: Run, specs: list[layers.Spec]) -> dict[str, Any]:
    count = run.schedule["micro_batches"]
    batch = layers.sample(), torch.ones(layers.ROWS, specs[-1].width)
    whole = tuple(tensor.repeat(count, 1) for tensor in batch)
    layers.spans.clear()
    layers.completions.clear()
    ends: list[float] = []
    with make_pipe(run, specs) as pipe:
        dist.barrier()
        begin = time.monotonic()
        for number in range(run.times):
            if run.links and number == run.slow_from:
                dist.barrier()
                if dist.get_rank() == 0:
                    emit(links=index)
                time.sleep(LINKS_S)
                dist.barrier()
                begin = time.monotonic()
                ends.clear()
            if pipe.schedule.weights == "flush":
                pipe.train_step(*whole)
            else:
                pipe.train([batch], steps=count)
            ends.append(time.monotonic())
        adapted = [change.reason for change in pipe.adaptations]
    dist.barrier()
    return {
        "run": index,
        "begin": begin,
        "ends": ends,
        "spans": list(layers.spans),
        "completions": list(layers.completions),
        "adapted": adapted,
    }


def main() -> None:
    folder = Path(json.loads(sys.argv[1])["folder"])
    torch.set_num_threads(1)
    dist.init_process_group("aikido", timeout=timedelta(seconds=WITHIN_S))
    lab_rank.ready()
    rank = dist.get_rank()
    try:
        plan = from_json((folder / PLAN_FILE).read_text())
        for index, (model, run) in enumerate(plan.runs):
            specs = [layers.Spec(**row) for row in plan.layers[model]]
            found = do(index, run, specs)
            with (folder / f"{rank}.jsonl").open("a") as file:
                file.write(json.dumps(found) + "\n")
            dist.barrier()
            if rank == 0:
                emit(ended=index)
        dist.destroy_process_group()
    except Exception as error:
        text = " ".join(str(error).split())
        emit(rank=rank, failed=f"{type(error).__name__}: {text}")
        os._exit(1)


if __name__ == "__main__":
    main()
    leave()
