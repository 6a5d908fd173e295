# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A rank without free file descriptors reports it long before the time-out."""

import os
import resource
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from aikido_torch import Options
from aikido_torch.errors import AikidoError
from aikido_torch.testing import run_ranks

TIMEOUT_S = 6


def allow_no_more():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))


def make_another_group(rank, size, poor):
    """Error on rank `poor`, which has no free descriptors, and seconds until then."""
    if rank == poor:
        allow_no_more()
    start = time.perf_counter()
    try:
        dist.new_group(timeout=timedelta(seconds=TIMEOUT_S))
    except AikidoError as error:
        return str(error), time.perf_counter() - start
    return "made", torch.inf


# Rank 0 accepts the connection of the other rank.
@pytest.mark.parametrize("poor", [0, 1])
def test_a_rank_without_descriptors_fails_soon(poor):
    options = Options(transport_handshake_timeout_ms=300)
    results = run_ranks(2, make_another_group, poor, options=options, rendezvous="tcp")
    text, taken_s = results[poor]
    assert "EMFILE (Too many open files); raise the limit of open files" in text
    assert taken_s < TIMEOUT_S / 2
