# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pipelines of real ranks, bit for bit equal to a reference in one process."""

import pytest
import torch
import torch.distributed as dist

from aikido_torch import pipeline
from aikido_torch.pipeline.plan import _profile, _schedule
from aikido_torch.pipeline.plan._place import placed, ranks_of
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks
from harness.pipelines import Reference, adam, batches_of, layered, sgd, squared

pytestmark = pytest.mark.beside


def make(text, make_optimizer=sgd, **options):
    schedule = _schedule.Schedule.parse(text)
    return pipeline.Pipeline(
        layered(len(schedule.stages)),
        schedule=schedule,
        optimizer=make_optimizer,
        loss_fn=squared,
        **options,
    )


def weights_of(pipe):
    return {
        stage: [parameter.detach() for parameter in module.parameters()]
        for stage, module in pipe.modules.items()
    }


def train_batches(rank, size, text, rows, steps):
    with make(text, adam) as pipe:
        losses = []
        for step in range(steps):
            batches = batches_of(rows, seed=step)
            x, y = (torch.cat([batch[i] for batch in batches]) for i in range(2))
            loss = pipe.train_step(x, y)
            losses.append((loss, pipe.losses))
        return losses, weights_of(pipe)


def reference_of(text, runs, make_optimizer=adam):
    schedule = _schedule.Schedule.parse(text)
    parts = layered(len(schedule.stages)), schedule, make_optimizer, squared
    reference = Reference(*parts)
    return reference, [reference.run(batches) for batches in runs]


def compare(results, reference):
    for _, weights in results:
        for stage, own in weights.items():
            wanted = list(reference.modules[stage].parameters())
            for a, b in zip(own, wanted, strict=True):
                assert torch.equal(a, b), stage


@pytest.mark.parametrize(
    ("name", "steps", "options"),
    [
        ("1f1b", 50, {"stages": 4}),
        ("gpipe", 6, {"stages": 3}),
        ("1f1b", 50, {"stages": 2, "replicas": [2, 1]}),
        ("1f1b", 6, {"stages": 2, "replicas": [3, 1], "turns": [[0, 1, 0, 2], [0]]}),
        ("zero_bubble", 6, {"stages": 4, "stages_per_rank": 2}),
    ],
)
def test_flushing_steps_equal_those_of_one_process(name, steps, options):
    made = pipeline.schedule(name, micro_batches=8, **options)
    text, rows = made.text(), [4] * 8
    results = run_ranks(len(made.ranks), train_batches, text, rows, steps)
    runs = [batches_of(rows, seed=step) for step in range(steps)]
    reference, losses = reference_of(text, runs)
    compare(results, reference)
    for rank, (told, _) in enumerate(results):
        is_last = rank in made.stages[-1]
        for (loss, parts), wanted in zip(told, losses, strict=True):
            assert (loss is not None) == is_last
            for b, part in parts.items():
                assert torch.equal(part, wanted[b])
            if is_last:
                assert loss == pytest.approx(
                    float(sum(wanted) / len(wanted)), rel=1e-12
                )


def train_loader(rank, size, text, rows, runs, steps):
    """Each run of the schedule has new batches."""
    with make(text, adam) as pipe:
        batches = [
            (x, y) for run in range(runs) for x, y, _ in batches_of(rows, seed=run)
        ]
        ends = pipe.rank in (*pipe.schedule.stages[0], *pipe.schedule.stages[-1])
        losses = pipe.train(batches if ends else None, steps=steps)
        return losses, weights_of(pipe)


@pytest.mark.parametrize("weights", ["stash", "vertical_sync", "2bw"])
@pytest.mark.parametrize("replicas", [[1, 1], [1, 1, 1, 1], [2, 1], [1, 2, 1], [2, 3]])
def test_asynchronous_steps_use_the_weight_versions_of_the_schedule(weights, replicas):
    made = pipeline.schedule(
        "1f1b_async",
        stages=len(replicas),
        replicas=replicas,
        micro_batches=60,
        weights=weights,
    )
    text, rows = made.text(), [4] * 60
    results = run_ranks(len(made.ranks), train_loader, text, rows, 2, 120)
    runs = [batches_of(rows, seed=run) for run in range(2)]
    reference, _ = reference_of(text, runs)
    compare(results, reference)
    updates = 2 * len(made.validate().lags[-1])
    for rank, (losses, _) in enumerate(results):
        assert len(losses) == (updates if rank in made.stages[-1] else 0)


def test_a_last_partial_batch_is_trained_and_missing_batches_change_nothing():
    made = pipeline.schedule(
        "1f1b_async", stages=3, replicas=[1, 2, 1], micro_batches=12
    )
    rows = [4] * 9 + [1]  # two batches less than the schedule
    text = made.text()
    results = run_ranks(len(made.ranks), train_loader, text, rows, 1, 10)
    empty = torch.empty(0, 5, dtype=torch.float64)
    batches = batches_of(rows, seed=0) + [(empty, empty, 0.0)] * 2
    reference, _ = reference_of(text, [batches])
    compare(results, reference)


def train_rows(rank, size, text, sizes):
    with make(text) as pipe:
        for step, rows in enumerate(sizes):
            x, y, _ = batches_of([rows], seed=step)[0]
            pipe.train_step(x, y)
        return None, weights_of(pipe)


def test_batches_of_any_size_are_cut_into_micro_batches():
    made = pipeline.schedule("1f1b", stages=2, replicas=[2, 1], micro_batches=4)
    sizes = [3, 16, 17, 2, 1, 33]
    results = run_ranks(3, train_rows, made.text(), sizes)
    runs = []
    for step, rows in enumerate(sizes):
        x, y, _ = batches_of([rows], seed=step)[0]
        cut = zip(torch.tensor_split(x, 4), torch.tensor_split(y, 4), strict=True)
        full = -(-rows // 4)
        runs.append([(a, b, len(a) / full) for a, b in cut])
    reference, _ = reference_of(made.text(), runs, sgd)
    compare(results, reference)


def train_with(rank, size, text, options):
    with make(text, **options) as pipe:
        x, y, _ = batches_of([16])[0]
        for _ in range(3):
            pipe.train_step(x, y)
        return None, weights_of(pipe)


@pytest.mark.parametrize("case", ["policy", "gloo"])
def test_replicas_with_a_policy_and_with_another_backend(case):
    made = pipeline.schedule("1f1b", stages=2, replicas=[2, 1], micro_batches=4)
    # No rank is late, so the policy skips none.
    patient = SkipStraggler(floor_ms=20_000, ceiling_ms=20_000, granularity="bucket")
    options = {"policy": patient} if case == "policy" else {}
    backend = "gloo" if case == "gloo" else "aikido"
    results = run_ranks(3, train_with, made.text(), options, backend=backend)
    x, y, _ = batches_of([16])[0]
    cut = [(a, b, 1.0) for a, b in zip(x.split(4), y.split(4), strict=True)]
    reference, _ = reference_of(made.text(), [cut] * 3, sgd)
    compare(results, reference)


def train_in_a_part(rank, size, text):
    """Two pipelines side by side, each in a subgroup."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = groups[rank // 2]
    x, y, _ = batches_of([16], seed=rank // 2)[0]
    with make(text, group=own) as pipe:
        pipe.train_step(x, y)
        assert pipe.rank == rank % 2
        return None, weights_of(pipe)


def test_a_pipeline_can_use_some_of_the_ranks():
    made = pipeline.schedule("1f1b", stages=2, micro_batches=4)
    results = run_ranks(4, train_in_a_part, made.text())
    for part in range(2):
        x, y, _ = batches_of([16], seed=part)[0]
        cut = [(a, b, 1.0) for a, b in zip(x.split(4), y.split(4), strict=True)]
        reference, _ = reference_of(made.text(), [cut], sgd)
        compare(results[2 * part : 2 * part + 2], reference)


def make_groups_after_a_pipeline(rank, size, text):
    """Ranks 0 to 2 have a pipeline; its two replicas have one more group."""
    part = dist.new_group([0, 1, 2])
    if rank < 3:
        with make(text, group=part):
            pass
        with make(text, group=part) as pipe:
            x, y, _ = batches_of([16])[0]
            pipe.train_step(x, y)
    total = torch.ones(1)
    dist.all_reduce(total, group=dist.new_group([0, 1, 2, 3]))
    if rank != 1:
        dist.new_group([0, 2, 3], use_local_synchronization=True)
    return int(total)


def test_groups_can_be_made_after_a_pipeline_on_some_of_the_ranks():
    made = pipeline.schedule("1f1b", stages=2, replicas=[2, 1], micro_batches=4)
    assert run_ranks(4, make_groups_after_a_pipeline, made.text()) == [4] * 4


def plan_of_rank_0(rank, size):
    profile = _profile.chain(
        forward_ms=[1, 2], backward_ms=[2, 4],
        activation_bytes=[10, 10], parameter_bytes=[10, 10],
    )  # fmt: skip
    plans = [pipeline.partition(profile, machines=2, bandwidth=1e9)]
    found = plans if rank == 0 else [None]
    dist.broadcast_object_list(found, src=0)
    return found == plans


def test_a_plan_reaches_all_ranks():
    assert run_ranks(2, plan_of_rank_0) == [True, True]


class Late(torch.nn.Module):
    """A module that delays each forward."""

    def __init__(self, module, seconds):
        super().__init__()
        self.module, self.seconds = module, seconds

    def forward(self, x):
        late(self.seconds)
        return self.module(x)


def train_with_a_slow_replica(rank, size, slow):
    stages = layered(2)
    stages[0] = Late(stages[0], 0.06 if rank == slow else 0.01)
    schedule = pipeline.schedule("1f1b", stages=2, replicas=[3, 1], micro_batches=12)
    with pipeline.Pipeline(
        stages,
        schedule=schedule,
        optimizer=sgd,
        loss_fn=squared,
        adapt=pipeline.Adapt(every=2),
    ) as pipe:
        x, y, _ = batches_of([24])[0]
        losses = [pipe.train_step(x, y) for _ in range(6)]
        reasons = [change.reason for change in pipe.adaptations]
        return losses, weights_of(pipe), pipe.schedule.text(), reasons


def test_all_ranks_adapt_equally_and_continue_training():
    results = run_ranks(4, train_with_a_slow_replica, 1)
    assert len({text for _, _, text, _ in results}) == 1
    assert len({tuple(reasons) for *_, reasons in results}) == 1
    text, (first, *_) = results[0][2:]
    assert "turns follow how slow ranks" in first
    stages = _schedule.Schedule.parse(text).ranks
    done = [sum(it.kind == "forward" for it in stages[rank]) for rank in range(3)]
    assert done[1] < min(done[0], done[2])
    # The replicas sum other micro-batches than before, which changes the last digits.
    fixed = pipeline.schedule("1f1b", stages=2, replicas=[3, 1], micro_batches=12)
    x, y, _ = batches_of([24])[0]
    cut = [(a, b, 1.0) for a, b in zip(x.split(2), y.split(2), strict=True)]
    reference, _ = reference_of(fixed.text(), [cut] * 6, sgd)
    for _, weights, *_ in results:
        for stage, own in weights.items():
            wanted = list(reference.modules[stage].parameters())
            torch.testing.assert_close(own, wanted)


def test_replicas_can_be_on_ranks_of_several_groups():
    """As in plans with several levels: two groups, each with a pipeline."""
    rows = pipeline.schedule(
        "1f1b_async", stages=2, replicas=[2, 2], micro_batches=12, weights="2bw"
    )
    text = placed(rows._native, ranks_of("2(1-1)")).text()
    results = run_ranks(4, train_loader, text, [4] * 12, 2, 24)
    assert [sorted(weights) for _, weights in results] == [[0], [1], [0], [1]]
    runs = [batches_of([4] * 12, seed=run) for run in range(2)]
    reference, _ = reference_of(text, runs)
    compare(results, reference)
