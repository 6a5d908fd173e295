# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from aikido_torch.errors import ConfigError
from aikido_torch.overlap._flat_bucket import FlatBucket


def make(sizes=((2, 3), (4,)), **options):
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    names = [f"p{i}" for i in range(len(sizes))]
    return parameters, FlatBucket(names, parameters, **options)


def taken():
    parameters, bucket = make()
    for i, p in enumerate(parameters):
        p.grad = torch.full_like(p, i + 1.0)
        bucket.take(p, 0.5)
    return parameters, bucket


def test_gradients_lie_one_behind_another_and_then_who_had_one():
    parameters, bucket = taken()
    assert bucket.is_full
    assert bucket.buffer.tolist() == [0.5] * 6 + [1.0] * 4 + [1.0, 1.0]
    bucket.buffer.data[0] = 7  # as if it were reduced
    assert parameters[0].grad[0, 0] == 7


def test_what_nobody_had_is_none_and_what_others_had_is_theirs():
    parameters, bucket = make(((2,), (2,), (2,)))
    parameters[0].grad = torch.ones(2)
    bucket.take(parameters[0], 1.0)
    assert not bucket.is_full
    bucket.complete(1.0)
    assert bucket.is_full
    assert bucket.buffer.tolist() == [1, 1, 0, 0, 0, 0, 1, 0, 0]
    bucket.buffer.data.copy_(torch.tensor([2.0, 2, 5, 5, 0, 0, 2, 1, 0]))
    bucket.detach()
    assert all(p.grad is None for p in parameters)
    assert bucket.attach() == parameters[:2]
    assert parameters[1].grad.tolist() == [5, 5]
    assert parameters[2].grad is None


def test_what_was_accumulated_counts_without_being_taken():
    parameters, bucket = make(((2,),))
    parameters[0].grad = torch.ones(2)
    bucket.complete(0.5)
    assert bucket.buffer.tolist() == [0.5, 0.5, 1]


def test_it_fills_anew_after_clear():
    parameters, bucket = taken()
    bucket.detach()
    bucket.attach()
    bucket.clear()
    assert not bucket.is_full
    assert all(p.grad is None for p in parameters)
    for p in parameters:
        p.grad = torch.full_like(p, 3.0)
        bucket.take(p, 1.0)
    assert bucket.buffer.tolist() == [3.0] * 10 + [1.0, 1.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p.grad.mul_(2), "p0, p1 was changed"),
        (lambda p: setattr(p, "grad", None), "p1 was replaced or dropped"),
        (lambda p: setattr(p, "grad", torch.ones(4)), "p1 was replaced or dropped"),
    ],
)
def test_a_gradient_that_is_being_summed_must_be_left_alone(change, words):
    parameters, bucket = taken()
    change(parameters[1])
    with pytest.raises(ConfigError, match=f"(?s){words}.*wait_for_gradients"):
        bucket.detach()


def test_a_write_is_noticed_before_it_is_taken_for_one_of_ours():
    parameters, bucket = make()
    parameters[0].grad = torch.ones(2, 3)
    bucket.take(parameters[0], 1.0)
    parameters[0].grad.mul_(2)
    parameters[1].grad = torch.ones(4)
    with pytest.raises(ConfigError, match="was changed"):
        bucket.take(parameters[1], 1.0)


def test_a_gradient_for_one_that_had_none_is_noticed():
    parameters, bucket = make()
    bucket.complete(1.0)
    parameters[0].grad = torch.ones(2, 3)
    with pytest.raises(ConfigError, match="p0 was replaced"):
        bucket.detach()


def test_what_is_released_may_be_changed_and_replaced():
    parameters, bucket = taken()
    bucket.release()
    parameters[0].grad.mul_(4)
    parameters[1].grad = torch.full((4,), 9.0)
    bucket.release()  # the second call changes nothing
    bucket.detach()
    assert bucket.attach() == parameters
    assert parameters[0].grad.tolist() == [[2.0] * 3] * 2
    assert parameters[1].grad.tolist() == [9.0] * 4


def test_what_was_changed_before_the_sums_are_here_is_not_released():
    parameters, bucket = taken()
    parameters[0].grad.mul_(4)
    with pytest.raises(ConfigError, match="was changed"):
        bucket.release()


def test_signals_travel_with_it_and_are_gone_after_clear():
    _, bucket = make(num_signals=1)
    bucket.signal(0)
    bucket.complete(1.0)
    bucket.detach()  # it does not count as a change by the user
    assert bucket.buffer[-1] == 1
    bucket.clear()
    assert bucket.signals.tolist() == [0]


def test_gradients_have_the_layout_of_their_parameter():
    p = torch.nn.Parameter(
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    )
    bucket = FlatBucket(["p"], [p])
    p.grad = torch.randn(2, 3, 4, 5)
    wanted = p.grad.clone()
    bucket.take(p, 1.0)
    assert p.grad.stride() == p.stride()
    assert torch.equal(p.grad, wanted)
