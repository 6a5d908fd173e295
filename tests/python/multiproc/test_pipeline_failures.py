# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pipelines in which a rank dies, fails, or does not match its description."""

import time
from pathlib import Path

import pytest
import torch
from torch import nn

from aikido_torch import pipeline
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import die, late, run_ranks
from harness.failures import failure_of
from harness.pipelines import WIDTH, layered, sgd, squared

VICTIM = 1


class Slow(nn.Module):
    """A slow stage that runs a function at one of its calls."""

    def __init__(self, module, seconds, at, act):
        super().__init__()
        self.module = module
        self.seconds = seconds
        self.at = at
        self.act = act
        self.num_calls = 0

    def forward(self, x):
        late(self.seconds)
        self.num_calls += 1
        x = self.module(x)
        return self.act(x) if self.num_calls == self.at else x


def batches(count, rows=4):
    generator = torch.Generator().manual_seed(3)
    shape = (count, rows, WIDTH)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return [(rows, rows) for rows in x]


def lose_a_rank(rank, size, folder, weights, victim, busy):
    """The victim dies while all ranks compute, after checkpoints were written."""
    name = "1f1b_async" if weights else "1f1b"
    schedule = pipeline.schedule(name, stages=size, micro_batches=8, weights=weights)

    def act(x):
        late(0.2)  # its last message is on its way
        Path(folder, "died").write_text(repr(time.time()))
        die()

    stages = layered(size)
    stages[victim] = Slow(stages[victim], 0, 20, act)
    if busy is not None:  # computes for long and notices nothing
        stages[busy] = Slow(stages[busy], 0, 21, lambda x: (late(3), x)[1])
    pipe = pipeline.Pipeline(stages, schedule=schedule, optimizer=sgd, loss_fn=squared)
    pipe.train(batches(8, 8), steps=16 if weights else 2)
    pipe.save(folder)
    failure = failure_of(lambda: pipe.train(batches(8, 8), steps=16 if weights else 2))
    took = time.time() - float(Path(folder, "died").read_text())
    return failure, took, failure_of(lambda: pipe.train_step(*batches(1, 8)[0]))


@pytest.mark.alone
@pytest.mark.parametrize(
    ("weights", "victim", "busy"),
    [
        (None, 1, None),
        ("stash", 1, None),
        (None, 3, 2),  # the only receiver of its messages
    ],
)
def test_a_stage_that_dies_is_named_on_all_other_ranks(tmp_path, weights, victim, busy):
    arguments = str(tmp_path), weights, victim, busy
    results = run_ranks(4, lose_a_rank, *arguments, may_die={victim}, group_timeout=60)
    for rank, seen in enumerate(results):
        if rank == victim:
            continue
        failure, took, later = seen
        assert (failure.name, failure.rank) == ("PeerLostError", victim)
        assert failure.text.startswith(f"stage {victim} (rank {victim}) is lost, ")
        assert took < (4 if rank == busy else 2)
        assert (later.name, later.text) == (failure.name, failure.text)
        assert later.seconds < 0.1


def fail_in_a_stage(rank, size, what):
    def act(x):
        if what == "raises":
            raise ZeroDivisionError("of my own")
        if what == "other shape":
            return x[:, :2]
        if what == "no tensor":
            return {"x": x}
        return x.float()

    stages = layered(size)
    stages[VICTIM] = Slow(stages[VICTIM], 0, 3, act)
    schedule = pipeline.schedule("1f1b", stages=size, micro_batches=4)
    pipe = pipeline.Pipeline(stages, schedule=schedule, optimizer=sgd, loss_fn=squared)
    start = time.time()
    try:
        pipe.train(batches(4), steps=4)
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        return type(error).__name__, str(error), notes, time.time() - start


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("raises", "ZeroDivisionError", "of my own"),
        (
            "other shape",
            "ConfigError",
            "stage 1 returned for micro-batch 2 [1, 2] of float64, and before [1, 5] "
            "of float64; all micro-batches have the same shapes but for dimension 0.",
        ),
        (
            "other dtype",
            "ConfigError",
            "stage 1 returned for micro-batch 2 [1, 5] of float32, and before [1, 5] "
            "of float64; all micro-batches have the same shapes but for dimension 0.",
        ),
        (
            "no tensor",
            "ConfigError",
            "stage 1 returned a dict; a stage that is not the last returns a tensor "
            "or a tuple of tensors.",
        ),
    ],
)
def test_an_error_of_a_stage_is_reported_to_all(what, kind, text):
    results = run_ranks(3, fail_in_a_stage, what, group_timeout=60)
    for rank, (name, told, notes, took) in enumerate(results):
        if rank == VICTIM:
            assert (name, told) == (kind, text)
            assert kind == "ConfigError" or notes == [
                "stage 1 (rank 1), at F1.2@0 of its schedule"
            ]
        else:
            assert name == "AbortedError"
            assert told == f"stage 1 (rank 1) has failed: {kind}: {text}"
        assert took < 5


def ended(call):
    """Error and time of the call; the rank stays until others have noticed."""
    start = time.time()
    name = text = ""
    try:
        call()
    except Exception as error:
        name, text = type(error).__name__, str(error)
    took = time.time() - start
    late(4)
    return name, text, took


def check_blamed(results, who, what):
    """The victim raised this error, and all other ranks soon reported it."""
    for rank, (name, text, took) in enumerate(results):
        if rank == VICTIM:
            assert f"{name}: {text}" == what
        else:
            assert (name, text) == ("AbortedError", f"{who} has failed: {what}")
        assert took < results[VICTIM][2] + 2


class Tail(nn.Module):
    """A slow backward."""

    def forward(self, x):
        return LateBackward.apply(x)


class FailingBackward(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        late(0.5)  # the other replicas wait in their sum by now
        raise ZeroDivisionError("of my own")


def fail_while_others_sum(rank, size):
    """One of three replicas fails in its last backward and does not leave."""
    stages = layered(2)
    if rank == VICTIM:
        stages[0] = Slow(stages[0], 0, 2, FailingBackward.apply)
    schedule = pipeline.schedule("1f1b", stages=2, replicas=[3, 1], micro_batches=6)
    pipe = pipeline.Pipeline(stages, schedule=schedule, optimizer=sgd, loss_fn=squared)
    return ended(lambda: pipe.train(batches(2, 12), steps=2))


def test_replicas_that_wait_for_a_sum_get_the_error_of_the_failed_one():
    results = run_ranks(4, fail_while_others_sum, group_timeout=30)
    check_blamed(results, "stage 0 (rank 1)", "ZeroDivisionError: of my own")


def fail_outside_a_schedule(rank, size, what):
    def gives_up():
        yield from batches(2)
        if rank == VICTIM:
            raise OSError("no disk")
        yield from batches(2)

    def make_stage():
        if rank == VICTIM and what == "factory":
            raise OSError("no disk")
        return layered(2)[1]

    def go():
        schedule = pipeline.schedule("1f1b", stages=2, replicas=[1, 2], micro_batches=4)
        pipe = pipeline.Pipeline(
            [layered(2)[0], make_stage],
            schedule=schedule,
            optimizer=sgd,
            loss_fn=squared,
        )
        if what == "loader":
            pipe.train(gives_up(), steps=4)
        (x, y), *_ = batches(1)
        with torch.inference_mode(what == "inference_mode" and rank == VICTIM):
            given = {"no rows": y[:0], "no targets": None} if rank == VICTIM else {}
            pipe.train_step(x, given.get(what, y))

    return ended(go)


@pytest.mark.beside
@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("loader", "OSError: no disk"),
        ("factory", "OSError: no disk"),
        ("no rows", "ConfigError: the batch has no rows."),
        (
            "no targets",
            "ConfigError: train_step got no targets; stage 1 (rank 1) needs them.",
        ),
        (
            "inference_mode",
            "ConfigError: stage 1 (rank 1) trains under torch.inference_mode(), which "
            "keeps nothing for gradients; train outside of it.",
        ),
    ],
)
def test_a_failure_outside_a_schedule_is_reported_to_all(what, error):
    results = run_ranks(3, fail_outside_a_schedule, what, group_timeout=30)
    check_blamed(results, "stage 1 (rank 1)", error)


def skip_in_parts(rank, size, granularity, dtypes):
    schedule = pipeline.schedule("1f1b", stages=2, replicas=[2, 1], micro_batches=4)
    stages = [nn.Sequential(*(nn.Linear(2, 2, dtype=t) for t in dtypes)), nn.Tanh()]
    policy = SkipStraggler(floor_ms=1, ceiling_ms=5, granularity=granularity)
    return failure_of(
        lambda: pipeline.Pipeline(
            stages, schedule=schedule, optimizer=sgd, loss_fn=squared, policy=policy
        )
    )


@pytest.mark.parametrize(
    ("granularity", "dtypes", "text"),
    [
        (
            "shard",
            [torch.float32],
            'policy has granularity="shard", and stage 0 has replic',
        ),
        (
            "bucket",
            [torch.float32, torch.float64],
            "policy may skip replicas of stage 0, whose parameters are of "
            "torch.float32, torch.float64: their gradients would be several sums, ",
        ),
        ("bucket", [torch.bfloat16], "policy may skip replicas of stage 0, whose par"),
        ("bucket", [torch.float32], ""),
    ],
)
def test_a_policy_must_skip_a_replica_in_a_whole_sum_or_not_at_all(
    granularity, dtypes, text
):
    for failure in run_ranks(3, skip_in_parts, granularity, dtypes, group_timeout=20):
        assert failure.name == ("ConfigError" if text else "nothing")
        assert failure.text.startswith(text)


class LateBackward(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        late(0.3)
        return gradient


def leave_early(rank, size):
    """Ranks that are done may leave while others still compute.

    Their messages have arrived by then, but are not used yet.
    """
    stages = layered(size)
    stages[0] = Slow(nn.Sequential(stages[0], Tail()), 0.1, -1, None)
    schedule = pipeline.schedule("1f1b", stages=size, micro_batches=4)
    pipe = pipeline.Pipeline(stages, schedule=schedule, optimizer=sgd, loss_fn=squared)
    pipe.train(batches(4), steps=2)
    if rank > 0:
        return pipe.steps
    late(0.5)
    return pipe.steps


@pytest.mark.beside
def test_a_rank_that_has_done_its_part_can_leave():
    assert run_ranks(3, leave_early, group_timeout=20) == [2, 2, 2]


def disagree(rank, size):
    def make(stages=size, modules=None, **options):
        options = {"stages": stages, "micro_batches": 4} | options
        return pipeline.Pipeline(
            layered(stages) if modules is None else modules,
            schedule=pipeline.schedule("1f1b", **options),
            optimizer=sgd,
            loss_fn=squared,
        )

    shared = layered(1)[0]
    return [
        failure_of(lambda: make(micro_batches=4 + rank)),
        failure_of(lambda: make(stages=3)),
        failure_of(lambda: make(micro_batches=1)),
        failure_of(lambda: make(modules=layered(3))),
        failure_of(lambda: make(modules=[shared, nn.Sequential(shared)])),
        failure_of(lambda: make(modules=[shared, 3])),
        failure_of(lambda: make().train_step()),
        failure_of(lambda: make().train(steps=2)),
    ]


@pytest.mark.beside
def test_invalid_arguments_are_refused_on_all_ranks():
    texts = [
        ["rank 1 has another schedule than rank 0; ", "rank 0 has another schedule"],
        "the schedule is for 3 ranks (stages with 1, 1, 1), and the group has 2; ",
        "the schedule has 1 micro-batches for 2 stages: when stage 1 gets its first, ",
        "there are 3 modules and the schedule has 2 stages; ",
        'stages 0 and 1 share the parameter "0.0.weight" of the latter; ',
        "stage 1 is a int; pass a module, or a function that makes it.",
        [
            "train_step got no inputs; stage 0 (r",
            "train_step got no targets; stage 1 (r",
        ],
        [
            "train got no loader; stage 0 (rank 0)",
            "train got no loader; stage 1 (rank 1)",
        ],
    ]
    for rank, failures in enumerate(run_ranks(2, disagree, group_timeout=20)):
        for failure, text in zip(failures, texts, strict=True):
            wanted = text if isinstance(text, str) else text[rank]
            if failure.name == "AbortedError" and not isinstance(text, str):
                # Both ranks have an error, and the error of the other rank arrived
                # first.
                other = f"stage {1 - rank} (rank {1 - rank}) has failed: ConfigError: "
                wanted = other + text[1 - rank]
            else:
                assert failure.name == "ConfigError"
            assert failure.text.startswith(wanted), failure.text


def lose_a_replica(rank, size, victim):
    """The last replica of stage 1 dies while the first waits for the sum of both."""
    schedule = pipeline.schedule("1f1b", stages=3, replicas=[1, 2, 1], micro_batches=4)
    stages = layered(3)
    if rank == victim:
        stages[1] = nn.Sequential(stages[1], Dying())
    pipe = pipeline.Pipeline(stages, schedule=schedule, optimizer=sgd, loss_fn=squared)
    return failure_of(lambda: pipe.train(batches(2, 8), steps=4))


class Dying(nn.Module):
    def forward(self, x):
        return DyingBackward.apply(x)


class DyingBackward(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        late(0.3)  # the other replica waits in the sum by now
        die()


@pytest.mark.beside
def test_a_replica_that_dies_is_named_by_its_rank_of_the_pipeline():
    """Its rank in the group of the sum is different."""
    victim = 2
    results = run_ranks(4, lose_a_replica, victim, may_die={victim}, group_timeout=60)
    for rank, failure in enumerate(results):
        if rank != victim:
            assert (failure.name, failure.rank) == ("PeerLostError", victim)
            assert failure.text.startswith("stage 1 (rank 2) is lost, ")
