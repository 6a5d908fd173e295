# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Calls on a stream of the caller's own: after what is pending there."""

import pytest
import torch
import torch.distributed as dist

from aikido_torch.testing import run_ranks

CYCLES = 500_000_000  # some tenths of a second


def write_to_what_a_stream_still_fills(rank, size):
    """Each output is filled late on a side stream; what the call wrote must stay."""
    torch.cuda.init()
    dist.barrier()
    shapes = {"dense": (4, 4), "strided": (4, 8)}
    calls = {
        "broadcast": lambda out: dist.broadcast(out, src=0, async_op=True),
        "scatter": lambda out: dist.scatter(out, None, src=0, async_op=True),
        "recv": lambda out: dist.irecv(out, 0),
    }
    wrong = []
    for name, call in calls.items():
        for layout, shape in shapes.items():
            given = torch.full((4, 4), 5.0, device="cuda")
            if rank == 0:
                {
                    "broadcast": lambda t: dist.broadcast(t, src=0),
                    "scatter": lambda t: dist.scatter(t.clone(), [t] * size, src=0),
                    "recv": lambda t: dist.send(t, 1),
                }[name](given)
                continue
            side = torch.cuda.Stream()
            out = torch.zeros(shape, device="cuda")[:, :: shape[1] // 4]
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                torch.cuda._sleep(CYCLES)
                out.fill_(-1.0)
                call(out).wait()
            # Nobody has told another stream to wait for it.
            if not bool((out.cpu() == 5.0).all()):
                wrong.append(f"{name}, {layout}: read before it was there")
            torch.cuda.synchronize()
            if not bool((out.cpu() == 5.0).all()):
                wrong.append(f"{name}, {layout}: written over")
    return wrong


@pytest.mark.gpu
def test_what_a_call_writes_comes_after_what_is_pending_on_the_stream():
    assert run_ranks(2, write_to_what_a_stream_still_fills) == [[]] * 2
