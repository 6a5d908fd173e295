# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank that trains in traced steps, and is late as its plan says."""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).resolve().parents[2]))

from aikido_torch import trace
from aikido_torch.trace.record import _record
from benchmarks.lab import rank as lab_rank
from benchmarks.launch import emit
from benchmarks.tracing_cases.plan import Phase, late_s

# Number of steps after which the trace is taken, so that nothing is dropped.
TAKE_EVERY = 100
WORK_S, DATA_S = 0.03, 0.002
WIDTH = 384  # width of layers: 1.2 MB of gradients


class Late(torch.autograd.Function):
    """Function that sleeps in the backward."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


class Batches:
    """Endless batches, each after a wait."""

    def __init__(self, wait):
        self.wait = wait

    def __iter__(self):
        while True:
            time.sleep(self.wait())
            yield torch.randn(4, WIDTH)


def main(folder: str, plan: str, for_s: float) -> None:
    """Trains for `for_s` seconds, then writes its dump into the folder."""
    planned = [Phase(**phase) for phase in json.loads(plan)]
    dist.init_process_group("aikido")
    rank = dist.get_rank()
    net = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.monotonic()

    def late(cause):
        return late_s(planned, cause, rank, time.monotonic() - begin)

    batches = Batches(lambda: DATA_S + late("input"))
    watch = trace.watch(model, optimizer, batches, control=False)
    dist.barrier()
    lab_rank.ready()
    begin = time.monotonic()
    trace.start()
    began, dumps, ends = {}, [], torch.zeros(1)
    for batch in batches:
        began[watch.step] = time.monotonic() - begin
        optimizer.zero_grad()
        out = model(Late.apply(batch.requires_grad_(), 0.0))
        out = Late.apply(out, WORK_S + late("compute"))
        out.square().mean().backward()
        optimizer.step()
        if watch.step % TAKE_EVERY == 0:
            dumps.append(_record.take())
            ends.fill_(float(time.monotonic() - begin > for_s))
            dist.all_reduce(ends)
            if ends.item() > 0:
                break
    trace.stop()
    whole = dumps[-1]
    whole.spans = [span for dump in dumps for span in dump.spans]
    whole.dropped = sum(dump.dropped for dump in dumps)
    whole.write(Path(folder, f"rank{rank}.trace"))
    emit(began=began)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
