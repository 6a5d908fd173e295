# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Plain buckets on one rank; multiproc/test_overlapped*.py compare them with DDP."""

import contextlib
import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from aikido_torch.errors import ConfigError
from aikido_torch.overlap import OverlappedDataParallel
from aikido_torch.overlap._plain import PlainSums
from harness.plain_buckets import plain_buckets


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        self.has_last = True

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return self.last(x) if self.has_last else x


class Training:
    """The same training with and without the wrapper; one rank's gradients are their
    mean.
    """

    def __init__(self):
        torch.manual_seed(1)
        self.plain = Net()
        self.net = copy.deepcopy(self.plain)
        self.of_plain, self.of_net = map(self._optimizer, (self.plain, self.net))
        self.model = OverlappedDataParallel(self.net, self.of_net)
        self.sent = []
        self.watch_sends()

    @staticmethod
    def _optimizer(net):
        return torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)

    def watch_sends(self):
        """Records the number of gradients at each send of a bucket."""
        sums = self.model._sums
        send = sums._send_next

        def noted():
            self.sent.append(sum(p.grad is not None for p in self.net.parameters()))
            send()

        sums._send_next = noted

    def both(self):
        return ((self.plain, self.of_plain), (self.model, self.of_net))

    def backward(self, number=0):
        for model, optimizer in self.both():
            optimizer.zero_grad()
            model(batch(number)).square().mean().backward()

    def step(self, number=0):
        self.backward(number)
        for _, optimizer in self.both():
            optimizer.step()

    def pairs(self):
        return zip(self.plain.parameters(), self.net.parameters(), strict=True)

    def check(self):
        for a, b in self.pairs():
            assert torch.equal(a, b)


def batch(number=0):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(number))


@pytest.fixture
def training(group_of_one):
    with plain_buckets():
        yield Training()


def test_a_step_is_whole_and_over_at_once(training):
    for number in range(8):
        training.step(number)
        assert isinstance(training.model._sums, PlainSums)
        training.check()
        assert all(p.grad is None for p in training.net.parameters())


def test_gradients_are_the_mean_once_the_backward_is_over(training):
    training.step()
    training.backward(1)
    for a, b in training.pairs():
        assert torch.equal(a.grad, b.grad)
        b.grad.mul_(2)  # allowed without a call, as with DDP
        a.grad.mul_(2)
    for _, optimizer in training.both():
        optimizer.step()
    training.check()


def test_one_hook_for_each_bucket_is_left_once_enough_was_watched(training):
    def hooks():
        return [
            len(p._post_accumulate_grad_hooks or ()) for p in training.net.parameters()
        ]

    assert hooks() == [1] * 4
    for number in range(4):
        training.step(number)
    assert sum(hooks()) == len(training.model.layout.buckets) < 4
    assert not any(m._forward_pre_hooks for m in training.net.modules())
    training.model.close()
    assert sum(hooks()) == 0


def test_uses_and_gradients_are_watched_until_a_plan_can_be_made(training):
    """Afterwards only some hooks are left, so they do not see all."""
    retune = training.model._retune
    training.step()
    for number in range(1, 6):
        training.step(number)
        seen = retune.iteration
        assert (len(seen.uses), len(seen.ready)) == (4, 4)
    assert not retune._iterations[-1].ready


def test_a_bucket_is_sent_as_soon_as_it_is_full(training):
    training.step()
    training.watch_sends()
    training.sent.clear()
    training.step(1)
    assert len(training.sent) == len(training.model.layout.buckets)
    assert training.sent[0] < 4


def test_gradients_of_an_earlier_backward_are_not_taken_for_new_ones(training):
    training.step()
    training.watch_sends()
    training.sent.clear()
    for model, optimizer in training.both():
        optimizer.zero_grad()
        is_ours = model is training.model
        with model.no_sync() if is_ours else contextlib.nullcontext():
            model(batch(1)).square().mean().backward()
        model(batch(2)).square().mean().backward()
        optimizer.step()
    assert set(training.sent) == {4}
    training.check()


def test_a_walk_through_the_graph_without_parameters_sends_nothing(training):
    training.step()
    training.watch_sends()
    training.sent.clear()
    x = batch(1).requires_grad_()
    torch.autograd.grad(training.model(x).sum(), x)
    training.model.wait_for_gradients()  # the backward is still to come
    assert len(training.sent) == len(training.model.layout.buckets)


def test_parameters_without_gradients_get_no_step(training):
    for number in range(6):
        for net in (training.plain, training.net):
            net.has_last = number % 2 == 0
        training.step(number)
        training.check()


def test_waiting_between_two_steps_sends_nothing(training):
    training.step()
    training.watch_sends()
    training.sent.clear()
    training.model.wait_for_gradients()
    training.model.synchronize()
    assert training.sent == []


def test_a_step_may_be_left_out(training):
    training.step()
    for number in range(1, 4):
        for model, optimizer in training.both():
            optimizer.zero_grad(set_to_none=number % 2 == 0)
            model(batch(number)).square().mean().backward()
            if number == 3:
                optimizer.step()
    training.check()


class Twice(nn.Module):
    """A layer in two segments that are recomputed in the backward."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(self.last, x, use_reentrant=True)
        return x


def test_a_gradient_that_grows_while_it_is_summed_is_refused(group_of_one):
    net = Twice()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with plain_buckets():
        model = OverlappedDataParallel(net, optimizer)
    loss = model(batch()).sum()
    with pytest.raises(ConfigError, match=r"gradient of last\.\w+ has changed.*share"):
        loss.backward()


def test_reads_wait_where_the_end_of_the_backward_is_not_told(training):
    """The outputs are in a user's object, and the graph has another end."""

    class Outputs:
        def __init__(self, value):
            self.value = value

    for module in (training.plain, training.net):
        inner = module.forward
        module.forward = lambda x, inner=inner: Outputs(inner(x))
    for number in range(3):
        norms = []
        for model, optimizer in training.both():
            optimizer.zero_grad()
            model(batch(number)).value.square().mean().backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
            optimizer.step()
        assert norms[0] == norms[1]
    training.check()


def test_close_between_backward_and_step_leaves_the_mean(training):
    training.step()
    training.backward(1)
    buffers = [b.flat.buffer for b in training.model._sums._buckets]
    training.model.close()
    places = [buffer.untyped_storage().data_ptr() for buffer in buffers]
    for a, b in training.pairs():
        assert torch.equal(a.grad, b.grad)
        assert b.grad.untyped_storage().data_ptr() not in places
    for _, optimizer in training.both():
        optimizer.step()
    training.check()
