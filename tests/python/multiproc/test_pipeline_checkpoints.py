# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Checkpoints of pipelines of real ranks: a complete one is restored bit for bit."""

import warnings
from pathlib import Path

import pytest
import torch

from aikido_torch import pipeline
from aikido_torch.testing import die, run_ranks
from harness.failures import failure_of
from harness.pipelines import WIDTH, adam, layered, squared

pytestmark = pytest.mark.beside

STEPS = 24  # between checkpoints; a run of the schedule has 12 steps


def make(replicas, weights, stages=None):
    schedule = pipeline.schedule(
        "1f1b_async" if weights != "flush" else "1f1b",
        stages=len(replicas),
        replicas=replicas,
        micro_batches=12,
        weights=weights,
    )
    return pipeline.Pipeline(
        stages or layered(len(replicas)),
        schedule=schedule,
        optimizer=adam,
        loss_fn=squared,
    )


def batches():
    generator = torch.Generator().manual_seed(4)
    while True:
        x = torch.randn(12, WIDTH, generator=generator, dtype=torch.float64)
        yield x, x.sin()


def weights_of(pipe):
    return {
        stage: [parameter.detach().clone() for parameter in module.parameters()]
        for stage, module in pipe.modules.items()
    }


def train(rank, size, folder, replicas, weights, checkpoints, crash):
    """Continues from the newest checkpoint."""
    with make(replicas, weights) as pipe:
        begun = pipe.restore(folder)
        data = batches()
        for _ in range(pipe.steps):
            next(data)
        while pipe.steps < checkpoints * STEPS:
            pipe.train(data, steps=STEPS)
            if crash and pipe.steps == checkpoints * STEPS and rank > 0:
                die()  # before it writes its part of the last checkpoint
            pipe.save(folder)
        return begun, weights_of(pipe)


@pytest.mark.parametrize("weights", ["flush", "stash", "vertical_sync", "2bw"])
def test_training_continues_as_if_nothing_had_happened(tmp_path, weights):
    replicas = [1, 2] if weights == "flush" else [2, 1]
    whole = run_ranks(3, train, str(tmp_path / "a"), replicas, weights, 3, False)
    folder = str(tmp_path / "b")
    run_ranks(3, train, folder, replicas, weights, 2, True, may_die={0, 1, 2})
    newest = sorted(path.name for path in Path(folder).iterdir())
    assert newest == ["step-0000000024", "step-0000000048"]
    assert len(list(Path(folder, newest[1]).iterdir())) == 1  # not complete
    again = run_ranks(3, train, folder, replicas, weights, 3, False)
    for (never, wanted), (begun, own) in zip(whole, again, strict=True):
        assert (never, begun) == (None, STEPS)
        for stage, parameters in wanted.items():
            for a, b in zip(parameters, own[stage], strict=True):
                assert torch.equal(a, b)


def restore(rank, size, folder, replicas, stages=None):
    pipe = make(replicas, "stash", stages)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        failure = failure_of(lambda: pipe.restore(folder))
    words = [str(w.message) for w in told if "cannot be read" in str(w.message)]
    return pipe.steps, failure, words, weights_of(pipe)


def test_a_checkpoint_of_another_plan_is_refused_and_named(tmp_path):
    folder = str(tmp_path)
    run_ranks(2, train, folder, [1, 1], "stash", 1, False)
    for _, failure, _, _ in run_ranks(3, restore, folder, [1, 1, 1]):
        assert failure.name == "ConfigError"
        assert failure.text == (
            f"stage 0 of 3 has no checkpoint in {folder}: those there are of a plan "
            "with 2 stages. Use that plan, or another folder."
        )
    other = [*layered(1), torch.nn.Linear(WIDTH, 3).double()]
    for _, failure, _, _ in run_ranks(2, restore, folder, [1, 1], other):
        assert failure.name == "ConfigError"
        assert failure.text.startswith(
            'stage 1: "weight" is [3, 5] of float64 in this pipeline and nothing in '
        )
    # A plan with other numbers of replicas counts as the same plan.
    results = run_ranks(3, restore, folder, [1, 2])
    assert [steps for steps, *_ in results] == [STEPS] * 3
    for a, b in zip(results[1][3][1], results[2][3][1], strict=True):
        assert torch.equal(a, b)


def test_an_older_checkpoint_replaces_an_unreadable_one(tmp_path):
    folder = str(tmp_path)
    run_ranks(2, train, folder, [1, 1], "stash", 2, False)
    broken = tmp_path / "step-0000000048" / "stage-1-of-2.pt"
    broken.write_bytes(broken.read_bytes()[:-100])
    results = run_ranks(2, restore, folder, [1, 1])
    assert [(steps, len(words)) for steps, _, words, _ in results] == [
        (STEPS, 0),
        (STEPS, 1),
    ]
    assert results[1][2][0].startswith(f"{broken} cannot be read (")


def restore_from_own_disk(rank, size, folder, replicas):
    own = Path(folder, str(rank))
    with make(replicas, "stash") as pipe:
        pipe.train(batches(), steps=12)
        pipe.save(own)
        saved = weights_of(pipe)
        pipe.train(batches(), steps=12)
        begun = pipe.restore(own)
        same = [
            torch.equal(a, b)
            for stage, parameters in weights_of(pipe).items()
            for a, b in zip(parameters, saved[stage], strict=True)
        ]
        pipe.train(batches(), steps=12)
        return begun, all(same), weights_of(pipe)


def test_replicas_without_the_file_get_it_from_another_replica(tmp_path):
    results = run_ranks(3, restore_from_own_disk, str(tmp_path), [2, 1])
    assert [(begun, same) for begun, same, _ in results] == [(12, True)] * 3
    assert not (tmp_path / "1").exists()
    for a, b in zip(results[0][2][0], results[1][2][0], strict=True):
        assert torch.equal(a, b)


def test_without_a_checkpoint_nothing_is_restored(tmp_path):
    assert [r[0] for r in run_ranks(2, restore, str(tmp_path / "x"), [1, 1])] == [0, 0]


def live_and_die(rank, size, folder, victim):
    """Two checkpoints; the victim does not write its part of the second one."""
    with make([1, 1], "stash") as pipe:
        begun = pipe.restore(folder)
        for checkpoint in range(1 if begun else 0, 2):
            pipe.train(batches(), steps=12)
            if checkpoint == 0 or rank != victim:
                pipe.save(folder)
        return begun


def test_parts_from_two_lives_are_no_checkpoint(tmp_path):
    folder = str(tmp_path)
    assert run_ranks(2, live_and_die, folder, 1) == [None, None]
    assert run_ranks(2, live_and_die, folder, 0) == [12, 12]
    assert len(list(Path(folder, "step-0000000024").iterdir())) == 2
    assert [r[0] for r in run_ranks(2, restore, folder, [1, 1])] == [12, 12]


def restore_into_other_groups(rank, size, folder):
    """The optimizer of one rank cannot load the saved state."""

    def optimizer(parameters):
        if rank == 1:
            parameters = [{"params": [parameter]} for parameter in parameters]
        return torch.optim.Adam(parameters)

    schedule = pipeline.schedule(
        "1f1b_async", stages=2, micro_batches=12, weights="stash"
    )
    pipe = pipeline.Pipeline(
        layered(2), schedule=schedule, optimizer=optimizer, loss_fn=squared
    )
    try:
        pipe.restore(folder)
    except Exception as error:
        raised = type(error).__name__, str(error)
    return raised, failure_of(lambda: pipe.train(batches(), steps=12))


def test_a_part_that_cannot_be_loaded_ends_the_pipeline_on_all_ranks(tmp_path):
    run_ranks(2, train, str(tmp_path), [1, 1], "stash", 1, False)
    results = run_ranks(2, restore_into_other_groups, str(tmp_path))
    (first, _), (second, _) = results
    assert second[0] == "ValueError"
    text = f"stage 1 (rank 1) has failed: ValueError: {second[1]}"
    assert first == ("AbortedError", text)
    # Half of the checkpoint is loaded, so no rank may continue.
    for _, later in results:
        assert (later.name, later.text) == ("AbortedError", text)
