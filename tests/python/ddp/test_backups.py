# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Without other ranks; tests/python/multiproc/test_backup.py has them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from aikido_torch import ddp
from aikido_torch.ddp._backups import (
    Backups,
    check_sampler,
    late_in,
    layout_of_sampler,
)
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, BackupSampler, SkipStraggler, seed_of

SHADOW = ActiveBackup(backups=1)


def sampler_of(rank, policy=SHADOW, **options):
    return BackupSampler(range(40), 4, policy, num_ranks=4, rank=rank, **options)


def backups_of(rank, policy=SHADOW):
    return Backups(sampler_of(rank, policy), policy, (rank, 4))


def outcome(skipped=(), stand_ins=()):
    return SimpleNamespace(skipped=list(skipped), stand_ins=list(stand_ins))


def test_who_was_late_is_who_was_missing_or_stood_in_for():
    assert late_in(outcome()) == set()
    assert late_in(outcome([1], [(0, 3), (2, 4)])) == {0, 1, 2}


def test_calls_get_the_data_shard_of_the_batch():
    for rank, expected in ((0, -1), (2, -1), (3, 0)):
        backups = backups_of(rank)
        next(iter(backups.sampler))
        assert backups.own_data_shard(0) == expected
    backups = backups_of(3)
    with pytest.raises(ConfigError, match="no batch was taken for step 0 on rank 3"):
        backups.own_data_shard(0)
    # What is replayed is given to nobody.
    assert [backups.replayed_data_shard(step) for step in range(4)] == [0, 1, 2, 0]
    assert backups_of(1).replayed_data_shard(1) == -1
    substitute = backups_of(3, ActiveBackup(backups=1, mode="substitute"))
    next(iter(substitute.sampler))
    assert substitute.own_data_shard(0) == -1
    assert substitute.replayed_data_shard(0) == -1
    assert Backups(None, SkipStraggler(), (3, 4)).own_data_shard(0) == -1


@pytest.mark.parametrize(
    ("rank", "policy", "is_sum", "expected"),
    [
        (0, SHADOW, True, 2.0),
        (3, SHADOW, True, 0.0),
        (3, ActiveBackup(backups=1, mode="substitute"), True, 0.0),
        (3, ActiveBackup(backups=1, mode="n_plus_b"), False, 6.0),
        (3, SkipStraggler(), False, 6.0),
    ],
)
def test_in_a_strict_step_each_data_shard_counts_once(rank, policy, is_sum, expected):
    buffer = torch.full((3,), 6.0)
    assert backups_of(rank, policy).prepare_strict(buffer) == is_sum
    assert buffer.tolist() == [expected] * 3


def test_the_first_forward_of_a_step_draws_by_its_seed():
    backups, net = backups_of(1), nn.Dropout(0.5)
    batches = iter(backups.sampler)
    next(batches)
    seeds = []
    for is_training, step in ((True, 0), (True, 0), (False, 1)):
        torch.manual_seed(3)
        backups.begin_forward(step, net.train(is_training))
        seeds.append(torch.initial_seed())
    assert seeds == [seed_of(0, 0, 0, 1), 3, 3]
    next(batches)
    backups.end_step(0, is_own=True)
    with torch.no_grad():
        backups.begin_forward(1, net.train())
    assert torch.initial_seed() == 3
    backups.begin_forward(1, net)
    assert torch.initial_seed() == seed_of(0, 0, 1, 1)


def test_steps_and_outcomes_are_told_to_the_sampler():
    backups = backups_of(3)
    backups.end_step(0, is_own=True)
    backups.add(0, outcome([2], [(1, 3)]))
    backups.add(0, outcome())
    assert backups.sampler.choice(1) == {3: 1}
    assert backups.sampler.state_dict() == {"late": [(0, (1, 2))]}
    assert backups.states() == {"sampler of register": backups.sampler}
    nothing = Backups(None, SkipStraggler(), (0, 4))
    nothing.end_step(0, is_own=True)
    nothing.add(0, outcome([2]))
    assert nothing.states() == {}


@pytest.mark.parametrize(
    ("sampler", "policy", "changed", "text"),
    [
        (None, SHADOW, {}, "sampler is None, which does not know the data shards; w"),
        (
            DistributedSampler(range(40), num_replicas=4, rank=0),
            SHADOW,
            {},
            "sampler is a DistributedSampler, which does not know the data shards",
        ),
        (range(3), SkipStraggler(), {}, "sampler is a range, which does not know"),
        (
            sampler_of(0),
            ActiveBackup(backups=2),
            {},
            "made with policy ActiveBackup.*backups=1.*but here it is .*backups=2",
        ),
        (sampler_of(0), SHADOW, {"place": (1, 4)}, "with rank 0, but here it is 1"),
        (sampler_of(0), SHADOW, {"place": (0, 5)}, "with num_ranks 4, but here it is"),
        (
            sampler_of(0, batches_per_step=2),
            SHADOW,
            {},
            "with batches_per_step 2, but here it is 1",
        ),
        (
            sampler_of(0),
            SHADOW,
            {"late": "carry"},
            'late is "carry" with a policy ActiveBackup: what a primary adds',
        ),
    ],
)
def test_what_would_count_a_batch_for_the_wrong_data_shard_is_refused(
    sampler, policy, changed, text
):
    arguments = {"place": (0, 4), "batches_per_step": 1, "late": "drop"} | changed
    with pytest.raises(ConfigError, match=text):
        check_sampler(sampler, policy, **arguments)


def test_who_has_no_stand_ins_needs_no_sampler():
    for policy in (
        SkipStraggler(),
        ActiveBackup(backups=0),
        ActiveBackup(backups=2, mode="n_plus_b"),
    ):
        check_sampler(None, policy, place=(0, 4), batches_per_step=1, late="carry")
    check_sampler(sampler_of(0), SHADOW, place=(0, 4), batches_per_step=1, late="drop")


def test_samplers_that_differ_are_told_apart():
    one = layout_of_sampler(sampler_of(0))
    assert one == layout_of_sampler(sampler_of(3))
    for other in (
        sampler_of(0, seed=1),
        sampler_of(0, lookahead=4),
        BackupSampler(range(41), 4, SHADOW, num_ranks=4, rank=0),
        BackupSampler(range(40), 5, SHADOW, num_ranks=4, rank=0),
        None,
        range(3),
    ):
        assert layout_of_sampler(other) != one


def test_a_handle_of_one_rank_seeds_its_steps(group_of_one):
    policy = ActiveBackup(backups=0)
    sampler = BackupSampler(range(12), 2, policy, seed=4)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = ddp.register(model, optimizer=optimizer, policy=policy, sampler=sampler)
    for step, _ in enumerate(sampler):
        model(torch.ones(3, 4)).sum().backward()
        assert torch.initial_seed() == seed_of(4, 0, step, 0)
    assert handle.steps == 6
    with pytest.raises(
        ConfigError, match=r"step 6 begins on rank 0.* not in this epoch"
    ):
        model(torch.ones(3, 4))
