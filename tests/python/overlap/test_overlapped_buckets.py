# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Buckets on one rank; their sums end at once, or when the test says so."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from aikido_torch._backend import backend_of
from aikido_torch.errors import ConfigError
from aikido_torch.overlap._layout import Layout
from aikido_torch.overlap._overlapped_buckets import Reduction, Sums
from aikido_torch.straggler import WaitAll

LAYOUT = Layout((("c",), ("b",), ("a",)), (2, 1, 0))


class Work:
    """A reduction that ends when the test says so."""

    def __init__(self):
        self.is_here = False

    def is_completed(self):
        return self.is_here

    def wait(self):
        self.is_here = True

    def outcome(self):
        return None


class Backend:
    place = (0, 2)
    committed_ahead = 0

    def __init__(self):
        self.sent = []  # (copy of the buffer, priority, work)

    def all_reduce(self, tensor, op, policy, priority, timeout):
        self.sent.append((tensor.clone(), priority, Work()))
        return self.sent[-1][2]


@pytest.mark.parametrize(
    ("is_strict", "scale", "op"), [(True, 0.5, "SUM"), (False, 1.0, "AVG")]
)
def test_strict_gradients_are_scaled_and_added_and_others_are_averaged(
    is_strict, scale, op
):
    calls = []
    backend = Backend()
    backend.all_reduce = lambda *call: calls.append(call)
    policy = WaitAll().native()
    reduction = Reduction(backend, policy, is_strict=is_strict)
    assert reduction.scale == scale
    buffer = torch.ones(2)
    reduction.start(buffer, -3)
    (tensor, used, told, priority, _) = calls[0]
    assert tensor is buffer
    assert told is policy
    assert (used.op.name, priority) == (op, -3)


class Rig:
    def __init__(self, backend=None):
        self.backend = backend or Backend()
        self.parameters = {
            name: torch.nn.Parameter(torch.zeros(2)) for name in ("a", "b", "c")
        }
        self.optimizer = torch.optim.SGD(self.parameters.values(), lr=1.0)
        self.ended = []
        self.sums = Sums(
            self.parameters,
            self.optimizer,
            self.optimizer.step,
            self.backend,
            wait=lambda call: call(),
            on_sum=lambda num_bytes, sent_s, work: self.ended.append(num_bytes),
        )
        self.sums.lay_out(LAYOUT, WaitAll().native(), is_strict=True)

    def give(self, *names, value=1.0):
        for name in names:
            with torch._C.DisableTorchFunctionSubclass():  # as autograd does
                self.parameters[name].grad = torch.full((2,), value)
            self.sums.take(name)

    def values(self):
        with torch._C.DisableTorchFunctionSubclass():  # reads without waiting
            return [p[0].item() for p in self.parameters.values()]


def test_buckets_are_sent_in_the_order_of_the_layout_however_they_fill():
    rig = Rig()
    rig.give("a", "b")
    assert rig.backend.sent == []
    rig.give("c")
    assert [priority for _, priority, _ in rig.backend.sent] == [-2, -1, 0]
    # Gradients are halved; the shares of ranks follow; the first bucket has the signal.
    assert rig.backend.sent[0][0].tolist() == [0.5, 0.5, 1, 0]
    assert rig.backend.sent[1][0].tolist() == [0.5, 0.5, 1]


def test_a_step_waits_for_what_is_asked_for_and_does_what_is_here():
    rig = Rig()
    rig.give("a", "b", "c")
    rig.sums.ask_for_step()
    assert rig.sums.num_due == 3
    assert rig.values() == [0, 0, 0]
    rig.sums.finish([])
    rig.backend.sent[0][2].is_here = True
    rig.sums.finish([rig.parameters["a"]])
    # The sum of c was complete during the wait for a.
    assert rig.values() == [-0.5, 0, -0.5]
    assert rig.sums.num_due == 1
    rig.sums.finish_all()
    assert rig.values() == [-0.5] * 3
    assert len(rig.ended) == 3


def test_what_is_missing_is_sent_with_the_step():
    rig = Rig()
    rig.give("a")
    rig.sums.ask_for_step()
    # No rank had a gradient for c: it counts as zeros and gets no step.
    assert rig.backend.sent[0][0].tolist() == [0, 0, 0, 0]
    rig.optimizer.param_groups[0]["weight_decay"] = 0.5
    rig.sums.finish_all()
    assert rig.values() == [-0.5, 0, 0]
    assert all(p.grad is None for p in rig.parameters.values())


def test_what_is_missing_is_sent_when_a_backward_ends_that_had_gradients():
    rig = Rig()
    rig.sums.end_backward()
    assert rig.backend.sent == []
    rig.give("a")
    rig.sums.end_backward()
    assert len(rig.backend.sent) == 3
    rig.sums.ask_for_step()
    rig.sums.finish_all()
    assert rig.values() == [-0.5, 0, 0]
    rig.sums.end_backward()
    assert len(rig.backend.sent) == 3


def test_a_bucket_that_is_due_is_stepped_before_it_is_sent_again():
    rig = Rig()
    rig.give("a", "b", "c")
    rig.sums.ask_for_step()
    rig.sums.finish([rig.parameters["a"], rig.parameters["b"]])
    rig.give("a", "b", value=2.0)
    rig.sums.ask_for_step()  # c was not used in this step
    rig.sums.finish_all()
    assert rig.values() == [-1.5, -1.5, -0.5]


def test_a_bucket_that_is_due_is_not_taken_for_one_that_is_full():
    rig = Rig()
    rig.give("a", "b", "c")
    rig.sums.ask_for_step()
    rig.sums.finish([rig.parameters["a"], rig.parameters["b"]])
    rig.give("a", "b")
    assert len(rig.backend.sent) == 3


def test_a_signal_is_known_once_the_step_is_done():
    rig = Rig()
    rig.sums.signal = True
    rig.give("a", "b", "c")
    rig.sums.ask_for_step()
    assert not rig.sums.was_signalled
    rig.sums.finish_all()
    assert rig.sums.was_signalled
    rig.sums.signal = False
    rig.give("a", "b", "c")
    rig.sums.ask_for_step()
    rig.sums.finish_all()
    assert not rig.sums.was_signalled


def test_gradients_of_parameters_that_are_due_or_sent_are_refused():
    rig = Rig()
    rig.give("c")
    with pytest.raises(ConfigError, match="c has a gradient for the second time"):
        rig.give("c")
    rig = Rig()
    rig.give("a", "b", "c")
    rig.sums.ask_for_step()
    with pytest.raises(ConfigError, match="a has a gradient, but its last step is"):
        rig.give("a")


def test_a_group_of_another_size_is_refused():
    rig = Rig()
    rig.backend.place = (0, 3)
    with pytest.raises(ConfigError, match="has 3 members now and had 2"):
        rig.give("c")


def test_gradients_that_were_waited_for_are_stepped_at_once():
    rig = Rig()
    rig.give("a", "b", "c")
    rig.sums.wait_for_gradients()
    rig.parameters["a"].grad.mul_(4)
    rig.sums.ask_for_step()
    assert rig.values() == [-2.0, -0.5, -0.5]
    assert rig.sums.num_due == 0
    rig.give("a", "b", "c")
    rig.sums.ask_for_step()
    assert rig.sums.num_due == 3  # the buckets of the next step are not complete


class Plain(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_modes_of_the_forward_do_not_reach_the_step():
    rig = Rig()
    rig.optimizer.param_groups[0]["momentum"] = 0.9
    seen = []
    step = rig.optimizer.step

    def watched():
        seen.append(
            (
                torch.is_inference_mode_enabled(),
                torch.is_autocast_enabled("cpu"),
                _get_current_dispatch_mode(),
            )
        )
        step()

    rig.sums._step = watched
    rig.give("a", "b", "c")
    rig.sums.ask_for_step()
    with torch.inference_mode(), torch.autocast("cpu"), Plain():
        rig.sums.finish_all()
    assert seen == [(False, False, None)] * 3
    states = rig.optimizer.state.values()
    assert not any(state["momentum_buffer"].is_inference() for state in states)


def test_it_works_with_the_real_backend(group_of_one):
    rig = Rig(backend_of(None))
    for _ in range(3):
        rig.give("a", "b", "c")
        rig.sums.ask_for_step()
        rig.sums.finish_all()
    assert rig.values() == [-3.0] * 3
