# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Schedules that torch has too: the ranks compute in the same order as torch's.

The classes of torch build their orders from stage objects, so this file has mock
stages.
"""

import pytest
from torch.distributed import pipelining
from torch.distributed.pipelining import stage as torch_stage

from aikido_torch import pipeline

KINDS = {
    "forward": "F",
    "backward": "B",
    "input_gradient": "I",
    "weight_gradient": "W",
}


class MockStage(torch_stage._PipelineStageBase):
    """A stage without a module or a group."""

    def __init__(self, index, ranks, stages):
        self.stage_index = index
        self.num_stages = stages
        self.group_size = ranks
        self.group_rank = 0
        self.group = self.submod = None
        self.has_backward = True
        self.stage_index_to_group_rank = {s: s % ranks for s in range(stages)}

    def _create_grad_recv_info(self, *arguments, **options):
        return None

    def _prepare_forward_infra(self, *arguments, **options):
        return None

    def _prepare_backward_infra(self, *arguments, **options):
        return None


def torch_order(schedule_class, *, ranks, micro_batches, each=1):
    """Order of each rank as "0F1 0B1 ...": stage, kind, micro-batch; no idle time."""
    stages = [MockStage(i * ranks, ranks, ranks * each) for i in range(each)]
    is_single = issubclass(
        schedule_class, (pipelining.ScheduleGPipe, pipelining.Schedule1F1B)
    )
    schedule = schedule_class(
        stages[0] if is_single else stages,
        micro_batches,
        loss_fn=lambda output, target: output,
    )
    order = schedule._get_pipeline_order() if is_single else schedule.pipeline_order
    assert sorted(order) == list(range(ranks))
    texts = [[str(action) for action in order[rank] if action] for rank in range(ranks)]
    rows = [[text for text in row if text[-1].isdigit()] for row in texts]
    return [*rows[:-1], counted_from_0(rows[-1])]


def counted_from_0(row):
    """Renumbers torch's order of 1F1B on the last rank from F1..Fm to F0..F(m-1).

    Torch reports F1 to Fm for that rank but executes F0 to F(m-1).
    """
    first = int(row[0].rpartition("F")[2])
    return [
        f"{text.partition('F')[0]}F{int(text.partition('F')[2]) - first}"
        if "F" in text
        else text
        for text in row
    ]


def our_order(name, **options):
    made = pipeline.schedule(name, **options)
    made.validate()
    return [
        [
            f"{it.stage}{KINDS[it.kind]}{it.micro_batch}"
            for it in rank
            if it.kind in KINDS
        ]
        for rank in made.ranks
    ]


@pytest.mark.parametrize(
    ("name", "schedule_class"),
    [("gpipe", pipelining.ScheduleGPipe), ("1f1b", pipelining.Schedule1F1B)],
)
def test_one_stage_on_each_rank(name, schedule_class):
    compared = 0
    for stages in range(1, 9):
        # Torch's 1F1B does not run with fewer micro-batches than stages.
        for micro_batches in range(stages if name == "1f1b" else 1, 17):
            ours = our_order(name, stages=stages, micro_batches=micro_batches)
            theirs = torch_order(
                schedule_class, ranks=stages, micro_batches=micro_batches
            )
            assert ours == theirs, (stages, micro_batches)
            compared += len(ours[0])
    assert compared > 1000


@pytest.mark.parametrize(
    ("name", "schedule_class"),
    [
        ("interleaved_1f1b", pipelining.ScheduleInterleaved1F1B),
        ("zero_bubble", pipelining.ScheduleInterleavedZeroBubble),
    ],
)
@pytest.mark.parametrize("each", [1, 2, 3])
def test_several_stages_on_each_rank(name, schedule_class, each):
    compared = 0
    for ranks in range(1, 9):
        for micro_batches in range(1, 17):
            try:
                theirs = torch_order(
                    schedule_class, ranks=ranks, micro_batches=micro_batches, each=each
                )
            except ValueError:  # torch cannot split this number of micro-batches
                continue
            ours = our_order(
                name,
                stages=ranks * each,
                micro_batches=micro_batches,
                stages_per_rank=each,
            )
            assert ours == theirs, (ranks, micro_batches)
            compared += len(ours[0])
    assert compared > 1000
