# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Backups for late and dead ranks, through DistributedDataParallel."""

import contextlib
import hashlib
import itertools
import re
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from aikido_torch import ddp
from aikido_torch.data import BackupSampler, SeededDataset
from aikido_torch.ddp import StateCopy
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup
from aikido_torch.testing import die, late, run_ranks

PRIMARIES = 3
LATE_S = 0.4
STEP_S = 0.02
# In the first late step, the backup must shadow the late rank.
LATE_RANK = 2
FIRST_LATE = 11
assert FIRST_LATE % PRIMARIES == LATE_RANK
WAITS = {"floor_ms": 60.0, "ceiling_ms": 60.0}
# So long that no live rank is skipped, on a busy machine either.
PATIENT = {"floor_ms": 5_000.0, "ceiling_ms": 5_000.0}


class Noisy(Dataset):
    """Samples with random augmentation."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        seeded = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=seeded) + 0.1 * torch.randn(8)


def digest(net):
    found = hashlib.sha256()
    for parameter in net.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


class Training:
    """The training loop of one rank."""

    def __init__(self, rank, policy, *, accumulate=1, noise=None, file=None, **options):
        torch.manual_seed(3)
        self.rank, self.accumulate, self.noise = rank, accumulate, noise
        self.net = nn.Sequential(
            nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4)
        )
        self.model = DistributedDataParallel(self.net, bucket_cap_mb=0.0005)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.dataset = SeededDataset(Noisy(), seed=1)
        self.sampler = BackupSampler(
            self.dataset, 4, policy, seed=2, batches_per_step=accumulate
        )
        if file is not None and file.exists():
            state = torch.load(file, weights_only=True)
            self.net.load_state_dict(state["net"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.sampler.load_state_dict(state["sampler"])
        self.handle = ddp.register(
            self.model,
            optimizer=self.optimizer,
            policy=policy,
            sampler=self.sampler,
            batches_per_step=accumulate,
            after_step=self.look,
            state={},
            **options,
        )
        self.curve = {}  # loss on fixed data after each step that was not copied
        self.choices = {}  # in steps that this rank did itself

    def look(self):
        fixed = torch.linspace(-1, 1, 80).view(10, 8)
        with torch.no_grad():
            self.net.eval()
            loss = self.net(fixed).square().mean().item()
            self.net.train()
        self.curve[self.handle.steps] = loss

    def batches(self):
        loader = DataLoader(self.dataset, batch_sampler=self.sampler)
        for epoch in itertools.count(self.sampler.epoch):
            self.sampler.set_epoch(epoch)
            yield from loader

    def loss(self, batch):
        if self.noise is not None:
            batch = batch + torch.rand(batch.shape, generator=self.noise)
        return self.model(batch).square().mean()

    def run(self, steps, on_step=lambda step: None):
        batches = self.batches()
        while (step := self.handle.steps) < steps:
            on_step(step)
            self.optimizer.zero_grad()
            for _ in range(self.accumulate - 1):
                with self.model.no_sync():
                    self.loss(next(batches)).backward()
            self.loss(next(batches)).backward()
            self.choices[step] = self.sampler.choice(step)
            self.optimizer.step()
            self.look()
            late(STEP_S)
            for _ in range(self.handle.catch_up().batches_to_skip):
                next(batches)

    def facts(self):
        steps = self.handle.by_step
        return {
            "curve": self.curve,
            "digest": digest(self.net),
            "skipped": [s.step for s in steps if s.skipped],
            "stand_ins": {
                s.step: {d: sorted(by) for d, by in s.stand_ins.items()}
                for s in steps
                if s.stand_ins
            },
            "choices": self.choices,
            "replayed": self.handle.replayed_steps,
            "copied": self.handle.copied_steps,
        }


def learn(rank, size, policy, steps, late_steps, accumulate=1, options=None):
    at_the_end = dist.new_group()
    training = Training(rank, policy, accumulate=accumulate, **(options or {}))

    def on_step(step):
        if step in late_steps.get(rank, ()):
            late(LATE_S)

    training.run(steps, on_step)
    # A rank that has left is no member any more, but a late rank still chooses by
    # members. A late rank may also wait for the end of a state copy. No rank sends a
    # state during a barrier of torch, so the barrier is that of the handle.
    training.handle.barrier(at_the_end)
    return training.facts()


def without_losses(*arguments, **options):
    """Repeats the run until no data shard is lost: a busy machine delays backups."""
    for _ in range(4):
        results = run_ranks(PRIMARIES + 1, learn, *arguments, **options)
        if not results[0]["skipped"]:
            return results
    raise AssertionError(f"data shards are lost in steps {results[0]['skipped']}")


def check_equal(one, other):
    """Equal values for the keys that both have."""
    both = one.keys() & other.keys()
    assert both
    assert {s: one[s] for s in both} == {s: other[s] for s in both}


def check_agreement(results):
    assert len({result["digest"] for result in results}) == 1
    for result in results:
        assert result["stand_ins"] == results[0]["stand_ins"]
        check_equal(result["choices"], results[0]["choices"])
        check_equal(result["curve"], results[0]["curve"])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_loss_curve_with_a_shadowed_rank_equals_that_of_the_clean_run(accumulate):
    policy = ActiveBackup(backups=1, **WAITS)
    steps = 24
    late_steps = {LATE_RANK: range(FIRST_LATE, steps)}
    clean = without_losses(policy, steps, {}, accumulate)
    ours = without_losses(policy, steps, late_steps, accumulate)
    check_agreement(clean)
    check_agreement(ours)
    assert ours[0]["curve"] == clean[0]["curve"]
    assert ours[0]["digest"] == clean[0]["digest"]
    stand_ins = ours[0]["stand_ins"]
    assert len(stand_ins) >= 5
    assert all(by == {LATE_RANK: [3]} for by in stand_ins.values())
    assert ours[LATE_RANK]["replayed"] > 0


def test_a_late_backup_finds_its_place_again():
    policy = ActiveBackup(backups=1, **WAITS)
    late_steps = {3: (8, 12), LATE_RANK: range(15, 40)}
    for way in ("never", "always"):
        copy = StateCopy(when=way, timeout_ms=700)
        ours = run_ranks(
            PRIMARIES + 1, learn, policy, 40, late_steps, 1, {"copy": copy}
        )
        assert len({result["digest"] for result in ours}) == 1
        # A rank that copied missed the steps in between, but it knows the late ranks.
        for result in ours:
            check_equal(result["choices"], ours[0]["choices"])
        assert ours[3]["replayed"] + ours[3]["copied"] > 0
        assert ours[0]["stand_ins"]


def learn_until_a_death(rank, size, policy, steps, victim, death):
    training = Training(rank, policy)

    def on_step(step):
        if rank == victim and step == death:
            die()

    training.run(steps, on_step)
    return training.facts() | {"out": dict(training.sampler.history()["out"])}


def test_a_backup_takes_over_the_data_of_a_dead_primary_for_good():
    policy = ActiveBackup(backups=1, **PATIENT)
    victim, death, steps = 1, 9, 32
    results = run_ranks(
        PRIMARIES + 1,
        learn_until_a_death,
        policy,
        steps,
        victim,
        death,
        may_die={victim},
    )
    left = [r for rank, r in enumerate(results) if rank != victim]
    check_agreement(left)
    # All ranks know of the death from the same step on, whichever rank notices it
    # first.
    assert all(one["out"] == left[0]["out"] for one in left)
    assert left[0]["out"][steps - 1] == (victim,)
    # Only the step of the death can lose a data shard. After it each data shard counts
    # once in each step, so that the following epochs are complete.
    first = death + 1
    assert set(left[0]["skipped"]) <= {death}
    for step in range(first, steps):
        assert left[0]["stand_ins"][step] == {victim: [3]}


# ---- samples over whole epochs -------------------------------------------------------

# One index is padding, and some batches are not full.
SAMPLES = 98
EPOCHS = 3


class Tally(nn.Module):
    """One weight per sample; its gradient counts the sample in each batch."""

    def __init__(self):
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(SAMPLES))

    def forward(self, indices):
        return -PRIMARIES * self.counts[indices].sum()


def count_samples(rank, size, policy, victim, death):
    """Counts of the samples in each epoch, and the data shards lost in each step."""
    net = Tally()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    sampler = BackupSampler(range(SAMPLES), 4, policy, seed=2)
    loader = DataLoader(range(SAMPLES), batch_sampler=sampler)
    handle = ddp.register(model, optimizer=optimizer, policy=policy, sampler=sampler)
    counted, to_skip = [], 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        before = net.counts.detach().clone()
        for batch in loader:
            if rank == victim and handle.steps == death:
                die()
            if to_skip:  # the other ranks do not wait for a backup
                to_skip -= 1
                continue
            optimizer.zero_grad()
            model(batch).backward()
            optimizer.step()
            to_skip = handle.catch_up().batches_to_skip
        counted.append((net.counts.detach() - before).tolist())
    lost = {s.step: sorted(s.skipped) for s in handle.by_step if s.skipped}
    return counted, lost, len(sampler)


def batches_in_epoch(epoch):
    """Batches of each primary by torch's own sampler."""
    parts = []
    for rank in range(PRIMARIES):
        theirs = DistributedSampler(
            range(SAMPLES), num_replicas=PRIMARIES, rank=rank, seed=2
        )
        theirs.set_epoch(epoch)
        indices = list(theirs)
        parts.append([indices[i : i + 4] for i in range(0, len(indices), 4)])
    return parts


@pytest.mark.parametrize(("victim", "death"), [(None, 0), (1, 5), (0, 9)])
def test_each_sample_counts_once_in_an_epoch_even_if_its_primary_dies(victim, death):
    policy = ActiveBackup(backups=1, **PATIENT)
    results = run_ranks(
        PRIMARIES + 1,
        count_samples,
        policy,
        victim,
        death,
        may_die=() if victim is None else {victim},
    )
    primaries = [r for rank, r in enumerate(results[:-1]) if rank != victim]
    assert all(result == primaries[0] for result in primaries)
    counted, lost, num_batches = primaries[0]
    # The other ranks do not wait for a backup. At the end of an epoch it may be behind,
    # and later ahead by a copied step. So only its sum over all epochs is compared.
    assert torch.tensor(results[-1][0]).sum(0).tolist() == pytest.approx(
        torch.tensor(counted).sum(0).tolist(), abs=1e-3
    )
    assert num_batches == 9
    # Only shards of the victim are lost, until its death is known and the backup is
    # ready.
    assert set(lost) <= ({death, death + 1, death + 2} if victim is not None else set())
    assert all(of_step == [victim] for of_step in lost.values())
    for epoch in range(EPOCHS):
        parts = batches_in_epoch(epoch)
        whole = Counter(i for part in parts for batch in part for i in batch)
        # All samples, and one more that fills the last batch to a multiple of the
        # primaries.
        assert set(whole) == set(range(SAMPLES))
        assert sum(whole.values()) == SAMPLES + 1
        steps = range(epoch * num_batches, (epoch + 1) * num_batches)
        left_out = Counter(
            i for step in lost if step in steps for i in parts[victim][step - steps[0]]
        )
        # If one of three primaries is missing, the others count 1.5 times.
        found = Counter({i: 1 for i, n in enumerate(counted[epoch]) if n > 0.5})
        assert set(found) == set(whole - left_out)
        if not left_out:
            assert counted[epoch] == pytest.approx(
                [whole[i] for i in range(SAMPLES)], abs=1e-3
            )


# ---- a resumed training --------------------------------------------------------------


def learn_on(rank, size, policy, steps, file, accumulate):
    """Resumes from the file if it exists; returns the batches and losses by step."""
    training = Training(rank, policy, accumulate=accumulate, file=file)
    seen = {}
    batches = training.batches()
    while (step := training.handle.steps) < steps:
        training.optimizer.zero_grad()
        for part in range(accumulate):
            batch = next(batches)
            with contextlib.ExitStack() as stack:
                if part < accumulate - 1:
                    stack.enter_context(training.model.no_sync())
                training.loss(batch).backward()
            seed = torch.initial_seed()
            shard = training.sampler.shard_of(step)
            seen[step, part] = (shard, batch.numpy().tobytes(), seed)
        training.optimizer.step()
        training.look()
        for _ in range(training.handle.catch_up().batches_to_skip):
            next(batches)
    if rank == 0:
        torch.save(
            {
                "net": training.net.state_dict(),
                "optimizer": training.optimizer.state_dict(),
                "sampler": training.sampler.state_dict(),
            },
            file,
        )
    dist.barrier()
    return seen, training.curve


@pytest.mark.parametrize(("stops", "accumulate"), [((11, 16), 1), ((6,), 2)])
def test_a_resumed_training_does_the_same_steps(stops, accumulate, tmp_path):
    policy = ActiveBackup(backups=1, **PATIENT)

    def ranks(file, steps):
        return run_ranks(
            PRIMARIES + 1, learn_on, policy, steps, tmp_path / file, accumulate
        )

    whole = ranks("whole", 20)
    # Stops in the middle of an epoch and at its end.
    parts = [ranks("stopped", steps) for steps in (*stops, 20)]
    for rank, (seen, curve) in enumerate(whole):
        found, found_curve = {}, {}
        for part in parts:
            assert not found.keys() & part[rank][0].keys()
            found |= part[rank][0]
            found_curve |= part[rank][1]
        # The other ranks do not wait for a backup, so it may have missed a step.
        assert rank == PRIMARIES or found.keys() == seen.keys()
        check_equal(found, seen)
        # Strict steps add in a different order.
        assert found_curve == pytest.approx(curve, rel=1e-4)
    assert len({shard for shard, *_ in whole[PRIMARIES][0].values()}) > 1


# ---- other modes -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backups", "mode"), [(1, "substitute"), (1, "n_plus_b"), (3, "replicate")]
)
def test_other_modes_train_and_agree(backups, mode):
    policy = ActiveBackup(backups=backups, mode=mode, **WAITS)
    late_steps = {LATE_RANK: range(FIRST_LATE, 30)}
    results = run_ranks(PRIMARIES + backups, learn, policy, 20, late_steps)
    check_agreement(results)
    stand_ins = results[0]["stand_ins"]
    if mode == "n_plus_b":
        assert stand_ins == {}
        assert results[0]["skipped"]
        return
    backup = PRIMARIES if mode == "substitute" else PRIMARIES + LATE_RANK
    # On a busy machine other ranks can be late too.
    assert any(by.get(LATE_RANK) == [backup] for by in stand_ins.values())
    assert all(by.get(LATE_RANK, [backup]) == [backup] for by in stand_ins.values())


# ---- shadows with different bits -----------------------------------------------------


def learn_with_noise(rank, size, policy, is_noisy):
    noise = torch.Generator().manual_seed(rank) if is_noisy else None
    training = Training(rank, policy, noise=noise)
    try:
        training.run(12)
    except RuntimeError as error:  # raised inside backward()
        return str(error)
    return digest(training.net)


def test_a_shadow_with_other_bits_is_named_on_every_rank():
    policy = ActiveBackup(backups=1, verify_shadows=True)
    same = run_ranks(PRIMARIES + 1, learn_with_noise, policy, False)
    assert len(set(same)) == 1
    for text in run_ranks(PRIMARIES + 1, learn_with_noise, policy, True):
        assert re.search(r"rank 3.*data shard|data shard.*rank 3", text), text
        assert "deterministic" in text


# ---- refused arguments ---------------------------------------------------------------


def register_with(rank, size, what):
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = ActiveBackup(backups=1)
    sampler = BackupSampler(range(40), 4, policy)
    if what == "backups differ":
        policy = ActiveBackup(backups=1 + rank // 2)
        sampler = BackupSampler(range(40), 4, policy)
    elif what == "modes differ":
        policy = ActiveBackup(backups=1, mode="shadow" if rank else "substitute")
        sampler = BackupSampler(range(40), 4, policy)
    elif what == "no sampler":
        sampler = None
    elif what == "another sampler":
        sampler = DistributedSampler(range(40))
    elif what == "one has none":
        sampler = sampler if rank != 2 else None
    elif what == "too many":
        policy = ActiveBackup(backups=3)
    elif what == "seeds differ":
        sampler = BackupSampler(range(40), 4, policy, seed=rank)
    elif what == "shuffle differs":
        sampler = BackupSampler(range(40), 4, policy, shuffle=rank < 2)
    elif what == "drop_last differs":
        sampler = BackupSampler(range(40), 4, policy, drop_last=rank == 3)
    elif what == "one has no state":
        for step, _ in zip(range(3), sampler, strict=False):
            sampler.record(step)
        state = sampler.state_dict()
        sampler = BackupSampler(range(40), 4, policy)
        if rank != 1:
            sampler.load_state_dict(state)
    with pytest.raises(ConfigError) as caught:
        ddp.register(model, optimizer=optimizer, policy=policy, sampler=sampler)
    return str(caught.value)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (
            "backups differ",
            "policy differs between ranks: policy.backups is 1 on rank 0 but 2 on",
        ),
        (
            "modes differ",
            "policy differs between ranks: policy.mode is 'substitute' on ",
        ),
        ("no sampler", "sampler is None, which does not know the data shards"),
        ("another sampler", "sampler is a DistributedSampler, which does not know"),
        ("one has none", "sampler differs between ranks: .* but none on rank 2"),
        (
            "too many",
            "register: ActiveBackup: backups is 3 but must be between 0 and 2",
        ),
        ("seeds differ", "sampler differs between ranks: sampler.seed is 0 on rank 0"),
        ("shuffle differs", "sampler.shuffle is True on rank 0 but False on rank 2; g"),
        (
            "drop_last differs",
            "sampler.drop_last is False on rank 0 but True on rank 3",
        ),
        ("one has no state", "sampler.steps is 3 on rank 0 but 0 on rank 1; give all"),
    ],
)
def test_invalid_arguments_are_refused_at_the_start_on_all_ranks(what, text):
    for found in run_ranks(4, register_with, what):
        assert re.search(text, found), found
