# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from benchmarks.straggler_cases import learning
from benchmarks.straggler_cases.learning import (
    EvaluatedTask,
    FlatTask,
    LearningTask,
    make_task,
)
from benchmarks.straggler_cases.plan import Block
from benchmarks.tasks import Task


@pytest.fixture(autouse=True)
def _one_of_two_ranks(monkeypatch):
    monkeypatch.setattr(learning.dist, "get_rank", lambda: 1)
    monkeypatch.setattr(learning.dist, "get_world_size", lambda: 2)


def learns(num_train=1500, num_test=10):
    data = {}
    for name, number in (("train", num_train), ("test", num_test)):
        data[f"{name}_x"] = torch.rand(number, 1, 8, 8)
        data[f"{name}_y"] = torch.randint(10, (number,))
    return Task.DIGITS, 0.1, data


def block(**options):
    return Block(name="a", arm="skip", ops=30, **options)


def test_the_block_says_what_is_trained():
    assert isinstance(make_task(block(num_bytes=64), None), FlatTask)
    assert type(make_task(block(), learns())) is LearningTask
    assert isinstance(make_task(block(net="37k"), learns()), EvaluatedTask)


def test_a_net_is_evaluated_when_a_multiple_is_reached_or_passed():
    task = make_task(block(net="37k", evaluate_every=10), learns())
    for step in (1, 9, 10, 11, 23, 24, 30):
        task.look(step, seconds=step / 10)
    # The last step is evaluated after the clock has stopped.
    looks = [(look["step"], look["seconds"]) for look in task.curve()]
    assert looks == [(10, 1.0), (23, 2.3), (30, None)]


def test_without_an_interval_only_the_end_is_evaluated():
    task = make_task(block(net="37k"), learns())
    task.look(10, seconds=1.0)
    assert [look["step"] for look in task.curve()] == [30]


def test_accuracy_is_that_of_the_test_pictures():
    told = learns()
    task = make_task(block(net="37k"), told)
    with torch.no_grad():
        told[2]["test_y"].copy_(task.model(told[2]["test_x"]).argmax(dim=1))
        told[2]["test_y"][:4] = (told[2]["test_y"][:4] + 1) % 10
    assert task.curve()[0]["accuracy"] == pytest.approx(0.6)


def test_an_evaluation_passes_over_1000_pictures(monkeypatch):
    task = make_task(block(net="37k"), learns())
    seen = []
    task.model.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    task.curve()
    assert seen == [1000]
