# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank that does the trainings of a plan, one after the other; see ddp_runs.py."""

import functools
import json
import math
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2]))

import aikido_torch
from benchmarks.launch import emit, leave
from benchmarks.models import fingerprint
from benchmarks.ordering_cases.ddp_plan import PLAN_FILE, Layer, Training, from_json
from benchmarks.pipeline_cases import layers
from benchmarks.straggler_cases.meeting import Meeting

WITHIN_S = 120.0  # Time-out of a call; after that something hangs
OUTPUT_BYTES = 64  # output of a layer, which is never sent


def model_of(rows: list[Layer]) -> nn.Module:
    return layers.model_of(
        [
            layers.Spec(
                forward_ms=forward,
                backward_ms=backward,
                output_bytes=OUTPUT_BYTES,
                weight_bytes=size,
            )
            for forward, backward, size in rows
        ]
    )


class Trainer:
    """One training."""

    def __init__(self, training: Training, net: nn.Module, group: dist.ProcessGroup):
        self._training, self._net = training, net
        self._optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        self.overlapped = None
        if training.arm == "overlapped":
            self.overlapped = aikido_torch.overlap.OverlappedDataParallel(
                net, self._optimizer, process_group=group
            )
        self._model = self.overlapped or nn.parallel.DistributedDataParallel(
            net, process_group=group, bucket_cap_mb=training.bucket_mb
        )

    def train(self, change_links: Callable[[], None]) -> dict[str, Any]:
        ends, plans = [], []
        x = layers.sample() * (1 + dist.get_rank())
        count = self._training.warm_up + self._training.steps
        for step in range(count):
            if self._training.later and step == count - self._training.later:
                change_links()
            if self.overlapped is not None and self.overlapped.layout not in plans:
                plans.append(self.overlapped.layout)
            self._optimizer.zero_grad()
            self._model(x).mean().backward()
            self._optimizer.step()
            ends.append(time.monotonic())
        seen: dict[str, Any] = {"ends": ends}
        if self.overlapped is not None:
            self.overlapped.synchronize()
            layout = self.overlapped.layout
            seen["predicted_ms"] = 1e3 * (layout.predicted_s or math.nan)
            seen["plan"] = layout.name
            seen["compute_ms"] = 1e3 * self.overlapped._retune.iteration.compute_s
            seen["verdict"] = self.overlapped._retune.trial.verdict
            seen["num_plans"] = sum(x.predicted_s is not None for x in plans)
        return seen | {"fingerprint": fingerprint(self._net)}


def main() -> None:
    folder = json.loads(sys.argv[1])["folder"]
    models, trainings = from_json(Path(folder, PLAN_FILE).read_text())
    torch.set_num_threads(1)
    within = timedelta(seconds=WITHIN_S)
    dist.init_process_group("gloo", timeout=within)
    groups = {
        name: dist.new_group(backend=name, timeout=within)
        for name in sorted({training.backend for training in trainings})
    }
    rank = dist.get_rank()
    meeting = Meeting(folder, rank, within_s=WITHIN_S)
    for number, training in enumerate(trainings):
        meeting.meet("links", number)
        net = model_of(models[training.model])
        trainer = Trainer(training, net, groups[training.backend])
        meeting.meet("training", number)
        seen = trainer.train(functools.partial(meeting.meet, "later links", number))
        layers.spans.clear()
        layers.completions.clear()
        meeting.meet("end", number)
        emit(rank=rank, training=number, **seen)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
