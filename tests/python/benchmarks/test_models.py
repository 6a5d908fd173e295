# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.models import make_model
from benchmarks.tasks import ALPHABET, CONTEXT, RECIPES, Task, read_text


@pytest.mark.parametrize("task", Task)
def test_data_fit_the_model_and_repeat_by_seed(tmp_path, task):
    recipe = RECIPES[task]
    found = []
    for i, seed in enumerate((1, 1, 2)):
        recipe.save(tmp_path / f"{i}.npz", seed)
        found.append(dict(np.load(tmp_path / f"{i}.npz")))
    first, again, other = found
    assert all((first[k] == again[k]).all() for k in first)
    assert not (first["train_y"] == other["train_y"]).all()
    assert len(first["train_x"]) == len(first["train_y"]) > len(first["test_y"]) > 100
    outputs = make_model(task)(torch.from_numpy(first["test_x"][:5]))
    assert outputs.shape[0] == 5
    assert first["train_y"].max() < outputs.shape[1]


@pytest.mark.parametrize("task", Task)
def test_the_model_learns_its_data(tmp_path, task):
    recipe = RECIPES[task]
    recipe.save(tmp_path / "data.npz", 0)
    data = {
        name: torch.from_numpy(array)
        for name, array in np.load(tmp_path / "data.npz").items()
    }
    torch.manual_seed(0)
    model = make_model(task)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=recipe.learning_rate, momentum=0.9
    )

    def test_loss():
        with torch.no_grad():
            outputs = model(data["test_x"][:500])
            return nn.functional.cross_entropy(outputs, data["test_y"][:500]).item()

    before = test_loss()
    for step in range(60):
        part = slice(32 * step % 1000, 32 * step % 1000 + 32)
        optimizer.zero_grad()
        outputs = model(data["train_x"][part])
        nn.functional.cross_entropy(outputs, data["train_y"][part]).backward()
        optimizer.step()
    assert test_loss() < 0.85 * before


def test_no_context_of_the_text_is_in_both_parts(tmp_path):
    RECIPES[Task.TEXT].save(tmp_path / "text.npz", 0)
    data = np.load(tmp_path / "text.npz")
    text = read_text()
    assert set(np.unique(text)) <= set(range(len(ALPHABET)))
    end_of_training = len(data["train_y"]) + CONTEXT
    beginning_of_test = np.flatnonzero(
        (
            np.lib.stride_tricks.sliding_window_view(text, CONTEXT) == data["test_x"][0]
        ).all(axis=1)
    )[-1]
    assert end_of_training <= beginning_of_test
