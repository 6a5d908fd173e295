# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Every pipeline schedule of torch ends with the gradients of one process.

V-shaped schedules put the first and the last stage on one rank, and two neighbouring
stages on another, so that consecutive stages are on one rank.
"""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import config as distributed_config
from torch.distributed import pipelining

from aikido_torch.testing import run_ranks

WIDTH, ROWS, MICROBATCHES = 6, 2, 8

SINGLE = (pipelining.ScheduleGPipe, pipelining.Schedule1F1B)
LOOPED = (
    pipelining.ScheduleLoopedBFS,
    pipelining.ScheduleInterleaved1F1B,
    pipelining.ScheduleInterleavedZeroBubble,
)
V_SHAPED = (pipelining.ScheduleZBVZeroBubble, pipelining.ScheduleDualPipeV)


class Stage(nn.Module):
    def __init__(self, index):
        super().__init__()
        torch.manual_seed(index)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.layer(x)) + x


def data():
    generator = torch.Generator().manual_seed(1)
    shape = (ROWS * MICROBATCHES, WIDTH)
    return [torch.randn(shape, generator=generator) for _ in range(2)]


def loss_of(output, target):
    return ((output - target) ** 2).mean()


def stages_of(rank, size, schedule):
    if schedule in SINGLE:
        return [rank]
    if schedule in V_SHAPED:
        return [rank, 2 * size - 1 - rank]
    return [rank, rank + size]


def run_schedule(rank, size, schedule, is_per_edge=False):
    if is_per_edge:
        distributed_config.pipeline_per_edge_p2p = True
    indices = stages_of(rank, size, schedule)
    total = size * len(indices)
    modules = [Stage(index) for index in indices]
    stages = [
        pipelining.PipelineStage(module, index, total, torch.device("cpu"))
        for module, index in zip(modules, indices, strict=True)
    ]
    parts = stages[0] if schedule in SINGLE else stages
    plan = schedule(parts, MICROBATCHES, loss_fn=loss_of)
    x, target = data()
    wrong = []
    for step in range(2):
        losses = []
        for module in modules:
            module.zero_grad()
        inputs = (x,) if 0 in indices else ()
        if total - 1 in indices:
            output = plan.step(*inputs, target=target, losses=losses)
        else:
            output = plan.step(*inputs)
        wrong += compare(step, indices, modules, total, output, losses)
    return wrong


def compare(step, indices, modules, total, output, losses):
    x, target = data()
    alone = nn.Sequential(*[Stage(index) for index in range(total)])
    whole = alone(x)
    loss_of(whole, target).backward()
    wrong = []
    for index, module in zip(indices, modules, strict=True):
        for name, parameter in module.named_parameters():
            wanted = alone[index].get_parameter(name).grad
            if not torch.allclose(parameter.grad, wanted, atol=1e-5):
                wrong.append(f"step {step}: gradient of {name} of stage {index}")
    if total - 1 in indices:
        if not torch.allclose(output, whole, atol=1e-5):
            wrong.append(f"step {step}: output")
        mean = torch.stack(losses).mean()
        if not torch.allclose(mean, loss_of(whole, target), atol=1e-5):
            wrong.append(f"step {step}: losses")
    return wrong


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("schedule", [*SINGLE, *LOOPED, *V_SHAPED])
def test_schedule_gives_the_gradients_of_one_process(schedule, size):
    assert run_ranks(size, run_schedule, schedule, group_timeout=15) == [[]] * size


@pytest.mark.skipif(
    not hasattr(distributed_config, "pipeline_per_edge_p2p"),
    reason="this torch has no groups for edges",
)
@pytest.mark.parametrize("schedule", [*LOOPED, *V_SHAPED])
def test_schedule_with_a_group_for_each_pair_of_stages(schedule):
    done = run_ranks(2, run_schedule, schedule, True, group_timeout=15)
    assert done == [[]] * 2


def send_to_oneself(rank, size):
    """Sends as two stages on one rank do, if the schedule does not know that."""
    received = torch.empty(3, 70_000)
    sent = [torch.full((70_000,), 10.0 * rank + i) for i in range(3)]
    batch = []
    for i in range(3):
        batch.append(dist.P2POp(dist.irecv, received[i], rank, tag=i))
        batch.append(dist.P2POp(dist.isend, sent[i], rank, tag=i))
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return received[:, -1].tolist()


def test_a_rank_may_send_to_itself():
    wanted = [[10.0 * rank + i for i in range(3)] for rank in range(2)]
    assert run_ranks(2, send_to_oneself, group_timeout=5) == wanted
