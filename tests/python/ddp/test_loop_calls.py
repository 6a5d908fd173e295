# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""In a group of one; tests/python/multiproc/test_loop_calls.py has late ranks."""

import sys

import torch.distributed as dist

from aikido_torch._backend import backend_of
from aikido_torch.ddp._loop_calls import LoopCalls


def test_a_rank_that_is_alone_reduces_on_the_group_of_the_model(group_of_one):
    group = dist.group.WORLD
    for skips in (False, True):
        calls = LoopCalls(group, number=0, skips=skips, check="warn")
        assert calls.buckets is backend_of(group)
        assert not calls.has_own_group
        assert calls.why_shared == ""
        calls.closing()()


def test_meeting_steps_limit_catch_up_everywhere(group_of_one):
    calls = LoopCalls(dist.group.WORLD, number=0, skips=True, check="warn")
    assert calls.begin(0) == sys.maxsize
    calls.end(0)
    assert not calls.is_due(10, 0)
    calls.on_hook(0)
    assert calls.begin(1) == 10
    assert calls.limit(1, begun=5) == sys.maxsize
    assert calls.allowed(1, begun=5) == 10
    calls.end(10)
    assert calls.is_due(10, 10)
    calls.check()
