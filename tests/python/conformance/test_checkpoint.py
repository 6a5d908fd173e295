# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""torch.distributed.checkpoint saves from ranks of one group, loads into another."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from aikido_torch.testing import run_ranks
from conformance.training import Net, batch, differences, loss_of


def make(size, seed=None):
    model = Net()
    model.seldom.requires_grad_(False)
    if seed is not None:
        torch.manual_seed(seed)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(model, optimizer, rank, steps):
    for step in steps:
        optimizer.zero_grad()
        loss_of(model(batch(rank, step))).backward()
        optimizer.step()


def whole(model):
    options = StateDictOptions(full_state_dict=True)
    return get_model_state_dict(model, options=options)


def save(rank, size, folder, is_async):
    model, optimizer = make(size)
    train(model, optimizer, rank, range(2))
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))  # noqa: B905
    kept = {name: value.clone() for name, value in whole(model).items()}
    if is_async:
        # It communicates in the background during the training, over a group of its
        # own.
        group = dist.new_group()
        saved = checkpoint.async_save(state, checkpoint_id=folder, process_group=group)
        train(model, optimizer, rank, range(2, 6))
        saved.result(timeout=30)
    else:
        checkpoint.save(state, checkpoint_id=folder)
    return kept if rank == 0 else None


def load(rank, size, folder, kept):
    model, optimizer = make(size, seed=rank + 100)
    parts = get_state_dict(model, optimizer)
    state = dict(zip(("model", "optimizer"), parts))  # noqa: B905
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    full = dict(model.named_parameters())
    wrong = differences(full, kept)
    train(model, optimizer, 0, range(2, 3))
    return wrong, optimizer.state_dict()["state"][0]["step"].item()


@pytest.mark.parametrize("is_async", [False, True])
def test_what_three_ranks_save_two_can_load(tmp_path, is_async):
    folder = str(tmp_path / "saved")
    kept = run_ranks(3, save, folder, is_async)[0]
    assert kept.keys() == dict(Net().named_parameters()).keys()
    assert run_ranks(2, load, folder, kept) == [([], 3)] * 2
