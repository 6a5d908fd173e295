# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A model trained by one plan continues with another plan, bit for bit."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

from aikido_torch import pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.runtime._checkpoint import Place, load_stages, save_stage
from aikido_torch.pipeline.runtime._recut import recut
from aikido_torch.pipeline.runtime._stage import StageRun
from harness.pipelines import adam, batches_of, layered, sgd, squared


def stages_of(sizes, seed=1):
    """Stages with layers of one model; each layer keeps its name."""
    layers = layered(sum(sizes), seed)
    found = []
    for size in sizes:
        first = sum(len(stage) for stage in found)
        own = {f"l{first + i}": layers[first + i] for i in range(size)}
        found.append(nn.Sequential(OrderedDict(own)))
    return found


def make(sizes, make_optimizer=adam, **options):
    schedule = pipeline.schedule(
        "interleaved_1f1b",
        stages=len(sizes),
        stages_per_rank=len(sizes),
        micro_batches=4,
    )
    return pipeline.Pipeline(
        stages_of(sizes, **options),
        schedule=schedule,
        optimizer=make_optimizer,
        loss_fn=squared,
    )


def train(pipe, steps):
    for _ in range(steps):
        x, y, _ = batches_of([8], seed=pipe.steps)[0]
        pipe.train_step(x, y)
    return [p.detach().clone() for m in pipe.modules.values() for p in m.parameters()]


@pytest.mark.parametrize("make_optimizer", [sgd, adam])
def test_training_continues_with_another_plan(tmp_path, group_of_one, make_optimizer):
    with make([2, 1, 1], make_optimizer) as pipe:
        train(pipe, 3)
        pipe.save(tmp_path)
        wanted = train(pipe, 3)
    assert recut(tmp_path, stages_of([1, 3], seed=9), before=3) == 3
    with make([1, 3], make_optimizer, seed=9) as pipe:
        assert pipe.restore(tmp_path) == 3
        for own, one in zip(train(pipe, 3), wanted, strict=True):
            assert torch.equal(own, one)
    with make([2, 1, 1], make_optimizer) as pipe:  # the old checkpoint stays
        assert pipe.restore(tmp_path) == 3


def matrices_decay(parameters):
    """The usual groups: no decay for biases. One group may be empty."""
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ],
        lr=0.05,
    )


def rates_by_depth(parameters):
    """One group for each parameter, so that stages differ in the number of groups."""
    return torch.optim.Adam([{"params": [p], "lr": 0.1 / p.dim()} for p in parameters])


@pytest.mark.parametrize(
    ("make_optimizer", "is_given"),
    [(matrices_decay, False), (matrices_decay, True), (rates_by_depth, True)],
)
def test_optimizers_can_have_several_groups(
    tmp_path, group_of_one, make_optimizer, is_given
):
    with make([2, 1, 1], make_optimizer) as pipe:
        train(pipe, 3)
        pipe.save(tmp_path)
        wanted = train(pipe, 3)
    given = {"optimizer": make_optimizer} if is_given else {}
    assert recut(tmp_path, stages_of([1, 3], seed=9), before=3, **given) == 3
    with make([1, 3], make_optimizer, seed=9) as pipe:
        assert pipe.restore(tmp_path) == 3
        for own, one in zip(train(pipe, 3), wanted, strict=True):
            assert torch.equal(own, one)


def test_different_numbers_of_groups_need_the_optimizer(tmp_path):
    save(tmp_path, stages_of([2, 1]), rates_by_depth)
    with pytest.raises(
        ConfigError, match=r"and that of stage 0 has 4; pass optimizer="
    ):
        recut(tmp_path, stages_of([3]), before=2)
    with pytest.raises(ConfigError, match="give them groups of their own"):
        recut(tmp_path, stages_of([3]), before=2, optimizer=adam)


def save(folder, modules, make_optimizer=sgd, lives=None):
    for s, module in enumerate(modules):
        run = StageRun(s, module, make_optimizer=make_optimizer, loss_fn=None)
        life = lives[s] if lives else "a"
        save_stage(Place(folder, s, len(modules)), 7, run, life)


def test_checkpoints_that_cannot_be_recut_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="has no complete checkpoint of 2 stages"):
        recut(tmp_path, stages_of([2]), before=2)
    save(tmp_path / "lives", stages_of([1, 1]), lives="ab")
    with pytest.raises(ConfigError, match="has no complete checkpoint of 2 stages"):
        recut(tmp_path / "lives", stages_of([2]), before=2)
    save(tmp_path / "names", layered(2))
    with pytest.raises(ConfigError, match='several stages of the checkpoint have a "0'):
        recut(tmp_path / "names", stages_of([2]), before=2)
    save(tmp_path / "more", stages_of([2, 1]))
    with pytest.raises(
        ConfigError, match=r'the checkpoint has "l2\.0\.bias", and no st'
    ):
        recut(tmp_path / "more", stages_of([2]), before=2)
    with pytest.raises(
        ConfigError, match=r'^stage 1: "l3\.0\.weight" is .* nothing in'
    ):
        recut(tmp_path / "more", stages_of([3, 1]), before=2)
    rates = iter([0.1, 0.2])
    save(
        tmp_path / "rates",
        stages_of([1, 1]),
        lambda parameters: torch.optim.SGD(parameters, lr=next(rates)),
    )
    with pytest.raises(ConfigError, match=r"^stage 1: its optimizer has the settings"):
        recut(tmp_path / "rates", stages_of([2]), before=2)
    numbers = iter([1, 2])

    def other_groups(parameters):
        at = next(numbers)
        return torch.optim.SGD([{"params": p} for p in (parameters[:at], [])[:at]])

    save(tmp_path / "groups", stages_of([1, 1]), other_groups)
    with pytest.raises(ConfigError, match=r"^stage 1: .* 2 groups .* stage 0 has 1;"):
        recut(tmp_path / "groups", stages_of([2]), before=2)
    assert not list(tmp_path.glob("*/step-*/stage-*-of-1.pt"))


def test_frozen_parameters_keep_their_values_and_have_no_optimizer(tmp_path):
    modules = stages_of([1, 1])
    modules[0].requires_grad_(False)
    save(tmp_path, modules, adam)
    wanted = copy.deepcopy(modules)
    whole = stages_of([2], seed=5)[0]
    whole.l0.requires_grad_(False)
    recut(tmp_path, [whole], before=2)
    run = StageRun(0, whole, make_optimizer=adam, loss_fn=None)
    file = Place(tmp_path, 0, 1).file(7)
    load_stages({0: torch.load(file)}, {0: run})
    for number, module in enumerate(wanted):
        own = getattr(whole, f"l{number}").parameters()
        for a, b in zip(own, module.parameters(), strict=True):
            assert torch.equal(a, b)
