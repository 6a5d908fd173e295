# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""All ranks in one thread, bit for bit equal to a reference without ranks."""

import pytest
import torch

from aikido_torch import pipeline
from aikido_torch.pipeline.runtime._executor import (
    AHEAD,
    Receives,
    Step,
    Values,
    _Arrival,
)
from aikido_torch.pipeline.runtime._observe import Observer, live_times
from harness.pipelines import (
    BatchFeed,
    LocalPipeline,
    Reference,
    adam,
    batches_of,
    layered,
    sgd,
    squared,
)

KINDS = [
    ("gpipe", None),
    ("1f1b", None),
    ("1f1b_async", "stash"),
    ("1f1b_async", "vertical_sync"),
    ("1f1b_async", "2bw"),
    ("zero_bubble", None),
]


def receive(micro_batch, kind="receive_activation"):
    return Step(kind, 1, micro_batch, 0, 0, "", (1, micro_batch))


def test_receives_are_posted_ahead_in_order_and_once():
    steps = [receive(i) for i in range(AHEAD + 3)]
    receives = Receives(steps)
    posted = []

    def post(step):
        posted.append(step.micro_batch)
        receives.add(_Arrival(step))
        return True

    post(steps[1])  # its turn has come before it was posted ahead
    receives.post_ahead(post)
    assert posted == [1, 0, *range(2, AHEAD)]
    arrival = receives.find("receive_activation", (1, 0))
    receives.remove(arrival)
    receives.post_ahead(post)
    assert posted == [1, 0, *range(2, AHEAD + 1)]
    assert receives.is_posted(steps[0])  # also after it was received
    assert not receives.is_posted(steps[AHEAD + 1])


def test_a_receive_that_cannot_be_posted_yet_keeps_later_ones_waiting():
    steps = [receive(0), receive(1)]
    receives = Receives(steps)
    asked = []
    receives.post_ahead(lambda step: asked.append(step.micro_batch))
    assert asked == [0]
    assert receives.find("receive_activation", (1, 1)) is steps[1]
    arrival = _Arrival(steps[1])
    receives.add(arrival)
    assert receives.find("receive_activation", (1, 1)) is arrival


def test_a_gradient_that_never_comes_needs_no_wait():
    values = Values(gradients={(0, 1): ()}, without_gradient={(0, 2)})
    assert [values.has_gradient((0, i)) for i in range(4)] == [False, True, True, False]


def compare(schedule, rows, make_optimizer=sgd, runs=2, seed=0):
    modules = layered(len(schedule.stages))
    parts = modules, schedule, make_optimizer, squared
    pipe = LocalPipeline(*parts, seed=seed)
    reference = Reference(*parts)
    for run in range(runs):
        batches = batches_of(rows, seed=run)
        pipe.run(BatchFeed(batches))
        losses = reference.run(batches)
        for got, wanted in zip(pipe.losses(), losses, strict=True):
            assert (got is None) == (wanted is None)
            assert got is None or torch.equal(got, wanted)
        for stage, module in enumerate(reference.modules):
            for replica in range(len(schedule.stages[stage])):
                own = pipe.module(stage, replica)
                for got, wanted in zip(
                    own.parameters(), module.parameters(), strict=True
                ):
                    assert torch.equal(got, wanted), (run, stage, replica)
    return pipe


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize(("name", "weights"), KINDS)
def test_every_version_equals_the_reference(name, weights, stages):
    made = pipeline.schedule(name, stages=stages, micro_batches=12, weights=weights)
    compare(made, [4] * 12, adam)


@pytest.mark.parametrize(("name", "weights"), KINDS[:5])
@pytest.mark.parametrize("replicas", [[2, 1], [1, 3], [1, 2, 1], [3, 2]])
def test_sums_of_replicas_equal_the_reference(name, weights, replicas):
    made = pipeline.schedule(
        name,
        stages=len(replicas),
        replicas=replicas,
        micro_batches=12,
        weights=weights,
    )
    compare(made, [4] * 12, seed=sum(replicas))


@pytest.mark.parametrize(
    ("name", "replicas"),
    [
        ("1f1b", [1, 1, 1]),
        ("1f1b", [2, 1]),
        ("1f1b", [1, 3, 1]),
        ("gpipe", [1, 2, 1, 1]),
    ],
)
def test_fifty_flushes_equal_the_reference(name, replicas):
    made = pipeline.schedule(
        name, stages=len(replicas), replicas=replicas, micro_batches=4
    )
    compare(made, [2] * 4, adam, runs=50)


@pytest.mark.parametrize("replicas", [[2], [2, 1], [1, 2, 1], [3, 2]])
def test_overlapped_sums_equal_the_reference(replicas):
    made = pipeline.schedule(
        "1f1b_async",
        stages=len(replicas),
        replicas=replicas,
        micro_batches=12,
        overlap_sums=True,
    )
    compare(made, [4] * 12, adam, runs=4, seed=sum(replicas))


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_schedules_with_turns_equal_the_reference(name):
    made = pipeline.schedule(
        name,
        stages=2,
        replicas=[2, 2],
        micro_batches=8,
        turns=[[0, 0, 1], [1, 0]],
    )
    compare(made, [4] * 8, adam, runs=4)


@pytest.mark.parametrize("name", ["interleaved_1f1b", "zero_bubble"])
def test_stages_of_one_rank_exchange_no_messages(name):
    made = pipeline.schedule(name, stages=4, stages_per_rank=2, micro_batches=4)
    pipe = compare(made, [4] * 4)
    # In each of two runs, every micro-batch crosses between ranks 0 and 1 three times
    # forward and three times backward. Promises add three messages.
    assert pipe.network.num_sent == 2 * 4 * 6 + 3
    alone = pipeline.schedule(name, stages=4, stages_per_rank=4, micro_batches=4)
    assert compare(alone, [4] * 4).network.num_sent == 0


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "1f1b_async"])
def test_recomputed_forwards_equal_the_reference(name):
    made = pipeline.schedule(name, stages=3, micro_batches=8, recompute=True)
    assert "C0.0@0" in made.text()
    compare(made, [4] * 8, adam)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "rows",
    [
        [4, 4, 4, 4, 4, 1],  # a smaller last micro-batch
        [4, 0, 0, 0, 0, 0],  # too few for all replicas: some have no promise yet
        [0, 0, 0, 0, 0, 4],
        [0, 3, 0, 5, 0, 0],
        [1, 2, 3, 4, 5, 6],  # more rows than promised
    ],
)
@pytest.mark.parametrize("replicas", [[1, 1, 1], [2, 1, 2]])
def test_micro_batches_can_differ_in_rows(rows, replicas, seed):
    made = pipeline.schedule("1f1b_async", stages=3, replicas=replicas, micro_batches=6)
    compare(made, rows, seed=seed)


def test_shapes_are_sent_once_to_each_rank():
    made = pipeline.schedule("1f1b", stages=2, micro_batches=4)
    pipe = compare(made, [4] * 4, runs=3)
    assert pipe.network.num_sent == 3 * 2 * 4 + 1


def test_receives_are_posted_ahead():
    made = pipeline.schedule("gpipe", stages=2, micro_batches=8)
    modules = layered(2)
    pipe = LocalPipeline(modules, made, sgd, squared)
    pipe.run(BatchFeed(batches_of([4] * 8)))  # from now on, shapes are known
    posted = []
    second = pipe.executors[1]
    channel = second._channel
    receive = channel.receive

    def note(peer, tag, buffer):
        posted.append(tag)
        return receive(peer, tag, buffer)

    channel.receive = note
    waits = second.run(pipe.program(1), BatchFeed(batches_of([4] * 8)))
    next(waits)  # waits for the first input
    assert len(posted) == AHEAD
    waits.close()


def test_an_aborted_run_leaves_the_modules_with_their_own_parameters():
    made = pipeline.schedule("1f1b_async", stages=1, micro_batches=4)
    pipe = LocalPipeline(layered(1), made, sgd, squared)
    module = pipe.module(0)
    own = list(module.parameters())
    batches = batches_of([4] * 4)
    batches[2] = (None, None, 1.0)
    with pytest.raises(AttributeError):
        pipe.run(BatchFeed(batches))
    assert all(a is b for a, b in zip(module.parameters(), own, strict=True))


@pytest.mark.parametrize(
    "changes", [{"warmups": [7, 2, 0]}, {"turns": [[0], [0, 0, 1], [0]]}]
)
def test_a_flush_continues_with_another_order(changes):
    """Deeper warm-ups change no bit; other turns change the sums of replicas."""
    first = pipeline.schedule("1f1b", stages=3, replicas=[1, 2, 1], micro_batches=8)
    second = first.remade(**changes)
    assert second.text() != first.text()
    parts = layered(3), first, adam, squared
    pipe, reference = LocalPipeline(*parts), Reference(*parts)
    for run in range(6):
        if run == 3:
            pipe.schedule = second
        if run == 3 and "turns" in changes:
            before, reference = reference, Reference(parts[0], second, adam, squared)
            reference.modules = before.modules
            reference.optimizers = before.optimizers
        batches = batches_of([4] * 8, seed=run)
        pipe.run(BatchFeed(batches))
        reference.run(batches)
    for stage, module in enumerate(reference.modules):
        own = pipe.module(stage)
        for got, wanted in zip(own.parameters(), module.parameters(), strict=True):
            assert torch.equal(got, wanted)


def test_an_observer_sees_computations_and_messages():
    made = pipeline.schedule("1f1b", stages=2, replicas=[2, 1], micro_batches=4)
    pipe = LocalPipeline(layered(2), made, sgd, squared)
    pipe.run(BatchFeed(batches_of([4] * 4)))
    for executor in pipe.executors:
        executor.observer = Observer()
    pipe.run(BatchFeed(batches_of([4] * 4)))
    reports = [executor.observer.report() for executor in pipe.executors]
    assert [set(report.forwards) for report in reports] == [{0}, {0}, {1}]
    assert [set(report.backwards) for report in reports] == [{0}, {0}, {1}]
    up = {(False, 0, b) for b in range(4)}
    down = {(True, 1, b) for b in range(4)}
    assert reports[2].sent.keys() == down
    assert reports[2].arrived.keys() == up
    for rank in range(2):
        assert reports[rank].sent.keys() == {m for m in up if m[2] % 2 == rank}
        assert reports[rank].arrived.keys() == {m for m in down if m[2] % 2 == rank}
    assert live_times(reports, made.stages) is not None
