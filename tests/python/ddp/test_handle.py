# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""With one rank; tests/python/multiproc/test_ddp.py has late ranks."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import aikido_torch
from aikido_torch import ddp
from aikido_torch.data import BackupSampler
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, SkipStraggler


def test_a_model_learns_as_without_ddp(group_of_one):
    torch.manual_seed(1)
    alone = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        bucket_cap_mb=0.0001,
    )
    model.module.load_state_dict(alone.state_dict())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (alone, model)]
    handle = ddp.register(model, optimizer=optimizers[1])
    assert (handle.steps, list(handle.outcomes)) == (0, [])
    for step in range(5):
        batch = torch.randn(3, 4)
        for m, optimizer in zip((alone, model), optimizers, strict=True):
            assert handle.catch_up() == 0
            optimizer.zero_grad()
            m(batch).square().sum().backward()
            optimizer.step()
        assert handle.steps == step + 1
    for a, b in zip(alone.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)
    outcomes = list(handle.outcomes)
    assert len(outcomes) >= 5
    assert {outcome.kind for outcome in outcomes} == {"complete"}
    # The first two steps are strict, so their outcomes have no shards.
    assert outcomes[0].shards == []
    assert len(outcomes[-1].shards) == 1
    assert (handle.replayed_steps, handle.skipped_steps) == (0, 0)


class _Committed:
    """A backend whose other ranks have committed some steps ahead of this rank."""

    def __init__(self, backend, num_buckets, num_steps):
        self.backend = backend
        self.place = backend.place
        self.committed_ahead = num_buckets * num_steps
        self.called_ahead = 0
        self.num_calls = 0
        self.is_waited_for = False
        self.standing = "member"

    def all_reduce(self, tensor, *arguments):
        self.committed_ahead -= 1
        tensor.fill_(float(self.committed_ahead + 1))
        return self.backend.all_reduce(tensor, *arguments)


def test_catching_up_steps_on_each_committed_gradient_and_keeps_the_own(group_of_one):
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model = DistributedDataParallel(net, bucket_cap_mb=0.00001)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    called = []
    handle = ddp.register(
        model, optimizer=optimizer, after_step=lambda: called.append(handle.steps)
    )
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
    own = [parameter.grad for parameter in net.parameters()]
    before = [parameter.detach().clone() for parameter in net.parameters()]
    # Two buckets, three steps: gradients 6, then 4, then 2 for the first bucket, which
    # is that of the last layer, and one less for the other bucket.
    handle._backend = _Committed(handle._backend, 2, 3)
    assert handle.catch_up() == 3
    assert (handle.steps, handle.replayed_steps) == (6, 3)
    assert called == [4, 5, 6]
    for gone, old, new in zip((9, 12), before, net.parameters(), strict=True):
        assert torch.allclose(old - gone, new, atol=1e-5)
    assert all(p.grad is g for p, g in zip(net.parameters(), own, strict=True))
    assert handle.catch_up() == 0
    # Less than a step is left for the next time.
    handle._backend.committed_ahead = 1
    assert handle.catch_up() == 0
    # Steps without received results cannot be replayed.
    handle._backend.committed_ahead = 0
    for called, steps in ((0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (41, 20)):
        handle._backend.called_ahead = called
        assert handle._steps_behind() == steps
        assert handle.catch_up() == 0


@pytest.mark.parametrize("is_told", [False, True])
def test_a_scheduler_that_register_was_not_told_of_is_warned_of_once(
    group_of_one, recwarn, is_told
):
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # It is not enough that the scheduler is copied with a state, because no one steps
    # it.
    told = {"after_step": lambda: None} if is_told else {"state": {}}
    handle = ddp.register(model, optimizer=optimizer, **told)
    handle.catch_up()
    assert not recwarn.list
    torch.optim.lr_scheduler.StepLR(optimizer, 2)
    handle.catch_up()
    handle.catch_up()
    texts = [str(warning.message) for warning in recwarn.list]
    assert len(texts) == (0 if is_told else 1)
    assert is_told or "learning rate scheduler" in texts[0]
    assert is_told or recwarn.list[0].filename == __file__


def test_a_barrier_is_in_another_group_than_the_model(group_of_one):
    model = DistributedDataParallel(nn.Linear(2, 2))
    handle = ddp.register(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
    with pytest.raises(ConfigError, match=r"the group of the model.*new_group\(\)"):
        handle.barrier(model.process_group)
    for backend in ("aikido", "gloo"):
        handle.barrier(dist.new_group(backend=backend))


def test_a_missed_last_step_of_an_epoch_has_as_few_batches_as_are_left(group_of_one):
    net = nn.Linear(2, 2)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    policy = ActiveBackup(backups=0)
    sampler = BackupSampler(range(5), 1, policy, batches_per_step=2)
    handle = ddp.register(
        model, optimizer=optimizer, policy=policy, sampler=sampler, batches_per_step=2
    )
    # Steps of 2, 2 and 1 batches; the second step of the second epoch is an own step.
    for epoch, num_batches in enumerate([5, 4]):
        sampler.set_epoch(epoch)
        for batch, _ in zip(range(num_batches), sampler, strict=False):
            with contextlib.ExitStack() as stack:
                if batch % 2 == 0 and batch < 4:
                    stack.enter_context(model.no_sync())
                model(torch.ones(1, 2)).sum().backward()
    assert handle.steps == 5
    handle._backend = _Committed(handle._backend, 1, 3)
    up = handle.catch_up()
    assert (up, up.batches_to_skip) == (3, 1 + 2 + 2)


def skipping(net):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, ddp.register(model, optimizer=optimizer)


def test_two_models_that_may_skip_on_one_group_are_told_apart(group_of_one):
    first, one = skipping(nn.Linear(2, 2))
    first(torch.ones(1, 2)).sum().backward()
    _, two = skipping(nn.Linear(2, 2))
    for late_use in (one.catch_up, lambda: first(torch.ones(1, 2)).sum().backward()):
        with pytest.raises(
            (ConfigError, RuntimeError), match="Another model was regis"
        ):
            late_use()
    assert two.catch_up() == 0


def test_a_skippable_call_on_the_group_of_a_model_is_refused(group_of_one):
    _, handle = skipping(nn.Linear(2, 2))
    tensor = torch.ones(2)
    with pytest.raises(ConfigError, match="make calls that may skip on a group of th"):
        aikido_torch.all_reduce(tensor, policy=SkipStraggler())
    aikido_torch.all_reduce(tensor)
    aikido_torch.all_reduce(
        tensor, policy=SkipStraggler(), group=dist.new_group(backend="aikido")
    )
    assert handle.catch_up() == 0
    del handle


def test_each_step_has_its_counters(group_of_one):
    model, handle = skipping(nn.Linear(2, 2))
    for _ in range(4):
        model(torch.ones(1, 2)).sum().backward()
    assert [(s.step, s.way, s.num_calls) for s in handle.by_step] == [
        (i, "own", 1) for i in range(4)
    ]
    assert all(s.is_plain() for s in handle.by_step)
    assert [s.contributions.num_elements for s in handle.by_step] == [6] * 4
    assert handle.by_step.progress().shares == (1.0,)
    times = [s.ended_at for s in handle.by_step]
    assert times == sorted(set(times))
