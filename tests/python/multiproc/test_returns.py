# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A rank that was away until its log was full returns by a copy of the state."""

import hashlib
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.ddp import StateCopy
from aikido_torch.errors import ConfigError, PeerLostError
from aikido_torch.options import Options
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks, stop

WIDTH = 256
STEPS = 420
AWAY_AT = 30
AWAY_S = 3.0
LATE_RANK = 2
STEP_S = 0.01
# The log has room for the results of about thirty steps, which is half a second.
OPTIONS = Options(straggler_log_bytes=8 << 20)
POLICY = SkipStraggler(
    min_contributors=2,
    floor_ms=20,
    ceiling_ms=40,
    max_consecutive_skips=1_000_000,
    on_log_full="exclude",
)
OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.01, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=0.001),
}
WAYS = {"stopped": stop, "late": late}


def digest(*tensors):
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().view(-1).numpy().tobytes())
    return found.hexdigest()


def train(rank, size, name, way):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    model = DistributedDataParallel(net, bucket_cap_mb=0.1)
    optimizer = OPTIMIZERS[name](net.parameters())
    handle = ddp.register(
        model, optimizer=optimizer, policy=POLICY, copy=StateCopy(timeout_ms=700)
    )
    backend = handle._backend
    end = dist.new_group()
    step, took, standings, back_s = 0, [], set(), 0.0
    away_at = AWAY_AT
    while step < STEPS:
        started = time.monotonic()
        up = handle.catch_up()
        if up.state_copied_from is not None:
            back_s = max(back_s, time.monotonic() - started)
        step += up
        if step >= STEPS:
            break
        if rank == LATE_RANK and step >= away_at:
            away_at = STEPS
            WAYS[way](AWAY_S)
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(1000 * step + rank)
        model(torch.randn(8, WIDTH, generator=generator)).square().mean().backward()
        standings.add(backend.standing)
        optimizer.step()
        step += 1
        took.append(time.monotonic() - started)
        late(STEP_S)
    handle.barrier(end)  # a rank that is done still sends its state
    dist.barrier()
    state = [t for s in optimizer.state.values() for t in s.values()]
    return {
        "fingerprint": digest(*net.parameters(), *(s for s in state if s.numel() > 1)),
        "steps": (step, handle.steps),
        "slowest_s": max(took[AWAY_AT:]),
        "back_s": back_s,
        "copied": handle.copied_steps,
        "standings": standings,
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rank_that_was_away_copies_the_state_and_no_rank_waits(name, way):
    results = run_ranks(3, train, name, way, options=OPTIONS, deadline=100.0)
    others = [r for rank, r in enumerate(results) if rank != LATE_RANK]
    back = results[LATE_RANK]
    print("back after", back["back_s"], "s; slowest", [r["slowest_s"] for r in others])
    assert len({r["fingerprint"] for r in results}) == 1
    assert {r["steps"] for r in results} == {(STEPS, STEPS)}
    assert "refused" in back["standings"]
    assert back["copied"] > 10
    for other in others:
        assert other["slowest_s"] < 0.6 * AWAY_S


# The others keep the results of some seven steps for a stopped rank, for half a second.
FORGETFUL = Options(
    straggler_log_bytes=2 << 20, heartbeat_interval_ms=50, heartbeat_timeout_ms=500
)
WAITING = SkipStraggler(
    min_contributors=2, floor_ms=20, ceiling_ms=40, max_consecutive_skips=1_000_000
)
MEETING = 50
BACK_AT = AWAY_AT + 15


class Beside:
    """One of the models of a loop in which a rank is stopped for too long."""

    def __init__(self, policy, is_told):
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10))
        group = dist.new_group(pg_options=FORGETFUL)
        self.model = DistributedDataParallel(self.net, process_group=group)
        self.optimizer = optim.Adam(self.net.parameters(), lr=0.001)
        told = {} if is_told else {"apply": self.optimizer.step}
        self.handle = ddp.register(
            self.model, optimizer=self.optimizer, policy=policy, **told
        )

    def step(self, seed):
        self.optimizer.zero_grad()
        data = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(seed))
        self.model(data).square().mean().backward()
        self.optimizer.step()


def stop_until_others_are_ahead(store):
    """Rank 0 continues this process from BACK_AT on, however slow the machine is."""
    store.set("stopped", str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def train_refused(rank, size, policy, is_told=True, num_models=1):
    """Returns digests, whether steps were copied, and sums; or the loop's error."""
    torch.manual_seed(3)
    store = dist.distributed_c10d._get_default_store()
    models = [Beside(policy, is_told) for _ in range(num_models)]
    step, sums, is_away = 0, [], rank == LATE_RANK
    try:
        while True:
            ups = [m.handle.catch_up() for m in models]
            step += ups[0]
            can_return = is_told and num_models == 1
            if can_return and models[0].handle.every(MEETING):
                dist.all_reduce(ones := torch.ones(1))
                sums.append((step, ones.item()))
            if step >= 2 * MEETING + 5:
                break
            if is_away and step >= AWAY_AT:
                is_away = False
                stop_until_others_are_ahead(store)
            if rank == 0 and step >= BACK_AT:
                with suppress(ProcessLookupError):  # it has ended with an error
                    os.kill(int(store.get("stopped")), signal.SIGCONT)
            for m in models:
                m.step(1000 * step + rank)
            step += 1
            late(STEP_S)
        for m in models:
            m.handle.close()
    except PeerLostError as error:
        return str(error)
    copied = [m.handle.copied_steps > 0 for m in models]
    return [digest(*m.net.parameters()) for m in models], copied, sums


@pytest.mark.parametrize("on_log_full", ["wait", "exclude"])
def test_a_rank_whose_results_are_not_kept_copies_a_state(on_log_full):
    """The others wait for it where the loop makes a call."""
    policy = replace(WAITING, on_log_full=on_log_full)
    ends = run_ranks(3, train_refused, policy, options=FORGETFUL)
    assert len({tuple(digests) for digests, _, _ in ends}) == 1
    assert [copied for _, copied, _ in ends] == [[False], [False], [True]]
    for _, _, sums in ends:
        assert sums == [(MEETING, 3.0), (2 * MEETING, 3.0)]


@pytest.mark.parametrize(("is_told", "num_models"), [(False, 1), (True, 2)])
def test_a_refused_rank_without_a_way_to_copy_raises(is_told, num_models):
    """Of one model `register` does not know the state; two would be at other steps."""
    ends = run_ranks(
        3,
        train_refused,
        WAITING,
        is_told,
        num_models,
        options=FORGETFUL,
        group_timeout=20.0,
    )
    text = ends[LATE_RANK]
    assert "was left out of group" in text
    assert text.endswith("copy the state of another rank and reconfigure")


def call_in_each_fifth_step(rank, size, has_every):
    torch.manual_seed(3)
    net = nn.Linear(8, 20_000)
    model = DistributedDataParallel(net)
    optimizer = optim.SGD(net.parameters(), lr=0.01)
    handle = ddp.register(model, optimizer=optimizer, policy=POLICY)
    step, is_late = 0, rank == LATE_RANK
    try:
        while (step := step + handle.catch_up()) < 20:
            if handle.every(5) if has_every else step % 5 == 0:
                dist.all_reduce(torch.ones(1))
            if is_late and step >= 7:
                is_late = False
                late(0.4)
            optimizer.zero_grad()
            model(torch.randn(1, 8)).square().mean().backward()
            optimizer.step()
            step += 1
            late(STEP_S)
    except ConfigError as error:
        return str(error)
    return digest(*net.parameters())


@pytest.mark.beside
@pytest.mark.parametrize("has_every", [True, False])
def test_a_call_in_which_the_others_wait_for_a_rank_that_needs_a_state(has_every):
    """The log has room for one step."""
    begin = time.monotonic()
    texts = run_ranks(
        3,
        call_in_each_fifth_step,
        has_every,
        options=Options(straggler_log_bytes=1 << 20),
        group_timeout=60.0,
    )
    assert time.monotonic() - begin < 50.0
    assert len(set(texts)) == 1
    if not has_every:
        assert texts[0].startswith("catch_up: rank 2 was left out while it was late")
        assert "Make this call where handle.every(n) is true" in texts[0]


def register_two(rank, size, log_fulls, way):
    """Error of the second `register`; "" if there was none."""
    handles = []
    try:
        for on_log_full in log_fulls:
            net = nn.Linear(4, 4)
            model = DistributedDataParallel(net, process_group=dist.new_group())
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            policy = SkipStraggler(on_log_full=on_log_full)
            handles.append(ddp.register(model, optimizer=optimizer, policy=policy))
            if way == "closed":
                handles[0].close()
            elif way == "dropped":
                handles.clear()
                del model
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("log_fulls", "way", "is_refused"),
    [
        (("exclude", "exclude"), "open", True),
        (("exclude", "wait"), "open", True),
        (("wait", "exclude"), "open", True),
        (("wait", "wait"), "open", False),
        (("exclude", "exclude"), "closed", False),
        (("exclude", "exclude"), "dropped", False),
    ],
)
def test_a_model_with_a_policy_that_excludes_ranks_must_be_the_only_model(
    log_fulls, way, is_refused
):
    for text in run_ranks(3, register_two, log_fulls, way):
        assert ("takes one model in a process" in text) == is_refused, text
