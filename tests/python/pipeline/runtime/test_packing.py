# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.runtime._packing import MESSAGE_BYTES, Promise

CPU = torch.device("cpu")
FULL = (
    torch.arange(12.0).view(4, 3).requires_grad_(),
    torch.arange(4),
    torch.ones(4, 2, 1, dtype=torch.bfloat16),
    torch.tensor(7.5),
)


def rows(count):
    return tuple(t[:count] if t.dim() else t for t in FULL)


def test_a_promise_is_unchanged_by_its_message():
    promise = Promise.of(FULL)
    message = Promise.message_of(promise)
    assert (message.numel(), message.dtype) == (MESSAGE_BYTES, torch.uint8)
    assert Promise.from_message(message) == promise
    assert Promise.from_message(Promise.message_of(None)) is None
    assert [t.needs_gradient for t in promise.tensors] == [True, False, False, False]
    assert [t.shape for t in promise.gradients.tensors] == [(4, 3)]


@pytest.mark.parametrize("count", [4, 3, 1, 0])
def test_rows_up_to_the_promise_are_unpacked_without_a_copy(count):
    promise = Promise.of(FULL)
    packed = promise.pack(rows(count), count / 4, CPU)
    assert packed.overflow is None
    assert packed.buffer.numel() == promise.num_bytes
    content = promise.unpack(packed.buffer)
    assert (content.weight, content.overflow_rows) == (count / 4, None)
    memory = packed.buffer.untyped_storage().data_ptr()
    for got, wanted in zip(content.tensors, rows(count), strict=True):
        assert got.dtype == wanted.dtype
        assert torch.equal(got, wanted)
        assert got.untyped_storage().data_ptr() == memory
        assert not got.requires_grad


def test_more_rows_follow_in_their_own_message():
    promise = Promise.of(rows(2))
    packed = promise.pack(FULL, 2.0, CPU)
    assert packed.buffer.numel() == promise.num_bytes
    content = promise.unpack(packed.buffer)
    assert (content.tensors, content.weight) == ((), 2.0)
    assert content.overflow_rows == (4, 4, 4, 1)
    larger = promise.of_rows(content.overflow_rows)
    assert packed.overflow.numel() == larger.num_bytes
    for got, wanted in zip(larger.tensors_in(packed.overflow), FULL, strict=True):
        assert torch.equal(got, wanted)


def test_strided_tensors_and_no_tensors_are_packed():
    strided = (torch.arange(12.0).view(3, 4).t(),)
    promise = Promise.of(strided)
    (got,) = promise.unpack(promise.pack(strided, 1.0, CPU).buffer).tensors
    assert torch.equal(got, strided[0])
    nothing = Promise.of(())
    content = nothing.unpack(nothing.pack((), 0.5, CPU).buffer)
    assert (content.tensors, content.weight) == ((), 0.5)
    empty = promise.unpack(promise.pack(None, 0.0, CPU).buffer)
    assert [tuple(t.shape) for t in empty.tensors] == [(0, 3)]


@pytest.mark.parametrize(
    "other",
    [
        (torch.zeros(4, 2),),
        (torch.zeros(4, 3, 1),),
        (torch.zeros(4, 3, dtype=torch.float64),),
        (torch.zeros(4, 3), torch.zeros(1)),
        (),
        (torch.tensor(1.0),),
    ],
)
def test_differences_other_than_rows_are_refused(other):
    promise = Promise.of((torch.zeros(4, 3),))
    promise.check((torch.zeros(9, 3),), 2, 5)
    with pytest.raises(
        ConfigError, match=r"^stage 2 returned for micro-batch 5 .*, and "
    ):
        promise.check(other, 2, 5)


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        (True, "with need of a gradient, and before without; either"),
        (False, "without need of a gradient, and before with; either"),
    ],
)
def test_a_tensor_must_need_a_gradient_always_or_never(needs, text):
    def output(needs):
        return torch.zeros(4, 2), torch.zeros(4, 3, requires_grad=needs)

    promise = Promise.of(output(not needs))
    promise.check(output(not needs), 2, 5)
    text = f"^stage 2 returned tensor 1 of micro-batch 5 {text} "
    with pytest.raises(ConfigError, match=text):
        promise.check(output(needs), 2, 5)


def test_too_many_tensors_for_a_promise_are_refused():
    many = Promise.of([torch.zeros(1, 2, 3)] * 200)
    with pytest.raises(ConfigError, match=r"^a stage returns 200 tensors, more than "):
        Promise.message_of(many)
