# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Batches of all ranks in one process; tests/python/multiproc/test_backup.py trains."""

import io
import itertools
import json
import re
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from aikido_torch.data import BackupSampler, SeededDataset
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, SkipStraggler


def samplers(num_ranks, policy, dataset, batch_size=3, **options):
    return [
        BackupSampler(
            dataset, batch_size, policy, num_ranks=num_ranks, rank=rank, **options
        )
        for rank in range(num_ranks)
    ]


def shadows(num_primaries, num_backups=1, *, size=40, **options):
    policy = ActiveBackup(backups=num_backups)
    return samplers(num_primaries + num_backups, policy, range(size), **options)


def batches_of(sampler, num_batches, *, late=lambda step: ()):
    """Batches of the next steps of this rank; `late(step)` gives the late ranks."""
    begin = sampler._lateness.steps
    found = []
    for step, batch in zip(range(begin, begin + num_batches), sampler, strict=False):
        found.append(batch)
        sampler.record(step, late(step))
    return found


def chunks(indices, size):
    return [indices[i : i + size] for i in range(0, len(indices), size)]


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 60),
    num_primaries=st.integers(1, 6),
    num_backups=st.integers(0, 6),
    batch_size=st.integers(1, 9),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=st.integers(0, 5),
    epoch=st.integers(0, 3),
)
def test_a_primary_has_the_batches_of_a_distributed_sampler(
    size, num_primaries, num_backups, batch_size, shuffle, drop_last, seed, epoch
):
    if drop_last:
        size = max(size, num_primaries)
    num_backups = min(num_backups, num_primaries)
    options = {"shuffle": shuffle, "drop_last": drop_last, "seed": seed}
    found = shadows(
        num_primaries, num_backups, size=size, batch_size=batch_size, **options
    )
    for rank in range(num_primaries):
        theirs = DistributedSampler(
            range(size), num_replicas=num_primaries, rank=rank, **options
        )
        theirs.set_epoch(epoch)
        found[rank].set_epoch(epoch)
        assert len(found[rank]) == len(chunks(list(theirs), batch_size))
        assert list(found[rank]) == chunks(list(theirs), batch_size)


@st.composite
def _trainings(draw):
    num_primaries = draw(st.integers(1, 6))
    num_backups = draw(st.integers(1, num_primaries))
    primaries = st.integers(0, num_primaries - 1)
    late = draw(st.lists(st.sets(primaries), min_size=40, max_size=40))
    batches_per_step = draw(st.integers(1, 3))
    lookahead = draw(st.integers(0, 6))
    mode = draw(st.sampled_from(["shadow", "replicate"]))
    if mode == "replicate":
        num_backups = num_primaries
    return num_primaries, num_backups, late, batches_per_step, lookahead, mode


def train(group, late, *, batches_per_step, lookahead, num_epochs=2, num_steps=1000):
    """Trains all ranks in step from their present step, with loaders that prefetch.

    Returns for each rank a list of (step, data shard, place, indices, seed).
    """
    done = [[] for _ in group]
    step = group[0].steps
    for epoch in range(group[0].epoch, num_epochs):
        loaders = []
        for sampler in group:
            sampler.set_epoch(epoch)
            loaders.append(_ahead(sampler, lookahead))
        while step < num_steps:
            of_step = [
                list(itertools.islice(loader, batches_per_step)) for loader in loaders
            ]
            if not of_step[0]:
                break
            for rank, (sampler, batches) in enumerate(zip(group, of_step, strict=True)):
                seed = sampler.begin_step(step)
                data_shard = sampler.shard_of(step)
                for part, indices in enumerate(batches):
                    done[rank].append((step, data_shard, (step, part), indices, seed))
            for sampler in group:
                sampler.record(step, late[step % len(late)])
            step += 1
    return done


def _ahead(sampler, lookahead):
    """Takes batches before their use, like a DataLoader with processes."""
    taken = iter(sampler)
    ready = [b for b in (next(taken, None) for _ in range(lookahead)) if b is not None]
    while True:
        following = next(taken, None)
        if following is not None:
            ready.append(following)
        if not ready:
            return
        yield ready.pop(0)


@settings(max_examples=60, deadline=None)
@given(_trainings(), st.integers(20, 70))
def test_the_batch_of_a_backup_is_that_of_the_primary_it_shadows(training, size):
    num_primaries, num_backups, late, batches_per_step, lookahead, mode = training
    group = samplers(
        num_primaries + num_backups,
        ActiveBackup(backups=num_backups, mode=mode),
        range(size),
        lookahead=lookahead,
        batches_per_step=batches_per_step,
    )
    done = train(group, late, batches_per_step=batches_per_step, lookahead=lookahead)
    of_primary = {
        (data_shard, place): batch
        for rank in range(num_primaries)
        for _, data_shard, place, batch, _ in done[rank]
    }
    covered = {}
    for backup in range(num_primaries, num_primaries + num_backups):
        for step, data_shard, place, batch, _ in done[backup]:
            assert batch == of_primary[data_shard, place]
            covered.setdefault(step, {}).setdefault(backup, set()).add(data_shard)
    for step, by_backup in covered.items():
        # All batches of a step belong to one data shard, and no data shard has two
        # backups.
        assert all(len(data_shards) == 1 for data_shards in by_backup.values())
        assert len({d for s in by_backup.values() for d in s}) == num_backups
        # All ranks agree on the choice.
        told = {frozenset(s.choice(step).items()) for s in group}
        assert len(told) == 1
        assert dict(*told) == {b: min(s) for b, s in by_backup.items()}


def test_a_suspect_is_shadowed_after_the_prefetched_batches():
    for lookahead, batches_per_step, first in ((0, 1, 4), (4, 1, 8), (4, 3, 6)):
        group = shadows(
            4, size=300, lookahead=lookahead, batches_per_step=batches_per_step
        )
        late = [()] * 3 + [(2,)] + [()] * 96
        done = train(
            group,
            late,
            batches_per_step=batches_per_step,
            lookahead=lookahead,
            num_epochs=1,
        )
        steps = {step: data_shard for step, data_shard, *_ in done[4]}
        last = max(steps)
        expected = {
            step: 2 if first <= step < first + 16 else step % 4
            for step in range(last + 1)
        }
        assert steps == expected, (lookahead, batches_per_step)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 5),
    st.data(),
    st.integers(0, 4),
    st.sampled_from([40, 48, 61]),
)
def test_an_epoch_is_covered_once_even_if_a_primary_dies(
    num_primaries, data, lookahead, size
):
    group = shadows(num_primaries, size=size, batch_size=2, lookahead=lookahead)
    num_batches = len(group[0])
    victim = data.draw(st.integers(0, num_primaries - 1))
    death = data.draw(st.integers(0, num_batches - 1))
    alive = set(range(num_primaries + 1)) - {victim}
    counted, lost = {}, set()
    step = 0
    for epoch in range(3):
        loaders = {}
        for rank in range(num_primaries + 1):
            group[rank].set_epoch(epoch)
            loaders[rank] = _ahead(group[rank], lookahead)
        for batch in range(num_batches):
            is_dead = step >= death
            given = {}
            for rank in alive if is_dead else alive | {victim}:
                indices = next(loaders[rank])
                group[rank].begin_step(step)
                data_shard = group[rank].shard_of(step)
                # The first copy counts. The copy of the backup is needed only if the
                # primary is dead.
                if data_shard == rank or (is_dead and data_shard == victim):
                    assert data_shard not in given
                    given[data_shard] = indices
            for data_shard, indices in given.items():
                counted[epoch, data_shard, batch] = indices
            out = {victim} if is_dead else set()
            lost |= {(epoch, batch) for _ in [0] if is_dead and victim not in given}
            for rank in alive:
                group[rank].record(step, out, out)
            choices = [group[rank].choice(step + 1) for rank in alive]
            assert all(choice == choices[0] for choice in choices)
            step += 1
    # Batches without a backup are close to the death, and the report names them.
    assert len(lost) <= lookahead + 1
    assert all(epoch * num_batches + b <= death + lookahead for epoch, b in lost)
    for epoch in range(3):
        found = Counter(
            index for (e, *_), b in counted.items() if e == epoch for index in b
        )
        left_out = Counter(
            index
            for e, b in lost
            if e == epoch
            for index in _batch(group, e, victim, b)
        )
        whole = Counter(
            index
            for rank in range(num_primaries)
            for index in _theirs(size, num_primaries, rank, epoch)
        )
        assert found + left_out == whole
        assert set(whole) == set(range(size))


def _theirs(size, num_primaries, rank, epoch):
    sampler = DistributedSampler(range(size), num_replicas=num_primaries, rank=rank)
    sampler.set_epoch(epoch)
    return list(sampler)


def _batch(group, epoch, data_shard, batch):
    size, num_primaries = len(group[0].dataset), group[0].num_primaries
    return chunks(_theirs(size, num_primaries, data_shard, epoch), 2)[batch]


def test_a_substitute_has_batches_of_the_whole_dataset_in_its_own_order():
    policy = ActiveBackup(backups=2, mode="substitute")
    group = samplers(6, policy, range(40), batch_size=5)
    found = [[i for batch in s for i in batch] for s in group]
    assert sorted(i for part in found[:4] for i in part) == list(range(40))
    assert all(len(part) == 10 and len(set(part)) == 10 for part in found[4:])
    assert found[4] != found[5]
    assert max(found[4]) - min(found[4]) > 20
    assert [s.shard_of(0) for s in group] == [0, 1, 2, 3, None, None]
    assert group[0].choice(0) == group[4].choice(0) == {}
    before = found[4]
    group[4].set_epoch(1)
    assert [i for batch in group[4] for i in batch] != before


def test_substitutes_draw_their_own_random_numbers():
    group = samplers(5, ActiveBackup(backups=2, mode="substitute"), range(40))
    for sampler in group:
        next(iter(sampler))
    assert len({sampler.begin_step(0) for sampler in group}) == 5


@pytest.mark.parametrize(
    "policy",
    [
        ActiveBackup(backups=2, mode="n_plus_b"),
        ActiveBackup(backups=0),
        SkipStraggler(),
    ],
)
def test_without_backups_of_data_shards_all_ranks_are_primaries(policy):
    group = samplers(5, policy, range(40))
    for rank, sampler in enumerate(group):
        theirs = DistributedSampler(range(40), num_replicas=5, rank=rank)
        assert list(sampler) == chunks(list(theirs), 3)
        assert not sampler.is_backup
        assert sampler.shard_of(7) == rank
        assert sampler.choice(7) == {}


# ---- with a DataLoader -------------------------------------------------------------


class _Noisy(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        noise = torch.rand(4) + float(np.random.rand())
        return torch.tensor([float(index)]), noise


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 1, "prefetch_factor": 3},
        {"num_workers": 2, "prefetch_factor": 2},
        {"num_workers": 2, "persistent_workers": True},
    ],
)
def test_loaders_of_a_primary_and_its_backup_have_the_same_bits(options):
    lookahead = options.get("num_workers", 0) * options.get("prefetch_factor", 2)
    dataset = SeededDataset(_Noisy(), seed=3)
    group = samplers(
        3, ActiveBackup(backups=1), dataset, batch_size=4, lookahead=lookahead
    )
    loaders = [DataLoader(dataset, batch_sampler=s, **options) for s in group]
    shadowed, step = Counter(), 0
    for epoch in range(2):
        for sampler in group:
            sampler.set_epoch(epoch)
        for batches in zip(*loaders, strict=True):
            seeds = [sampler.begin_step(step) for sampler in group]
            data_shard = group[2].shard_of(step)
            assert seeds[2] == seeds[data_shard]
            assert seeds[0] != seeds[1]
            for own, primarys in zip(batches[2], batches[data_shard], strict=True):
                assert torch.equal(own, primarys)
            shadowed[data_shard] += 1
            for sampler in group:
                sampler.record(step, [1] if step == 2 else [])
            step += 1
    assert step == 12
    assert shadowed[1] > shadowed[0] > 0
    assert dataset.epoch == 1


def test_dropout_of_a_backup_equals_that_of_its_primary():
    def gradient(sampler, step):
        torch.manual_seed(5)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        torch.manual_seed(sampler.begin_step(step))
        net(torch.ones(3, 4)).sum().backward()
        return torch.cat([p.grad.flatten() for p in net.parameters()])

    group = shadows(2)
    loaders = [iter(sampler) for sampler in group]
    for step in range(3):
        for loader in loaders:
            next(loader)
        found = [gradient(sampler, step) for sampler in group]
        data_shard = group[2].shard_of(step)
        assert torch.equal(found[2], found[data_shard])
        assert not torch.equal(found[0], found[1])
        for sampler in group:
            sampler.record(step)


def test_a_prefetching_loader_without_lookahead_is_refused():
    group = shadows(2)
    loader = _ahead(group[2], 2)
    with pytest.raises(
        ConfigError,
        match="the batch of step 1 is taken on rank 2 while 0 steps are over, and look"
        r"ahead is 0 batches: give lookahead=num_workers \* prefetch_factor",
    ):
        next(loader)
    # A primary's batches depend on no choice, but its place is checked all the same.
    next(_ahead(group[0], 2))
    with pytest.raises(
        ConfigError, match=r"the loader has taken 3; expected 1, with .*lookahead=0"
    ):
        group[0].begin_step(0)


# ---- a rank that was late ----------------------------------------------------------


def test_a_late_rank_finds_its_place_after_it_skips_batches():
    group = shadows(2, size=40, batch_size=2)
    for sampler in group:
        batches = iter(sampler)
        next(batches)
        sampler.begin_step(0)
        sampler.record(0)
        # The other ranks did steps 1 to 4 without this rank.
        for step in range(1, 5):
            sampler.record(step, [1], is_own=False)
        next(batches)
        with pytest.raises(
            ConfigError,
            match=r"step 5 begins on rank ., .* has taken 2; expected 6.*pass over",
        ):
            sampler.begin_step(5)
        for _ in range(4):
            next(batches)
        sampler.begin_step(5)
    assert group[2].shard_of(5) == 1


def test_batches_to_skip_can_reach_into_the_next_epoch():
    group = shadows(2, size=24, batch_size=2)
    assert len(group[0]) == 6
    for sampler in group:
        batches = iter(sampler)
        for step in range(4):
            next(batches)
            sampler.record(step)
        # The other ranks did steps 4 to 8 without this rank. It skips the last two
        # batches of epoch 0 and three batches of epoch 1.
        for step in range(4, 9):
            sampler.record(step, [0], is_own=False)
        assert len(list(batches)) == 2
        sampler.set_epoch(1)
        batches = iter(sampler)
        taken = [next(batches) for _ in range(4)]
        sampler.begin_step(9)
    assert group[2].shard_of(9) == 0
    assert taken[3] == chunks(_theirs(24, 2, 0, 1), 2)[3]


def test_an_epoch_that_all_ranks_leave_early_is_followed_by_the_next():
    group = shadows(2, size=40, batch_size=2)
    for sampler in group:
        assert len(batches_of(sampler, 3)) == 3
        sampler.set_epoch(1)
        batches = iter(sampler)
        next(batches)
        sampler.begin_step(3)
        with pytest.raises(ConfigError, match="the step is not in this epoch"):
            sampler.begin_step(2)


def test_the_first_step_of_an_epoch_can_be_given_and_is_checked():
    sampler = shadows(2, size=40, batch_size=2)[0]
    batches_of(sampler, 3)
    for step in range(3, 6):
        sampler.record(step, is_own=False)
    for first_step in (2, 7):
        sampler.set_epoch(1, first_step=first_step)
        with pytest.raises(
            ConfigError,
            match=f"epoch 1 is to begin at step {first_step}, but rank 0 has come to "
            "step 6 and did step 2 itself",
        ):
            next(iter(sampler))
    sampler.set_epoch(1, first_step=4)
    batches = iter(sampler)
    taken = [next(batches) for _ in range(3)]
    sampler.begin_step(6)
    assert taken == chunks(_theirs(40, 2, 0, 1), 2)[:3]


def test_a_copy_of_the_state_brings_the_history_of_late_ranks():
    giver, taker = (shadows(3, size=90)[3] for _ in range(2))
    for sampler in (giver, taker):
        next(iter(sampler))
        sampler.record(0, [1])
    for step in range(1, 6):
        giver.record(step, [2])
    taker.take_history(giver.history())
    assert taker.steps == 1
    for step in range(1, 6):
        taker.record(step, is_own=False)
    assert taker.choice(6) == giver.choice(6) == {3: 2}


class _Handle:
    """A handle that reports the end of a step at the next look."""

    def __init__(self, sampler):
        self.sampler, self.news = sampler, []
        sampler.follow(self.look)

    def look(self):
        news, self.news = self.news, []
        for step, late in news:
            self.sampler.record(step, late, is_own=False)


def test_a_state_includes_the_last_step():
    sampler = shadows(3, size=90)[0]
    handle = _Handle(sampler)
    next(iter(sampler))
    for step in range(3):
        sampler.record(step)
        handle.news = [(step, [2])]
        assert sampler.history()["late"] == [(s, (2,)) for s in range(step + 1)]
    handle.news = [(2, [1])]
    assert sampler.state_dict()["late"][-1] == (2, (1, 2))


# ---- a training that was stopped ---------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(_trainings(), st.integers(20, 70), st.data())
def test_a_resumed_training_continues_as_if_it_had_not_stopped(training, size, data):
    num_primaries, num_backups, late, batches_per_step, lookahead, mode = training

    def make():
        return samplers(
            num_primaries + num_backups,
            ActiveBackup(backups=num_backups, mode=mode),
            range(size),
            seed=3,
            lookahead=lookahead,
            batches_per_step=batches_per_step,
        )

    options = {
        "batches_per_step": batches_per_step,
        "lookahead": lookahead,
        "num_epochs": 3,
    }
    whole = train(group := make(), late, **options)
    stop = data.draw(st.integers(0, group[0].steps))
    first = train(group := make(), late, num_steps=stop, **options)
    states = [sampler.state_dict() for sampler in group]
    assert states == [states[0]] * len(group)
    # The state can be saved as JSON or by torch.
    text = json.dumps(states[0])
    saved = io.BytesIO()
    torch.save(states[0], saved)
    saved.seek(0)
    assert torch.load(saved, weights_only=True) == states[0]
    group = make()
    for sampler in group:
        sampler.load_state_dict(json.loads(text))
        assert sampler.steps == stop
    then = train(group, late, **options)
    assert [a + b for a, b in zip(first, then, strict=True)] == whole
    # Both trainings end at the same step.
    assert {s.steps for s in group} == {whole[0][-1][0] + 1}


def test_the_batches_of_a_substitute_are_resumed_too():
    policy = ActiveBackup(backups=1, mode="substitute")
    found = list(samplers(3, policy, range(40))[2])
    stopped, again = (samplers(3, policy, range(40))[2] for _ in range(2))
    assert batches_of(stopped, 3) == found[:3]
    again.load_state_dict(stopped.state_dict())
    assert list(again) == found[3:]


def test_another_epoch_than_the_stopped_one_begins_at_its_first_batch():
    stopped, again = (shadows(2, size=40)[0] for _ in range(2))
    assert len(stopped) == 7
    stopped.set_epoch(4)
    assert len(batches_of(stopped, 3)) == 3
    again.load_state_dict(stopped.state_dict())
    assert again.epoch == 4
    again.set_epoch(5)
    assert len(batches_of(again, 99)) == 7
    assert again.steps == 10


def test_only_the_first_epoch_after_a_resume_is_partial():
    stopped, again = (shadows(2, size=40)[0] for _ in range(2))
    batches_of(stopped, 3)
    again.load_state_dict(stopped.state_dict())
    # The epoch number should change but does not; the next epochs are complete anyway.
    assert [len(batches_of(again, 99)) for _ in range(3)] == [4, 7, 7]


def test_a_state_saved_by_a_rank_behind_has_the_place_of_all_ranks():
    behind, again = (shadows(2, size=24, batch_size=2)[0] for _ in range(2))
    assert len(batches_of(behind, 4)) == 4
    # The other ranks are in the third batch of epoch 1.
    for step in range(4, 8):
        behind.record(step, [1], is_own=False)
    again.load_state_dict(behind.state_dict())
    assert list(again) == []
    again.set_epoch(1)
    batches = batches_of(again, 99)
    assert batches == chunks(_theirs(24, 2, 0, 1), 2)[2:]


def test_a_dataset_with_seeds_gets_the_loaded_epoch():
    dataset = SeededDataset(range(40))
    stopped, again = (shadows_of(dataset)[0] for _ in range(2))
    stopped.set_epoch(6)
    next(iter(stopped))
    dataset.set_epoch(0)
    again.load_state_dict(stopped.state_dict())
    assert dataset.epoch == 6


def shadows_of(dataset, **options):
    return samplers(3, ActiveBackup(backups=1), dataset, **options)


@pytest.mark.parametrize(
    ("name", "theirs", "own"),
    [
        ("num_samples", {}, {"dataset": range(41)}),
        ("num_primaries", {"num_ranks": 5}, {"num_ranks": 4}),
        ("batch_size", {"batch_size": 4}, {"batch_size": 5}),
        ("batches_per_step", {}, {"batches_per_step": 2}),
        ("shuffle", {}, {"shuffle": False}),
        ("seed", {}, {"seed": 1}),
        ("drop_last", {}, {"drop_last": True}),
    ],
)
def test_the_state_of_a_sampler_with_other_batches_is_refused(name, theirs, own):
    arguments = {
        "dataset": range(40),
        "batch_size": 4,
        "policy": ActiveBackup(backups=1),
        "num_ranks": 5,
        "rank": 0,
    }
    giver, taker = (BackupSampler(**arguments | more) for more in (theirs, own))
    values = [getattr(sampler, name) for sampler in (giver, taker)]
    with pytest.raises(
        ConfigError,
        match=f"state to load is of a BackupSampler with {name}={values[0]}, but here "
        f"it is {values[1]}, so its batches are others; take {name}={values[0]}, or",
    ):
        taker.load_state_dict(giver.state_dict())


def test_an_invalid_state_and_a_late_load_are_refused():
    sampler = shadows(2)[0]
    with pytest.raises(
        ConfigError, match="the state to load has no 'epoch'; give the result of st"
    ):
        sampler.load_state_dict(sampler.history() | {"steps": 3})
    for wrong, text in (
        (None, "is a NoneType; give the"),
        (sampler.state_dict() | {"steps": "3"}, "has steps='3'; give the"),
        (sampler.state_dict() | {"epoch": -1}, "has epoch=-1; give the"),
        (sampler.state_dict() | {"of": None}, "has of=None; give the"),
        (sampler.state_dict() | {"late": [3]}, r"has late=\[3\]; give the"),
    ):
        with pytest.raises(
            ConfigError, match=f"the state to load {text} result of state"
        ):
            sampler.load_state_dict(wrong)
    handle = _Handle(sampler)
    state = sampler.state_dict()
    with pytest.raises(ConfigError, match="while register has this sampler, and its h"):
        sampler.load_state_dict(state)
    del handle
    sampler.load_state_dict(state)


# ---- refused arguments -------------------------------------------------------------


class _Stream(IterableDataset):
    def __iter__(self):
        return iter([1])


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"dataset": _Stream()},
            "BackupSampler: the dataset, of type _Stream, has no l",
        ),
        ({"dataset": []}, "of type list, is empty"),
        ({"batch_size": 0}, "batch_size is 0; it takes a whole number, at least 1"),
        ({"batch_size": 2.0}, "batch_size is 2.0; it takes"),
        ({"batches_per_step": 0}, "batches_per_step is 0; it takes"),
        ({"lookahead": -1}, "lookahead is -1; it takes a whole number, at least 0"),
        ({"policy": 3}, r"policy is 3; it takes ActiveBackup\(\.\.\.\)"),
        ({"rank": 5}, "rank is 5 but there are ranks 0 to 4"),
        ({"rank": "0"}, "rank is '0'; it takes a whole number."),
        ({"num_ranks": "5"}, "num_ranks is '5'; it takes a whole number, at least 1"),
        ({"seed": None}, "seed is None; it takes a whole number."),
        ({"shuffle": "no"}, "shuffle is 'no'; it takes True or False"),
        ({"drop_last": 1}, "drop_last is 1; it takes True or False"),
        (
            {"policy": ActiveBackup(backups=1, mode="replicate")},
            'mode is "replicate", which takes as many backups as primaries, but 1 of ',
        ),
        (
            {"policy": ActiveBackup(backups=3)},
            "3 backups leave 2 primaries of 5 ranks; there must be as many primaries",
        ),
        (
            {"policy": ActiveBackup(backups=7)},
            "7 backups leave 0 primaries of 5 ranks; there must be as many primaries",
        ),
        (
            {"dataset": range(3), "drop_last": True},
            "3 samples are less than one for each of 4 primaries, with drop_last=True",
        ),
    ],
)
def test_an_invalid_argument_is_refused_with_a_clear_error(changed, text):
    arguments = {
        "dataset": range(40),
        "batch_size": 4,
        "policy": ActiveBackup(backups=1),
        "num_ranks": 5,
        "rank": 0,
    }
    with pytest.raises(ConfigError, match=text):
        BackupSampler(**arguments | changed)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"epoch": "1"}, "epoch is '1'; it takes a whole number, at least 0"),
        ({"epoch": -1}, "epoch is -1; it takes"),
        ({"epoch": 0, "first_step": "a"}, "first_step is 'a'; it takes a whole"),
    ],
)
def test_an_epoch_must_be_a_number(arguments, text):
    with pytest.raises(ConfigError, match=text):
        shadows(2)[0].set_epoch(**arguments)


def test_a_first_step_that_no_rank_has_reached_is_refused():
    sampler = shadows(2)[0]
    sampler.set_epoch(0, first_step=5)
    with pytest.raises(ConfigError, match="has come to step 0 and did none itself; g"):
        next(iter(sampler))


def test_a_step_without_a_batch_has_no_data_shard():
    with pytest.raises(
        ConfigError,
        match=re.escape("no batch was taken for step 3 on rank 2, a backup"),
    ):
        shadows(2)[2].shard_of(3)


@pytest.mark.parametrize(("lookahead", "known_at"), [(0, 3), (1, 4), (3, 6)])
def test_the_choice_depends_on_the_ranks_that_were_out_before(lookahead, known_at):
    group = shadows(3, lookahead=lookahead)
    for sampler in (group[0], group[3]):
        for step in range(8):
            out = {2: [1], 3: [1, 3]}.get(step, [])
            sampler.record(step, out=out)
    for step in range(8):
        # Primaries in turn, unless rank 1 was out in the step before. A backup that was
        # out keeps its turn, so that it can return.
        out = {known_at, known_at + 1}
        expected = {3: 1 if step in out else step % 3}
        assert group[0].choice(step) == group[3].choice(step) == expected, step


@pytest.mark.parametrize(
    ("batches_per_step", "num_batches", "expected"),
    [
        (1, 5, {(0, 3): 3, (3, 7): 4, (4, 4): 0}),
        # Three steps of 2, 2 and 1 batches.
        (2, 5, {(0, 1): 2, (1, 3): 3, (2, 3): 1, (3, 4): 2, (2, 7): 8, (5, 9): 6}),
        (2, 4, {(0, 2): 4, (1, 5): 8}),
        (4, 3, {(0, 1): 3, (0, 4): 12}),
    ],
)
def test_the_last_step_of_an_epoch_may_have_fewer_batches(
    batches_per_step, num_batches, expected
):
    options = {"batch_size": 4, "batches_per_step": batches_per_step}
    sampler = shadows(2, size=8 * num_batches, **options)[0]
    assert len(sampler) == num_batches
    for epoch in range(3):
        first = sampler.steps
        for batch, _ in enumerate(sampler):
            step = first + batch // batches_per_step
            for (begin, end), count in expected.items():
                assert sampler.batches_in(first + begin, first + end) == count
            sampler.record(step)
        assert first == epoch * -(-num_batches // batches_per_step)
