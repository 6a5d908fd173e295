# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import warnings

import pytest
import torch
from torch import nn

from aikido_torch import pipeline
from aikido_torch.profile import _profiler


class Gate(nn.Module):
    """Computes one of two layers, selected by the value of the input."""

    def __init__(self, choose):
        super().__init__()
        self.choose = choose
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)
        self.threshold = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.left(x) if self.choose(x) else self.right(x)


def model_of(choose):
    return nn.Sequential(nn.Linear(4, 4), Gate(choose), nn.Linear(4, 2))


def measured(model):
    return pipeline.profile_model(
        model, torch.ones(2, 4), repeats=1, warm_up=0, progress=False, whole=[Gate]
    )


@pytest.mark.parametrize(
    ("choose", "what"),
    [
        (lambda x: x.sum() > 0, "bool"),
        (lambda x: x.sum().item() > 0, "item"),
        (lambda x: float(x.max()) > 0, "float"),
        (lambda x: max(x.flatten().tolist()) > 0, "tolist"),
        (lambda x: len(x[x > 0]) > 2, "getitem"),
        (lambda x: len(torch.nonzero(x)) > 2, "nonzero"),
    ],
)
def test_control_flow_that_depends_on_data_gives_a_warning(choose, what):
    with pytest.warns(UserWarning, match=rf"test_reads\.py:\d+ \({what}\)"):
        profile = measured(model_of(choose))
    assert [layer.id for layer in profile.layers] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "model",
    [
        model_of(lambda x: x.shape[0] > 4),
        model_of(lambda x: x[0, 1:].dim() > 4),
        # torch's own code reads its counter of batches.
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)),
    ],
)
def test_other_models_give_no_warning(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measured(model)


def test_reads_of_parameters_give_no_warning():
    model = model_of(lambda x: True)
    model[1].choose = lambda x, gate=model[1]: gate.threshold.item() > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measured(model)


def test_only_some_of_many_places_are_named():
    def choose(x):
        first = bool(x[0, 0] > 0)
        second = bool(x[0, 1] > 0)
        third = bool(x[0, 2] > 0)
        fourth = bool(x[0, 3] > 0)
        return first and second and third and fourth

    with pytest.warns(UserWarning, match="and 1 more"):
        _profiler.measure_calls(
            model_of(choose), torch.ones(2, 4), repeats=1, warm_up=0, progress=False
        )
