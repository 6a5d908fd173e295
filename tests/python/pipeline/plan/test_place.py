# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from aikido_torch import pipeline
from aikido_torch.pipeline.plan import _profile
from aikido_torch.pipeline.plan._place import placed, ranks_of
from harness.pipelines import (
    BatchFeed,
    LocalPipeline,
    Reference,
    adam,
    batches_of,
    layered,
    squared,
)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("3-1", [[0, 1, 2], [3]]),
        ("1(2-1)-1(3)", [[0, 1], [2], [3, 4, 5]]),
        ("2(3-1)", [[0, 4, 1, 5, 2, 6], [3, 7]]),
        ("2(2)-1(1-1)", [[0, 2, 1, 3], [4], [5]]),
        ("2(2(2)-1(1))", [[0, 5, 2, 7, 1, 6, 3, 8], [4, 9]]),
    ],
)
def test_ranks_are_numbered_group_by_group(text, ranks):
    assert ranks_of(text) == ranks


def plan_of_groups():
    """Two groups with a pipeline each: sums inside a group are slow."""
    profile = _profile.chain(
        forward_ms=[30, 30, 30, 30],
        backward_ms=[60, 60, 60, 60],
        activation_bytes=[1e6] * 4,
        parameter_bytes=[0, 0, 0, 30e6],
    )
    return pipeline.partition(profile, machines=[4, 2], bandwidth=[1e8, 1e9])


def test_micro_batches_stay_in_their_groups():
    plan = plan_of_groups()
    assert plan.text == "2(3-1)"
    for name in ("1f1b", "1f1b_async"):
        made = pipeline.schedule(name, stages=plan, micro_batches=24)
        assert made.stages == ranks_of(plan.text)
        made.validate()
        for rank, program in enumerate(made.ranks):
            peers = {it.peer for it in program if it.peer is not None}
            assert {peer // 4 for peer in peers} == {rank // 4}
        again = made.remade(micro_batches=48)
        assert (again.stages, again.micro_batches) == (made.stages, 48)


@pytest.mark.parametrize("weights", ["stash", "2bw"])
def test_a_placed_schedule_trains_like_the_reference(weights):
    made = pipeline.schedule(
        "1f1b_async",
        stages=plan_of_groups(),
        micro_batches=24,
        weights=weights,
    )
    parts = layered(2), made, adam, squared
    pipe, reference = LocalPipeline(*parts), Reference(*parts)
    batches = batches_of([4] * 24)
    pipe.run(BatchFeed(batches))
    reference.run(batches)
    for stage, module in enumerate(reference.modules):
        for replica in range(len(made.stages[stage])):
            own = pipe.module(stage, replica).parameters()
            for got, wanted in zip(own, module.parameters(), strict=True):
                torch.testing.assert_close(got, wanted)


def test_a_schedule_on_other_ranks_does_the_same_there():
    made = pipeline.schedule("1f1b", stages=2, replicas=[2, 1], micro_batches=40)
    turned = placed(made._native, [[2, 0], [1]])
    assert turned.stages == [[2, 0], [1]]
    new = {0: 2, 1: 0, 2: 1}
    for rank, program in enumerate(made.ranks):
        for one, other in zip(program, turned.ranks[new[rank]], strict=True):
            assert (one.kind, one.stage, one.micro_batch, one.version) == (
                other.kind, other.stage, other.micro_batch, other.version,
            )  # fmt: skip
            assert other.peer == (None if one.peer is None else new[one.peer])
