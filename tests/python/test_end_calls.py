# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Calls of a group before its end."""

from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist

from aikido_torch._backend import backend_of
from aikido_torch._end_calls import call_at_end


class Backend:
    """The part of a group that calls at its end."""

    def set_end_hook(self, hook):
        self.end = hook


def test_all_calls_of_a_group_run_in_order_and_a_later_one_replaces_its_name():
    seen, backend = [], Backend()
    for name, value in (("states", 1), ("slack", 2), ("states", 3)):
        call_at_end(backend, name, partial(lambda v, s: seen.append((v, s)), value))
    other = Backend()
    call_at_end(other, "states", lambda _: seen.append("other"))
    backend.end(timedelta(seconds=4))
    assert seen == [(3, timedelta(seconds=4)), (2, timedelta(seconds=4))]


def test_an_error_of_one_call_does_not_keep_the_next_from_running():
    seen, backend = [], Backend()

    def fail(_):
        raise ValueError("of the first")

    call_at_end(backend, "first", fail)
    call_at_end(backend, "second", seen.append)
    with pytest.raises(ValueError, match="of the first"):
        backend.end(timedelta(0))
    assert len(seen) == 1


def test_the_group_works_while_its_calls_run(group_of_one):
    seen = []

    def call(_):
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        seen.append(tensor.tolist())

    call_at_end(backend_of(None), "one", call)
    call_at_end(backend_of(None), "two", call)
    dist.destroy_process_group()
    assert seen == [[1.0, 1.0]] * 2
