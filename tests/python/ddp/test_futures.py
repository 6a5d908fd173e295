# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""With one rank; tests/python/multiproc/test_returns.py has calls that fail."""

import datetime

import pytest
import torch
import torch.distributed as dist

from aikido_torch._backend import backend_of
from aikido_torch.ddp._futures import future_of
from aikido_torch.straggler import WaitAll


def test_the_future_of_a_call_has_the_value_that_was_given(group_of_one):
    tensor, value = torch.ones(2), torch.zeros(3)
    no_limit = datetime.timedelta(milliseconds=-1)
    op = dist.ReduceOp(dist.ReduceOp.SUM)
    work = backend_of(None).all_reduce(tensor, op, WaitAll().native(), 0, no_limit)
    assert future_of(work, value, pytest.fail).wait() is value
