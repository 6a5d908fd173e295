# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import sys
import warnings

import pytest
import torch
import torch.distributed as dist

from aikido_torch.ddp._losses import CallNames, Losses


def test_each_kind_is_told_once_at_the_line_of_the_user(recwarn):
    losses = Losses()
    for _ in range(3):
        losses.tell("a", "first")
        losses.tell("b", "second", ("train.py", 7))
    assert losses.told == ["first", "second"]
    assert [str(w.message) for w in recwarn.list] == ["first", "second"]
    assert recwarn.list[0].filename == __file__
    assert (recwarn.list[1].filename, recwarn.list[1].lineno) == ("train.py", 7)


def test_a_forgotten_catch_up_is_told_and_a_called_one_is_not():
    forgotten, called = Losses(), Losses()
    called.on_catch_up()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        for _ in range(20):
            forgotten.on_own_step()
            called.on_own_step()
    assert len(forgotten.told) == 1
    assert "while (step := step + handle.catch_up()) < steps" in forgotten.told[0]
    assert called.told == []


def test_calls_of_one_step_are_found_with_their_lines(group_of_one):
    names = CallNames()
    names.begin()
    dist.barrier()
    dist.broadcast(torch.zeros(1), 0)
    names.end()
    dist.all_reduce(torch.zeros(1))
    assert set(names.found) == {"barrier", "broadcast"}
    assert names.found["barrier"][0] == __file__
    assert sys.getprofile() is None


def test_the_profiler_of_the_user_stays():
    def own(*_):
        return None

    sys.setprofile(own)
    try:
        names = CallNames()
        names.begin()
        names.end()
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_broadcast_is_no_loss_where_buckets_have_a_group_of_their_own(is_shared):
    losses = Losses()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        losses.tell_calls(1, {"broadcast": ("train.py", 3)}, is_shared=is_shared)
    assert len(losses.told) == is_shared
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = {"broadcast": ("train.py", 3), "all_reduce": ("train.py", 5)}
        Losses().tell_calls(2, found, is_shared=is_shared)
    assert "all_reduce" in str(seen[0].message)
    assert seen[0].filename == "train.py"
