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
from aikido_torch.data import BackupSampler, SeededDataset, seed_of
from aikido_torch.data._backups import (
    Backups,
    check_sampler,
    late_in,
    layout_of_sampler,
)
from aikido_torch.errors import ConfigError
from aikido_torch.recovery._agreement import first_difference
from aikido_torch.straggler import ActiveBackup, SkipStraggler

SHADOW = ActiveBackup(backups=1)
# Valid arguments of check_sampler.
ARGUMENTS = {"place": (0, 4), "batches_per_step": 1, "late": "drop", "state": {}}


def sampler_of(rank, policy=SHADOW, **options):
    return BackupSampler(range(40), 4, policy, num_ranks=4, rank=rank, **options)


def backups_of(rank, policy=SHADOW):
    return Backups(sampler_of(rank, policy), policy, (rank, 4))


def outcome(skipped=(), stand_ins=(), out=()):
    return SimpleNamespace(
        skipped=list(skipped), stand_ins=list(stand_ins), out=list(out)
    )


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
    # A replayed step needs a data shard, although this rank contributes nothing.
    assert [backups.replayed_data_shard(step) for step in range(4)] == [0, 1, 2, 0]
    assert backups_of(1).replayed_data_shard(1) == -1
    # A backup that was excluded replays steps before it is included again.
    backups.add(0, outcome(out=[3]))
    assert [backups.replayed_data_shard(step) for step in range(4)] == [0, 0, 2, 0]
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


class _Forwards:
    """Forwards of a model on rank 1; `seed` returns the seed that a forward used, or
    None.
    """

    def __init__(self):
        self.backups, self.net = backups_of(1), nn.Dropout(0.5)
        self.batches = iter(self.backups.sampler)
        self.step = -1

    def begin(self):
        """The loader takes the batch of the next step."""
        if self.step >= 0:
            self.backups.begin_backward(self.step)
            self.backups.end_step(self.step, is_own=True)
        self.step += 1
        next(self.batches)

    def seed(self, step, *, train):
        torch.manual_seed(3)
        self.backups.begin_forward(step, self.net.train(train))
        found = torch.initial_seed()
        return None if found == 3 else found


def test_the_first_forward_of_a_step_draws_by_its_seed():
    forwards = _Forwards()
    for step in range(2):
        forwards.begin()
        assert forwards.seed(step, train=True) == seed_of(0, 0, step, 1)
        assert forwards.seed(step, train=True) is None
        assert forwards.seed(step, train=False) is None


def test_a_forward_without_gradients_is_no_part_of_a_step():
    forwards = _Forwards()
    with torch.no_grad():
        # Before the first batch and after it: otherwise it would be refused or counted.
        assert forwards.seed(0, train=True) is None
        forwards.begin()
        assert forwards.seed(0, train=True) is None
        assert forwards.seed(0, train=False) is None
    with torch.inference_mode():
        assert forwards.seed(0, train=True) is None
    assert forwards.seed(0, train=True) == seed_of(0, 0, 0, 1)


def test_a_model_that_is_trained_in_eval_draws_by_the_seeds_of_its_steps():
    forwards = _Forwards()
    for step in range(3):
        forwards.begin()
        assert forwards.seed(step, train=False) == seed_of(0, 0, step, 1)
        assert forwards.seed(step, train=False) is None
    forwards.begin()
    # The mode may change within a step. Earlier random numbers belonged to an
    # evaluation.
    assert forwards.seed(3, train=False) == seed_of(0, 0, 3, 1)
    assert forwards.seed(3, train=True) == seed_of(0, 0, 3, 1)
    assert forwards.seed(3, train=False) is None


def test_a_look_at_other_data_in_eval_is_no_step_and_one_with_a_backward_is_refused():
    forwards = _Forwards()
    assert forwards.seed(0, train=False) is None
    with pytest.raises(
        ConfigError, match=r"step 0 begins on rank 1, .* has taken 0; expected 1, with"
    ):
        forwards.backups.begin_backward(0)
    forwards.begin()
    assert forwards.seed(0, train=False) is not None
    forwards.backups.begin_backward(0)
    Backups(None, SkipStraggler(), (1, 4)).begin_backward(0)


def test_steps_and_outcomes_are_told_to_the_sampler():
    backups = backups_of(3)
    backups.end_step(0, is_own=True)
    backups.add(0, outcome([2], [(1, 3)]))
    backups.add(0, outcome())
    assert backups.sampler.choice(1) == {3: 1}
    (history,) = backups.states().values()
    assert history.state_dict() == {"late": [(0, (1, 2))], "out": []}
    # No rank was late, and one rank is excluded.
    backups.add(1, outcome(out=[2]))
    assert backups.sampler.choice(2) == {3: 2}
    assert history.state_dict()["out"] == [(1, (2,))]
    nothing = Backups(None, SkipStraggler(), (0, 4))
    nothing.end_step(0, is_own=True)
    nothing.add(0, outcome([2]))
    assert nothing.states() == {}


def test_the_batches_of_steps_are_those_of_the_sampler_if_there_is_one():
    assert backups_of(0).batches_in(2, 5, per_step=1) == 3
    nothing = Backups(None, SkipStraggler(), (0, 4))
    assert nothing.batches_in(2, 5, per_step=2) == 6
    # Four batches: each epoch has two steps, of three batches and of one.
    sampler = sampler_of(0, batches_per_step=3)
    backups = Backups(sampler, SHADOW, (0, 4))
    assert len(sampler) == 4
    assert backups.batches_in(1, 4, per_step=3) == 5


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
        (
            sampler_of(0),
            SHADOW,
            {"state": {"data": sampler_of(0)}},
            r"state\['data'\] is a BackupSampler; .*: leave it out of state",
        ),
    ],
)
def test_what_would_count_a_batch_for_the_wrong_data_shard_is_refused(
    sampler, policy, changed, text
):
    with pytest.raises(ConfigError, match=text):
        check_sampler(sampler, policy, **ARGUMENTS | changed)


def test_who_has_no_stand_ins_needs_no_sampler():
    for policy in (
        SkipStraggler(),
        ActiveBackup(backups=0),
        ActiveBackup(backups=2, mode="n_plus_b"),
    ):
        check_sampler(None, policy, **ARGUMENTS | {"late": "carry"})
    check_sampler(sampler_of(0), SHADOW, **ARGUMENTS)


def stopped_sampler(rank, late=()):
    """A sampler that was stopped after three steps of epoch 2, and loaded."""
    sampler = sampler_of(rank)
    sampler.set_epoch(2)
    for step, _ in zip(range(3), sampler, strict=False):
        sampler.record(step, late)
    resumed = sampler_of(rank)
    resumed.load_state_dict(sampler.state_dict())
    return resumed


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("seed", lambda: sampler_of(1, seed=1)),
        ("lookahead", lambda: sampler_of(1, lookahead=4)),
        ("shuffle", lambda: sampler_of(1, shuffle=False)),
        ("drop_last", lambda: sampler_of(1, drop_last=True)),
        ("policy", lambda: sampler_of(1, ActiveBackup(backups=1, floor_ms=7))),
        (
            "num_samples",
            lambda: BackupSampler(range(41), 4, SHADOW, num_ranks=4, rank=1),
        ),
        (
            "batch_size",
            lambda: BackupSampler(range(40), 5, SHADOW, num_ranks=4, rank=1),
        ),
        (
            "dataset.seed",
            lambda: BackupSampler(
                SeededDataset(range(40), seed=5), 4, SHADOW, num_ranks=4, rank=1
            ),
        ),
        # Some ranks have not loaded the state of the others.
        ("epoch", lambda: stopped_sampler(1)),
    ],
)
def test_samplers_that_differ_are_told_apart(name, other):
    layouts = [layout_of_sampler(s) for s in (sampler_of(0), other())]
    values = [layout[f"sampler.{name}"] for layout in layouts]
    assert first_difference(layouts) == (
        f"register: sampler differs between ranks: sampler.{name} is {values[0]} on "
        f"rank 0 but {values[1]} on rank 1; give all ranks the same sampler."
    )


def test_samplers_that_go_on_elsewhere_are_told_apart():
    one = layout_of_sampler(stopped_sampler(0))
    assert one == layout_of_sampler(stopped_sampler(3))
    assert one["sampler.steps"] == "3"
    assert one != layout_of_sampler(stopped_sampler(1, late=[2]))
    fresh = layout_of_sampler(sampler_of(0))
    assert fresh == layout_of_sampler(sampler_of(3))
    for nothing in (None, range(3)):
        assert layout_of_sampler(nothing) != fresh


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


class _Step:
    """One step of a handle; returns its seed."""

    def __init__(self, sampler):
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))
        self.model = DistributedDataParallel(self.net)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.handle = ddp.register(
            self.model,
            optimizer=optimizer,
            policy=ActiveBackup(backups=0),
            sampler=sampler,
        )

    def __call__(self):
        torch.manual_seed(3)
        self.model(torch.ones(3, 4)).sum().backward()
        return torch.initial_seed()


def test_a_handle_goes_on_where_its_sampler_does(group_of_one):
    def make():
        return BackupSampler(range(12), 2, ActiveBackup(backups=0), seed=4)

    step = _Step(sampler := make())
    whole = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in sampler:
            whole.append((step.handle.steps, batch, step()))
            if len(whole) == 8:
                state = sampler.state_dict()
    sampler = make()
    sampler.load_state_dict(state)
    step = _Step(sampler)
    assert step.handle.steps == 8
    found = []
    for epoch in range(sampler.epoch, 2):
        sampler.set_epoch(epoch)
        found += [(step.handle.steps, batch, step()) for batch in sampler]
    assert found == whole[8:]
    assert [counters.step for counters in step.handle.by_step] == [8, 9, 10, 11]
    # DDP builds its final buckets again.
    assert [len(o.shards) for o in step.handle.outcomes] == [0, 0, 1, 1]


def test_a_model_in_eval_is_trained_and_looked_at(group_of_one):
    sampler = BackupSampler(range(12), 2, ActiveBackup(backups=0), seed=4)
    step = _Step(sampler)
    step.model.eval()
    for number, _ in enumerate(sampler):
        assert step() == seed_of(4, 0, number, 0)
        # Other data, in a loop that lacks no_grad.
        torch.manual_seed(3)
        step.model(torch.ones(1, 4))
        assert torch.initial_seed() == 3
    with pytest.raises(Exception, match=r"step 6 begins on rank 0.* not in this epoch"):
        step()
