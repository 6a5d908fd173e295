# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Calls on a user stream run after the pending work of that stream."""

import time

import pytest
import torch
import torch.distributed as dist

from aikido_torch.testing import run_ranks

CYCLES = 500_000_000  # about 0.3 s


def write_to_what_a_stream_still_fills(rank, size):
    """A side stream fills each output late; the result of the call must remain."""
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
                # Copied on this stream; no other stream was told to wait for the call.
                if not bool((out.cpu() == 5.0).all()):
                    wrong.append(f"{name}, {layout}: read before it was there")
            torch.cuda.synchronize()
            if not bool((out.cpu() == 5.0).all()):
                wrong.append(f"{name}, {layout}: written over")
    return wrong


@pytest.mark.gpu
def test_the_result_of_a_call_comes_after_the_pending_work_of_the_stream():
    assert run_ranks(2, write_to_what_a_stream_still_fills) == [[]] * 2


def drive_a_device(rank, size):
    """Waits of the host on a real device, results, and refused calls."""
    torch.cuda.init()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    found = {}
    count = 16 << 20  # large enough to be split into parts
    big = (torch.arange(count, device="cuda") % 1000 + rank).float()
    dist.all_reduce(big.clone())  # creates streams, pinned memory and links
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    began = time.perf_counter()
    work = dist.all_reduce(big, async_op=True)
    small = torch.ones(1)
    behind = dist.all_reduce(small, async_op=True)
    found["returned in ms"] = 1e3 * (time.perf_counter() - began)
    work.wait()
    doubled = big * 2  # queued on this stream after the result
    behind.wait()
    expected = size * (torch.arange(count, device="cuda") % 1000) + sum(range(size))
    found["sum"] = bool((doubled == 2 * expected).all()) and small.item() == size
    # Dropped works and tensors.
    for _ in range(20):
        tensor = torch.full((1 << 20,), float(rank), device="cuda")
        dist.all_reduce(tensor, async_op=True)
        del tensor
        torch.full((1 << 20,), -1.0, device="cuda")
    (kept,) = (
        dist.all_reduce(torch.ones(4, device="cuda"), async_op=True).get_future().wait()
    )
    found["future"] = kept.tolist() == [float(size)] * 4
    tensor = torch.ones(4, device="cuda")
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            dist.all_reduce(tensor)
    except RuntimeError as error:
        found["captured"] = "captures a graph" in str(error)
    torch.cuda.synchronize()
    dist.all_reduce(tensor)
    found["after"] = tensor.tolist() == [float(size)] * 4
    return found


@pytest.mark.gpu
def test_a_call_returns_at_once_and_its_result_follows_the_order_of_the_stream():
    for found in run_ranks(2, drive_a_device):
        assert found.pop("returned in ms") < 100  # less than the sleep alone
        assert found == dict.fromkeys(("sum", "future", "captured", "after"), True)


def run_out_of_memory(rank, size):
    torch.cuda.set_device(rank % torch.cuda.device_count())
    gaps = torch.ones(1 << 20, 2, device="cuda")[:, 0]  # is copied on the device first
    if rank == 0:
        torch.cuda.set_per_process_memory_fraction(1e-9)
    try:
        dist.all_reduce(gaps)
        sentence = ""
    except RuntimeError as error:
        sentence = str(error)
    torch.cuda.set_per_process_memory_fraction(1.0)
    after = torch.ones(4, device="cuda")
    dist.all_reduce(after)
    return sentence, after.tolist()


@pytest.mark.gpu
def test_out_of_device_memory_fails_only_that_call():
    (own, first), (told, second) = run_ranks(2, run_out_of_memory)
    assert (
        "all_reduce on rank 0: the copy to the host of 4194304 bytes of cuda:0" in own
    )
    assert "all_reduce on rank 0: it failed there" in told
    assert first == second == [2.0] * 4
