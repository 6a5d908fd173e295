# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import threading

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from aikido_torch import trace
from aikido_torch._backend import recorder_of_process
from aikido_torch.errors import ConfigError
from aikido_torch.trace.record import _record
from aikido_torch.trace.record._spans import Kind


@pytest.fixture
def parts(group_of_one):
    trace.stop()
    _record.take()
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=2)
    return model, optimizer, loader


def train(model, optimizer, loader):
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


def sections(dump):
    spans = sorted(
        (s for s in dump.spans if s.kind == Kind.SECTION), key=lambda s: s[0]
    )
    return [(s.step, dump.names[s.name]) for s in spans]


def test_each_part_of_each_step_is_recorded_in_its_order(parts):
    watch = trace.watch(*parts, first_step=40)
    trace.start()
    train(*parts)
    trace.stop()
    expected = [
        (step, name)
        for step in range(40, 46)
        for name in ("data", "forward", "backward", "optimizer")
    ]
    assert sections(_record.take()) == expected
    assert watch.step == 46
    watch.remove()


def test_before_start_steps_are_counted_and_not_recorded(parts):
    watch = trace.watch(*parts)
    train(*parts)
    assert _record.take().spans == []
    assert watch.step == 6
    watch.remove()


def test_a_removed_watch_records_nothing_and_restores_the_loader(parts):
    loader = parts[2]
    watch = trace.watch(*parts)
    assert isinstance(loader, DataLoader)
    watch.remove()
    assert type(loader) is DataLoader
    trace.start()
    train(*parts)
    trace.stop()
    assert sections(_record.take()) == []


def num_hooks(model, optimizer):
    """Number of hooks on each part of a step, which must be equal."""
    counts = {
        len(model._forward_pre_hooks),
        len(model._forward_hooks),
        len(optimizer._optimizer_step_pre_hooks),
    }
    assert len(counts) == 1
    return counts.pop()


def test_parts_have_hooks_while_something_is_recorded(parts):
    model, optimizer, _ = parts
    watch = trace.watch(model, optimizer)
    assert num_hooks(model, optimizer) == 0
    trace.start()
    assert num_hooks(model, optimizer) == 1
    trace.stop()
    train(*parts)
    assert num_hooks(model, optimizer) == 0
    recorder_of_process().arm_steps(watch.step + 1, watch.step + 1)
    assert num_hooks(model, optimizer) == 0
    watch.step += 1
    assert num_hooks(model, optimizer) == 1
    watch.remove()
    assert num_hooks(model, optimizer) == 0
    assert not optimizer._optimizer_step_post_hooks
    recorder_of_process().disarm()


def test_a_watch_that_begins_during_a_recording_sees_the_first_step(parts):
    trace.start()
    watch = trace.watch(*parts)
    train(*parts)
    trace.stop()
    assert [name for step, name in sections(_record.take()) if step == 0] == [
        "data", "forward", "backward", "optimizer",
    ]  # fmt: skip
    watch.remove()


def test_a_recording_from_another_thread_begins_with_the_next_step(parts):
    model, optimizer, _ = parts
    watch = trace.watch(*parts)
    thread = threading.Thread(target=trace.start)
    thread.start()
    thread.join()
    assert num_hooks(model, optimizer) == 0
    train(*parts)
    trace.stop()
    seen = sections(_record.take())
    assert [name for step, name in seen if step == 0] == ["data"]
    assert [name for step, name in seen if step == 1] == [
        "data", "forward", "backward", "optimizer",
    ]  # fmt: skip
    watch.remove()


def test_a_forward_without_gradients_has_no_backward(parts):
    model = parts[0]
    watch = trace.watch(*parts)
    trace.start()
    with torch.no_grad():
        model(torch.zeros(1, 4))
    trace.stop()
    assert sections(_record.take()) == [(0, "forward")]
    watch.remove()


def test_a_backward_after_a_failed_backward_is_recorded(parts):
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, _):
            raise ArithmeticError

    model, optimizer, _ = parts
    watch = trace.watch(model, optimizer)
    trace.start()
    with pytest.raises(ArithmeticError):
        model(Failing.apply(torch.zeros(1, 4, requires_grad=True))).sum().backward()
    optimizer.step()
    model(torch.zeros(1, 4)).sum().backward()
    optimizer.step()
    trace.stop()
    assert sections(_record.take()) == [
        (0, "forward"), (0, "optimizer"),
        (1, "forward"), (1, "backward"), (1, "optimizer"),
    ]  # fmt: skip
    watch.remove()


def test_outputs_can_be_nested(parts):
    class Nested(torch.nn.Module):
        def forward(self, x):
            return {"a": [x * 2], "b": (x * 3, None)}

    _, optimizer, _ = parts
    model = Nested()
    watch = trace.watch(model, optimizer)
    trace.start()
    out = model(torch.zeros(1, requires_grad=True))
    (out["a"][0] + out["b"][0]).backward()
    trace.stop()
    assert [name for _, name in sections(_record.take())] == ["forward", "backward"]
    watch.remove()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({0: "net"}, "model is 'net'"),
        ({1: None}, "optimizer is None"),
        ({2: 3}, "loader is 3"),
        ({2: [1, 2]}, "the class of a list cannot be extended"),
    ],
)
def test_arguments_of_a_wrong_type_give_a_clear_error(parts, change, text):
    arguments = list(parts)
    for i, value in change.items():
        arguments[i] = value
    with pytest.raises(ConfigError, match=text):
        trace.watch(*arguments)
