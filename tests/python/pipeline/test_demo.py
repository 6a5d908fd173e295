# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tasks of the demo; tests/python/multiproc/test_pipeline_demo.py runs it."""

import itertools

import pytest
import torch

from aikido_torch.pipeline import demo


@pytest.mark.parametrize("name", demo.TASKS)
def test_the_data_of_a_task_fit_its_stages(name):
    task = demo.TASKS[name]
    (inputs, targets), (test_inputs, _) = task.data()
    assert len(inputs) == len(targets) > len(test_inputs) > 100
    stages = task.stages()
    assert (len(stages), sum(task.replicas)) == (len(task.replicas), 3)
    loss = demo.loss_of(torch.nn.Sequential(*stages)(inputs[:4]), targets[:4])
    assert 1 < loss.item() < 10


def test_batches_contain_all_rows_in_a_new_order_each_time():
    data = torch.arange(40), torch.arange(40) * 2
    batches = list(itertools.islice(demo.batches_of(data, seed=1), 6))
    assert [len(x) for x, _ in batches] == [16, 16, 8] * 2
    passes = [torch.cat([x for x, _ in batches[i : i + 3]]) for i in (0, 3)]
    assert not torch.equal(*passes)
    for rows in passes:
        assert torch.equal(rows.sort().values, data[0])
    assert all(torch.equal(x * 2, y) for x, y in batches)
