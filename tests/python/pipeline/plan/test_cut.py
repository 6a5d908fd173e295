# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn

from aikido_torch import pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan import _profile


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x))) + x


def make():
    inner = nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Tanh())
    return nn.Sequential(nn.Linear(4, 4), inner, Block(), nn.Linear(4, 2))


def plan_of(ids, times, machines):
    profile = _profile.chain(
        ids=ids,
        forward_ms=times,
        backward_ms=times,
        activation_bytes=[0.0] * len(ids),
        parameter_bytes=[1e9] * len(ids),  # so large that replicas do not pay
    )
    return pipeline.partition(profile, machines=machines, bandwidth=1e6)


def test_the_stages_of_a_profiled_model_compute_what_it_computes():
    model = make()
    profile = pipeline.profile_model(model, torch.randn(3, 4), whole=["2"])
    plan = pipeline.partition(profile, machines=2, bandwidth=1e9, straight=True)
    stages = pipeline.cut(model, plan)
    assert len(stages) == len(plan.stages)
    x = torch.randn(3, 4)
    assert torch.equal(nn.Sequential(*stages)(x), model(x))
    assert len(list(nn.Sequential(*stages).parameters())) == len(
        list(model.parameters())
    )


def test_stages_follow_the_plan():
    model = make()
    plan = plan_of(["0", "1.0", "1.2", "2", "3"], [1.0, 1, 1, 3, 3], 3)
    assert [stage.layers for stage in plan.stages] == [
        ["0", "1.0", "1.2"],
        ["2"],
        ["3"],
    ]
    stages = pipeline.cut(model, plan)
    names = [[name for name, _ in stage.named_children()] for stage in stages]
    # Modules that belong to no layer go with the layer before them.
    assert names == [["0", "1_0", "1_1", "1_2"], ["2"], ["3"]]
    assert stages[1][0] is model[2]


def test_models_that_cannot_be_cut_are_named():
    with pytest.raises(
        ConfigError, match=r"^the model is a Block; only an nn\.Sequent"
    ):
        pipeline.cut(Block(), plan_of(["a"], [1.0], 1))
    with pytest.raises(
        ConfigError, match=r'^the plan has layers of "2" on stages 0 and 1'
    ):
        pipeline.cut(
            make(), plan_of(["0", "1", "2.a", "2.b", "3"], [2.0, 2, 2, 3, 3], 2)
        )
    with pytest.raises(
        ConfigError, match=r'^the plan has layer "9", and the model has no'
    ):
        pipeline.cut(make(), plan_of(["0", "1", "2", "3", "9"], [1.0] * 5, 2))
    with pytest.raises(
        ConfigError, match=r'^the plan has layer "1" on stage 0, after a '
    ):
        pipeline.cut(make(), plan_of(["1", "0", "2", "3"], [6.0, 4, 1, 1], 2))


def test_a_plan_of_a_shorter_model_is_refused():
    def plan_of_prefix(length):
        profile = pipeline.profile_model(
            nn.Sequential(*list(model)[:length]), torch.randn(3, 4), repeats=1
        )
        return pipeline.partition(profile, machines=2, bandwidth=1e9, straight=True)

    model = nn.Sequential(
        *(nn.Linear(4, 4) for _ in range(4)), nn.Tanh(), nn.Linear(4, 4)
    )
    with pytest.raises(
        ConfigError,
        match=r'^the model has "5", which the plan has not: stage 1 would have \d+ byt',
    ):
        pipeline.cut(model, plan_of_prefix(5))
    assert len(pipeline.cut(model, plan_of_prefix(6))) == 2


def test_merged_layers_are_on_one_stage():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)))
    model[3].weight = model[1].weight
    profile = pipeline.profile_model(
        model, torch.randn(3, 4), repeats=1, shared="merge"
    )
    assert len(profile.layers) == 3
    plan = pipeline.partition(profile, machines=3, bandwidth=1e9, straight=True)
    assert [len(stage) for stage in pipeline.cut(model, plan)] == [1, 3, 1]
