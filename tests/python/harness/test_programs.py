# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The random programs themselves, without running them."""

import pickle
from collections import Counter

import pytest
import torch

from harness.execution import differences
from harness.operations import Messages
from harness.programs import KINDS, Step, program, shorter


def steps_of(numbers):
    steps = [step for number in numbers for step in program(number).steps]
    return [step for step in steps if isinstance(step, Step)]


def test_a_number_always_gives_the_same_program():
    for number in range(20):
        one = program(number)
        assert one == program(number)
        assert one == pickle.loads(pickle.dumps(one))
        assert f"program {number} of {one.size} ranks" in str(one)
    assert program(3) != program(4)


def test_the_programs_of_one_test_run_cover_everything():
    steps = steps_of(range(24))
    kinds = Counter(type(step.operation).__name__ for step in steps)
    assert len(kinds) == len(KINDS)
    assert min(kinds.values()) >= 10
    assert {step.ending for step in steps} == set(Step.ENDINGS)
    assert {program(n).size for n in range(24)} == {2, 3, 4}
    hows = {group.how for n in range(24) for group in program(n).groups}
    assert hows == {"new_group", "split_group", "local"}


def test_messages_with_equal_keys_are_received_in_the_order_of_sending():
    num_mixed = 0
    for step in steps_of(range(300)):
        operation = step.operation
        if not isinstance(operation, Messages):
            continue
        order = operation.receiving
        assert sorted(order) == list(range(len(operation.messages)))
        num_mixed += list(order) != sorted(order)
        last = {}
        for i in order:
            message = operation.messages[i]
            key = (message.giver, message.taker, message.tag)
            assert last.get(key, -1) < i
            last[key] = i
    assert num_mixed > 50


@pytest.mark.parametrize(
    ("guilty", "named"), [({7}, 7), ({3, 20}, 20), ({0, 31}, None)]
)
def test_a_failing_program_is_shortened_to_the_steps_that_fail(guilty, named):
    whole = program(5)
    tries = shorter(whole, named)
    shortest, still_fails, num_tries = whole, None, 0
    while True:
        try:
            part = tries.send(still_fails)
        except StopIteration:
            break
        num_tries += 1
        still_fails = guilty <= {step.number for step in part.steps}
        if still_fails:
            shortest = part
    assert {step.number for step in shortest.steps} == guilty
    assert num_tries < 40


def test_every_kind_of_difference_is_described():
    ones = torch.ones(3)
    other = torch.tensor([1.0, 2.0, 1.0])
    assert differences([ones, 5], [ones, 5], exact=True) == []
    assert differences([ones], [], exact=True) == ["1 results instead of 0"]
    assert differences([5], [6], exact=True) == ["result 0 is 5, not 6"]
    assert differences([ones], [other], exact=True) == [
        "result 0: 1 of 3 elements differ, the first at 1: 1.0, not 2.0"
    ]
    assert differences([ones], [ones.double()], exact=True) == [
        "result 0: torch.float32 of [3], not torch.float64 of [3]"
    ]
    zeros = torch.zeros(1)
    assert differences([zeros], [-zeros], exact=True) == [
        "result 0: the same values with other bits"
    ]
    nearly = ones * (1 + 2**-23)
    assert differences([ones], [nearly], exact=False) == []
    assert differences([ones], [nearly], exact=True) != []
