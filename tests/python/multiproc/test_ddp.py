# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""DistributedDataParallel: same results as over Gloo, no delay by late ranks."""

import hashlib
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.straggler import SkipStraggler, WaitAll
from aikido_torch.testing import die, late, run_ranks

WIDTH = 64
LATE_RANK = 2
LATE_S = 0.4
# So short that other ranks may be skipped too on a busy machine. The checks still hold.
POLICY = SkipStraggler(min_contributors=2, floor_ms=40, ceiling_ms=40)


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 10),
    )


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, WIDTH, generator=generator)


def optimizer_of(name, net):
    if name == "sgd":
        return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    if name == "adam":
        return torch.optim.Adam(net.parameters(), lr=0.01, foreach=False)
    return torch.optim.AdamW(net.parameters(), lr=0.01, foreach=True)


def fingerprint(net, optimizer):
    digest = hashlib.sha256()
    for parameter in net.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    for state in optimizer.state.values():
        for name in sorted(state):
            if isinstance(state[name], torch.Tensor):
                digest.update(state[name].numpy().tobytes())
    return digest.hexdigest()


def learn(model, optimizer, rank, steps, accumulate=1):
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate - 1):
            with model.no_sync():
                model(batch(rank, step + 50 * (part + 1))).square().mean().backward()
        model(batch(rank, step)).square().mean().backward()
        optimizer.step()


def compare_with_gloo(rank, size):
    gloo = dist.new_group(backend="gloo")
    parameters = {}
    for name, group, wait_all, options in (
        ("gloo", gloo, False, {}),
        ("aikido", None, False, {}),
        ("wait all", None, True, {}),
        ("small buckets", None, True, {"bucket_cap_mb": 0.01}),
        ("views", None, True, {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.01}),
        ("static graph", None, True, {"static_graph": True}),
    ):
        model = DistributedDataParallel(make_net(), process_group=group, **options)
        optimizer = optimizer_of("sgd", model)
        if wait_all:
            handle = ddp.register(model, optimizer=optimizer, policy=WaitAll())
        learn(model, optimizer, rank, 6)
        parameters[name] = [p.detach().clone() for p in model.parameters()]
        if wait_all:
            kinds = {o.kind for o in handle.outcomes}
            assert kinds == {"complete"}, kinds
            assert handle.steps == 6
            assert handle.catch_up() == 0
    return {
        name: max((a - b).abs().max().item() for a, b in zip(theirs, ours, strict=True))
        for theirs in [parameters["gloo"]]
        for name, ours in parameters.items()
    }


def test_ddp_learns_the_same_as_over_gloo():
    for differences in run_ranks(3, compare_with_gloo):
        assert max(differences.values()) < 1e-6


def learn_late(rank, size, optimizer_name, options, accumulate, catches_up):
    """Trains with a rank that is late in some steps; returns values to compare."""
    model = DistributedDataParallel(make_net(), **options)
    optimizer = optimizer_of(optimizer_name, model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.7)
    handle = ddp.register(
        model,
        optimizer=optimizer,
        policy=POLICY,
        after_step=scheduler.step,
        batches_per_step=accumulate,
    )
    step, num_caught_up, step_s = 0, 0, []
    while step < 16:
        if catches_up:
            applied = handle.catch_up()
            num_caught_up += applied
            step += applied
            if step >= 16:
                break
        if rank == LATE_RANK and step in (4, 5, 9):
            late(LATE_S)
        start = time.perf_counter()
        optimizer.zero_grad()
        for part in range(accumulate - 1):
            with model.no_sync():
                model(batch(rank, step + 50 * (part + 1))).square().mean().backward()
        model(batch(rank, step)).square().mean().backward()
        optimizer.step()
        scheduler.step()
        step_s.append(time.perf_counter() - start)
        step += 1
        # A training step takes time, so that the late rank can catch up.
        late(0.02)
    outcomes = list(handle.outcomes)
    return {
        "fingerprint": fingerprint(model, optimizer),
        "rate": scheduler.get_last_lr(),
        "steps": (step, handle.steps, handle.replayed_steps - num_caught_up),
        "replayed": handle.replayed_steps,
        "skipped": handle.skipped_steps,
        "slowest": max(step_s[2:], default=0.0),
        "num_outcomes": len(outcomes),
        "skipped ranks": sorted({r for o in outcomes for r in o.skipped}),
        "own": sum(rank in o.skipped for o in outcomes),
    }


@pytest.mark.alone
@pytest.mark.parametrize(
    ("optimizer", "options", "accumulate"),
    [
        ("sgd", {"bucket_cap_mb": 0.01}, 1),
        ("adam", {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.01}, 1),
        ("adamw", {}, 3),
    ],
)
def test_a_late_rank_delays_no_other_rank_and_all_end_with_the_same_bits(
    optimizer, options, accumulate
):
    results = run_ranks(3, learn_late, optimizer, options, accumulate, True)
    first = results[0]
    for result in results:
        assert result["fingerprint"] == first["fingerprint"]
        assert result["rate"] == first["rate"]
        assert result["steps"] == (16, 16, 0)
        assert result["num_outcomes"] == first["num_outcomes"]
    assert first["num_outcomes"] % 16 == 0 or "bucket_cap_mb" in options
    last = results[LATE_RANK]
    assert last["replayed"] > 0
    assert last["skipped"] > 0
    assert last["own"] > 0
    if first["num_outcomes"] == 16:  # one bucket: one outcome per step
        assert last["skipped"] == last["own"]
    assert LATE_RANK in first["skipped ranks"]
    for result in (r for rank, r in enumerate(results) if rank != LATE_RANK):
        assert result["slowest"] < LATE_S * 0.75


def test_without_catch_up_a_rank_that_was_late_once_stays_late():
    results = run_ranks(3, learn_late, "sgd", {}, 1, False)
    assert len({result["fingerprint"] for result in results}) == 1
    assert [result["replayed"] for result in results] == [0, 0, 0]
    # The rank was late first in step 4; none of its gradients counts afterwards.
    assert results[LATE_RANK]["skipped"] >= 10


def learn_until_a_death(rank, size):
    model = DistributedDataParallel(make_net())
    optimizer = optimizer_of("sgd", model)
    handle = ddp.register(model, optimizer=optimizer, policy=WaitAll())
    learn(model, optimizer, rank, 4)
    if rank == 0:
        die()
    # The same class of exception as without a handle, so that existing handlers catch
    # it. A plain RuntimeError about a callback would not do.
    with pytest.raises(dist.DistBackendError, match=r"^all_reduce.*rank 0 is lost"):
        learn(model, optimizer, rank, 1)
    counts = [len(handle.outcomes) for _ in range(2)]
    return counts, len(handle.by_step)


def test_outcomes_can_be_read_after_a_death():
    results = run_ranks(3, learn_until_a_death, may_die={0})
    # The failed step has no outcome.
    assert results[1:] == [([4, 4], 5)] * 2
