# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Jobs of one member in this process; `multiproc/test_elastic.py` has more members."""

import os
import signal
import socket
import threading
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from aikido_torch import elastic
from aikido_torch.elastic import _group
from aikido_torch.elastic._endpoint import Endpoint
from aikido_torch.elastic._roster import Member, Roster
from aikido_torch.elastic._status import Status
from aikido_torch.errors import ConfigError, PeerLostError


@pytest.fixture
def address():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield f"127.0.0.1:{store.port}"
    if dist.is_initialized():
        dist.destroy_process_group()
    del store


def parts():
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 1)
    ).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def loader():
    data = torch.randn(20, 4, dtype=torch.double, generator=torch.Generator())
    return DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=4)


def train(model, optimizer, batches):
    for x, y in batches:
        torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()


def join(address, model, optimizer, **options):
    return elastic.join(
        model, optimizer, loader(), endpoint=address, role="reliable", **options
    )


def test_a_job_of_one_member_trains_like_a_plain_loop(address):
    model, optimizer = parts()
    for batch in loader():
        train(model, optimizer, [batch])
    own, own_optimizer = parts()
    job = join(address, own, own_optimizer)
    for step in job.steps(until=5):
        assert not step.is_repeat
        train(job.model, own_optimizer, step)
    for p, q in zip(
        model.state_dict().values(), own.state_dict().values(), strict=True
    ):
        assert torch.equal(p, q)
    assert job.events == [("founded", 0, 1)]


def fail_once(monkeypatch, at):
    """The commit of one step fails, as if a member had died."""
    commit, failed = _group.commit, []

    def failing(step, *args, **options):
        if step == at and not failed:
            failed.append(step)
            raise PeerLostError("rank 1 died", rank=1)
        return commit(step, *args, **options)

    monkeypatch.setattr(_group, "commit", failing)


def test_a_failed_step_is_repeated_and_changes_nothing(address, monkeypatch):
    wanted, optimizer = parts()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    batches = [*loader()]
    torch.manual_seed(1)
    for batch in batches:
        train(wanted, optimizer, [batch])
        schedule.step()
        torch.rand(1)
    random = torch.get_rng_state()
    fail_once(monkeypatch, 2)
    model, optimizer = parts()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    job = join(address, model, optimizer, state={"schedule": schedule})
    torch.manual_seed(1)
    seen = []
    for step in job.steps(until=5):
        seen.append((step.number, step.is_repeat, step.assignment.items))
        train(job.model, optimizer, step)
        schedule.step()
        torch.rand(1)
    assert [(n, r) for n, r, _ in seen] == [
        *((0, False), (1, False), (2, False), (2, True), (3, False), (4, False))
    ]
    assert seen[2][2] == seen[3][2]
    for p, q in zip(
        wanted.state_dict().values(), model.state_dict().values(), strict=True
    ):
        assert torch.equal(p, q)
    assert torch.equal(torch.get_rng_state(), random)


def test_a_scheduler_made_before_or_after_works_without_a_warning(address):
    model, optimizer = parts()
    before = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    job = join(address, model, optimizer)
    after = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in job.steps(until=3):
            train(job.model, optimizer, step)
            before.step()
            after.step()


@pytest.mark.parametrize("kind", ["call", "signal"])
def test_a_notice_of_the_last_reliable_member_ends_the_job_after_the_step(
    address, kind
):
    model, optimizer = parts()
    job = join(address, model, optimizer)
    assert not job.evicting
    steps = job.steps(until=9)
    train(job.model, optimizer, next(steps))
    train(job.model, optimizer, next(steps))
    job.evict() if kind == "call" else signal.raise_signal(signal.SIGTERM)
    assert job.evicting
    # The notice is part of the commit of the next step.
    train(job.model, optimizer, next(steps))
    with pytest.warns(UserWarning, match="all 1 reliable members have an eviction"):
        assert next(steps, None) is None
    assert job.events[-1] == ("ended", 3, 1)


def test_a_loop_over_batches_that_ends_early_is_refused(address):
    model, optimizer = parts()
    job = join(address, model, optimizer)
    steps = job.steps(until=3)
    next(iter(next(steps)))
    with pytest.raises(ConfigError, match="step 0 ended early"):
        next(steps)
    job.close()


def test_a_second_loop_over_batches_is_refused(address):
    model, optimizer = parts()
    job = join(address, model, optimizer)
    step = next(job.steps(until=1))
    train(model, optimizer, step)
    with pytest.raises(ConfigError, match="train the items twice"):
        list(step)
    job.close()


def test_the_leader_writes_the_status_of_the_job(address):
    model, optimizer = parts()
    job = join(address, model, optimizer)
    endpoint = Endpoint(address, "job")
    steps = job.steps(until=9)
    for _ in range(2):
        train(job.model, optimizer, next(steps))
    next(steps)  # the second step is committed
    pause = threading.Event()  # never set
    while (text := endpoint.read("status")) is None:
        pause.wait(0.01)
    status = Status.decode(text)
    assert status.step == 1  # further steps are reported half a second later
    place = socket.gethostname(), str(os.getpid())
    assert status.rows() == [("0", job.name, "reliable", *place)]
    assert 0 < status.goodput <= 1
    job.close()


def test_a_leaving_member_leaves_though_the_others_are_connected_already(
    address, monkeypatch
):
    model, optimizer = parts()
    job = join(address, model, optimizer)
    steps = job.steps(until=9)
    train(model, optimizer, next(steps))
    own = job.roster.members[0]
    stays = Member(number=7, role="reliable", handle="h7", host="other")
    job._roster = Roster(epoch=1, members=(stays, own))
    monkeypatch.setattr(
        _group, "commit", lambda *args, **options: _group.Commit(0, (1,))
    )

    def fail(*args):
        raise PeerLostError("this call belongs to the members of before")

    monkeypatch.setattr(_group, "share_text", fail)
    train(model, optimizer, next(steps))
    with pytest.warns(UserWarning, match="reliable members leave after an eviction"):
        assert next(steps, None) is None
    assert job.events[-1] == ("left", 2, 2)
