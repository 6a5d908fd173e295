# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""All stages on one rank; tests/python/multiproc has pipelines of several ranks."""

import pytest
import torch
from torch import nn

from aikido_torch import pipeline
from aikido_torch.errors import AbortedError, ConfigError
from aikido_torch.pipeline.plan import _profile
from harness.pipelines import batches_of, layered, sgd, squared


def make(stages=3, micro_batches=4, modules=None, **options):
    schedule = pipeline.schedule(
        "interleaved_1f1b",
        stages=stages,
        stages_per_rank=stages,
        micro_batches=micro_batches,
    )
    options = {"schedule": schedule, "optimizer": sgd, "loss_fn": squared} | options
    return pipeline.Pipeline(layered(stages) if modules is None else modules, **options)


def test_a_step_equals_that_of_the_whole_model(group_of_one):
    model = nn.Sequential(*layered(3))
    optimizer = sgd(model.parameters())
    (x, y, _), *_ = batches_of([8])
    with make() as pipe:
        assert sorted(pipe.modules) == sorted(pipe.optimizers) == [0, 1, 2]
        for step in range(3):
            loss = squared(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert pipe.train_step(x, y) == pytest.approx(loss.item(), rel=1e-12)
            assert len(pipe.losses) == 4
            assert pipe.steps == step + 1
        for own, module in zip(pipe.modules.values(), model, strict=True):
            for a, b in zip(own.parameters(), module.parameters(), strict=True):
                torch.testing.assert_close(a, b)


class InPlace(nn.Module):
    """Changes its input in place."""

    def forward(self, x):
        return x.mul_(2)


def test_a_stage_can_change_its_inputs_in_place(group_of_one):
    (x, y, _), *_ = batches_of([8])
    first, *others = layered(3)
    with make(modules=[nn.Sequential(InPlace(), first), *others]) as pipe:
        loss = pipe.train_step(x.clone(), y)
    with make() as pipe:
        assert loss == pipe.train_step(x * 2, y)


def test_stages_can_be_made_on_their_ranks_only(group_of_one):
    modules = layered(2)
    pipe = make(2, modules=[lambda: modules[0], modules[1]])
    assert pipe.modules == dict(enumerate(modules))
    assert pipe.modules[1] is modules[1]
    with pytest.raises(
        ConfigError, match=r"^stage 0: the function made a int; it makes"
    ):
        make(2, modules=[lambda: 3, modules[1]])


def test_an_error_of_a_stage_says_where_and_ends_the_pipeline(group_of_one):
    pipe = make(loss_fn=lambda output, target: 1 / 0)
    (x, y, _), *_ = batches_of([8])
    with pytest.raises(ZeroDivisionError) as raised:
        pipe.train_step(x, y)
    assert raised.value.__notes__ == [
        "stages 0, 1, 2 (rank 0), at F2.0@0 of its schedule"
    ]
    text = (
        r"^stages 0, 1, 2 \(rank 0\) has failed: ZeroDivisionError: division by zero$"
    )
    with pytest.raises(AbortedError, match=text):
        pipe.train_step(x, y)
    with pytest.raises(AbortedError, match=text):
        pipe.save("nowhere")


def test_a_missing_loader_ends_the_pipeline(group_of_one):
    pipe = make()
    text = r"^train got no loader; stages 0, 1, 2 \(rank 0\) needs one\.$"
    with pytest.raises(ConfigError, match=text):
        pipe.train(steps=1)
    with pytest.raises(AbortedError, match="ConfigError: train got no loader"):
        pipe.train(batches_of([8]), steps=1)


def test_a_closed_pipeline_refuses_to_train(group_of_one):
    pipe = make()
    pipe.close()
    pipe.close()
    (x, y, _), *_ = batches_of([8])
    with pytest.raises(
        ConfigError, match=r"^the pipeline was closed; make another one"
    ):
        pipe.train_step(x, y)


def test_a_wrong_type_of_schedule_is_refused():
    with pytest.raises(
        ConfigError, match=r"^schedule is a str; pass what pipeline\.sched"
    ):
        make(schedule="1f1b")


def plan_of(stages):
    each = [1.0] * stages
    profile = _profile.chain(
        forward_ms=each, backward_ms=each, activation_bytes=each, parameter_bytes=each
    )
    return pipeline.partition(profile, machines=stages, bandwidth=1e9, straight=True)


def test_a_plan_must_have_the_stages_of_the_modules(group_of_one):
    make(plan=plan_of(3)).close()
    with pytest.raises(ConfigError, match="plan has 2 stages and there are 3 modules"):
        make(plan=plan_of(2))
    with pytest.raises(ConfigError, match="plan is a list; pass what"):
        make(plan=[1, 2, 3])
