# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Shards of an optimizer on one member; `multiproc/test_elastic.py` has more."""

import itertools

import pytest
import torch
import torch.distributed as dist

from aikido_torch.elastic import _group
from aikido_torch.elastic._roster import Member, Roster
from aikido_torch.elastic._sharded import ShardedOptimizer, Shards, in_shards
from aikido_torch.elastic._stages import Stage
from aikido_torch.errors import AbortedError, ConfigError


def model_of(*sizes):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return torch.nn.Sequential(*layers)


def roster_of(*roles, epoch=1):
    members = [
        Member(number=i, role=role, handle=f"h{i}") for i, role in enumerate(roles, 1)
    ]
    return Roster(epoch=epoch, members=tuple(members))


@pytest.fixture
def alone():
    yield _group.begin_alone(20.0)
    dist.destroy_process_group()


def test_each_parameter_is_in_one_shard_and_the_shards_are_balanced():
    parameters = list(model_of(8, 8, 8, 8, 8).parameters())
    shards = in_shards(parameters, 4)
    assert sorted(id(p) for s in shards for p in s) == sorted(map(id, parameters))
    assert {sum(p.numel() for p in s) for s in shards} == {72}


def test_a_shard_has_one_dtype():
    model = torch.nn.ModuleList([model_of(4, 4), model_of(4, 4).double()])
    shards = in_shards(list(model.parameters()), 2)
    assert [{p.dtype for p in s} for s in shards] == [{torch.float32}, {torch.float64}]


def test_it_is_an_optimizer_for_schedulers_and_steps_like_its_kind():
    plain, model = model_of(3, 2), model_of(3, 2)
    wanted = torch.optim.AdamW(plain.parameters(), lr=0.1)
    sharded = ShardedOptimizer(torch.optim.AdamW, model, lr=0.1, num_shards=2)
    for optimizer, net in ((wanted, plain), (sharded, model)):
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            schedule.step()
    for p, q in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_shards": 0}, "num_shards is 0; it takes a whole number from 1 on"),
        ({"num_shards": 1.5}, "num_shards is 1.5"),
    ],
)
def test_a_wrong_argument_is_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        ShardedOptimizer(torch.optim.SGD, model_of(2, 2), lr=0.1, **options)


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ConfigError, match="no parameter to train"):
        ShardedOptimizer(torch.optim.SGD, torch.nn.Identity(), lr=0.1)


def stepped(optimizer, model):
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def test_a_step_can_be_undone(alone):
    model = model_of(3, 4, 2)
    optimizer = ShardedOptimizer(torch.optim.AdamW, model, lr=0.1, num_shards=3)
    shards = Shards(optimizer, "1")
    shards.follow(roster_of("reliable"))
    assert shards.owned == (0, 1, 2)
    stepped(optimizer, model)
    shards.exchange()
    before = [p.detach().clone() for p in model.parameters()]
    states = [dict(optimizer.state[p]) for p in model.parameters()]
    states = [{k: v.clone() for k, v in state.items()} for state in states]
    undo = shards.keep()
    stepped(optimizer, model)
    assert not torch.equal(before[0], next(model.parameters()))
    undo()
    for p, value, state in zip(model.parameters(), before, states, strict=True):
        assert torch.equal(p, value)
        for key, kept in state.items():
            assert torch.equal(optimizer.state[p][key], kept)


def test_the_stage_follows_from_the_roster():
    optimizer = ShardedOptimizer(torch.optim.SGD, model_of(2, 2), lr=0.1)
    shards = Shards(optimizer, "1")
    roster = roster_of("reliable", "transient", "transient")
    shards.follow(roster)
    assert shards.stage == Stage.TRANSIENT_OWNERS
    assert shards.owned == ()
    assert shards.held == {0, 1}
    assert shards.trainers(roster) == ["1", "2", "3"]


def test_the_copy_becomes_the_owner_without_a_message():
    optimizer = ShardedOptimizer(torch.optim.SGD, model_of(2, 2), lr=0.1)
    shards = Shards(optimizer, "1")
    shards.follow(roster_of("reliable", "transient", "transient"))
    shards.follow(roster_of("reliable", epoch=2))
    assert shards.stage == Stage.RELIABLE_OWNERS
    assert shards.owned == (0, 1)


def test_a_shard_without_a_living_holder_is_lost():
    optimizer = ShardedOptimizer(torch.optim.SGD, model_of(2, 2), lr=0.1)
    shards = Shards(optimizer, "1")
    shards.follow(roster_of("reliable", "reliable"))
    with pytest.raises(AbortedError, match=r"shards \[1\] is lost with its owner"):
        shards.follow(roster_of("reliable", epoch=2))


def test_a_joining_member_begins_without_states():
    model = model_of(3, 2)
    optimizer = ShardedOptimizer(torch.optim.AdamW, model, lr=0.1)
    first = Shards(optimizer, "1")
    first.follow(roster_of("reliable", "transient", "transient"))
    stepped(optimizer, model)
    shards = Shards(optimizer, "4")
    shards.load(first.notes())
    assert shards.placement == first.placement
    assert shards.stage == Stage.TRANSIENT_OWNERS
    assert not optimizer.state
