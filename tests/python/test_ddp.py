# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""With one rank; tests/python/multiproc/test_ddp.py has late ones."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import WaitAll


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
    """A backend on which the others have committed some steps ahead of us."""

    def __init__(self, backend, num_buckets, num_steps):
        self.backend = backend
        self.committed_ahead = num_buckets * num_steps

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
    # is that of the last layer, and one less for the other.
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


class _Unfit:
    """Models that cannot go on without a late rank, and what is said about them."""

    @staticmethod
    def no_ddp():
        return nn.Linear(2, 2)

    @staticmethod
    def unused():
        return DistributedDataParallel(nn.Linear(2, 2), find_unused_parameters=True)

    @staticmethod
    def buffers():
        return DistributedDataParallel(
            nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        )

    @staticmethod
    def gloo():
        group = dist.new_group(backend="gloo")
        return DistributedDataParallel(nn.Linear(2, 2), process_group=group)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            _Unfit.no_ddp,
            "model is a Linear; wrap it in DistributedDataParallel first.",
        ),
        (
            _Unfit.unused,
            "find_unused_parameters=True makes DDP all-reduce a map of used parameters "
            "in every step, for which all ranks wait; use False, or static_graph=True.",
        ),
        (
            _Unfit.buffers,
            "The model has buffers (1.running_mean, 1.running_var, "
            "1.num_batches_tracked, ...) which DDP broadcasts in every forward, for "
            "which all ranks wait; wrap it with broadcast_buffers=False.",
        ),
        (_Unfit.gloo, " runs on backend 'gloo', not on 'aikido'; make it with "),
    ],
)
def test_a_model_for_which_all_ranks_would_wait_is_refused(group_of_one, make, text):
    with pytest.raises(ConfigError) as caught:
        ddp.register(make(), optimizer=None)
    assert text in str(caught.value)


def test_a_model_that_was_told_what_to_do_is_taken(group_of_one):
    with_buffers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    unused = DistributedDataParallel(
        nn.Linear(2, 2), find_unused_parameters=True, static_graph=True
    )
    quiet = DistributedDataParallel(with_buffers, broadcast_buffers=False)
    for model in (unused, quiet):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = ddp.register(model, optimizer=optimizer, policy=WaitAll())
        for _ in range(3):
            model(torch.ones(2, 2)).sum().backward()
        assert handle.steps == 3


def test_an_optimizer_that_leaves_parameters_out_is_refused(group_of_one):
    model = DistributedDataParallel(nn.Linear(2, 2))
    other = torch.optim.SGD([model.module.weight], lr=0.1)
    with pytest.raises(ConfigError, match=r"does not step 1 parameters .*\(bias, "):
        ddp.register(model, optimizer=other)
