# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tensors on a device: effects of streams, copies and their failures on a call.

The device is a fake in host memory (harness/fake_device.py), so the tests run anywhere.
Tests of a real device are in test_streams.py.
"""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch.errors import AikidoError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import run_ranks
from harness import fake_device
from harness.every_call import all_calls, flat_calls
from harness.failures import raised
from harness.fake_device import DEVICE, late, plain, stream, strided

fake = torch.ops.fake
MIB = 1 << 20


def run(size, program, *args, **options):
    """Runs `program` on `size` ranks with the fake device."""
    return run_ranks(size, with_device, fake_device.library(), program, args, **options)


def with_device(rank, size, library, program, args):
    fake_device.install(library)
    return program(rank, size, *args)


def on_device(values, **options):
    return torch.tensor(values, **options).to(DEVICE)


# ---- the order of calls


def call_behind_a_late_stream(rank, size):
    slow = torch.empty(4, device=DEVICE)
    sent = torch.empty(1, device=DEVICE)
    host = torch.full((4,), rank + 1.0)
    got = torch.zeros(2)
    if rank == 0:
        late(slow, 1.0, 500)
        sent.fill_(5.0)
    else:
        slow.fill_(2.0)
    works = [dist.all_reduce(slow, async_op=True)]
    works.append(dist.all_reduce(host, async_op=True))
    if rank == 0:
        works.append(dist.isend(sent, 1))
        works.append(dist.isend(torch.tensor([6.0]), 1))
    else:
        works += [dist.irecv(got[:1], 0), dist.irecv(got[1:], 0)]
    refusal = raised(lambda: dist.all_reduce(torch.ones(1).expand(4)))
    after = dist.all_reduce(torch.ones(1), async_op=True)
    has_waited = rank == 0 and fake.is_idle()
    early = [work.is_completed() for work in works]
    for work in (*works, after):
        work.wait()
    numbers = dist.group.WORLD._get_backend(torch.device("cpu")).num_calls
    sums = (slow.cpu().tolist(), host.tolist(), got.tolist())
    return has_waited, any(early[:2]), type(refusal).__name__, numbers, sums


def test_calls_keep_their_order_and_none_waits_for_the_device():
    first, second = run(2, call_behind_a_late_stream)
    sums = ([3.0] * 4, [3.0] * 4)
    assert first == (False, False, "ConfigError", 4, (*sums, [0.0, 0.0]))
    assert second == (False, False, "ConfigError", 4, (*sums, [5.0, 6.0]))


# ---- every call


def compare_with_the_host(rank, size):
    expected = all_calls(rank, size, torch.clone)
    expected_flat = flat_calls(size, rank, torch.clone)
    found = [
        t.cpu() for place in (plain, strided) for t in all_calls(rank, size, place)
    ]
    flat = [t.cpu() for t in flat_calls(size, rank, plain)]
    wanted = 2 * expected + expected_flat
    return [
        i
        for i, (a, b) in enumerate(zip(found + flat, wanted, strict=True))
        if not torch.equal(a, b)
    ]


def test_every_call_gives_the_same_result_on_a_device_as_on_the_host():
    assert run(3, compare_with_the_host) == [[]] * 3


# ---- streams and lifetimes


def wait_and_compute(rank, size):
    tensor = torch.full((1000,), rank + 1.0).to(DEVICE)
    before = fake.waiting_copies()
    fake.set("copy_ms", 300)
    work = dist.all_reduce(tensor, async_op=True)
    was_early = work.is_completed()
    with stream(5):
        work.wait()
        was_there = work.is_completed()
        fake.set("copy_ms", 0)
        doubled = torch.empty(1000, device=DEVICE)
        doubled.copy_(tensor)  # queued after the result
    num_waiting = fake.waiting_copies() - before
    fake.synchronize()
    return (
        was_early,
        was_there,
        num_waiting,
        work.is_completed(),
        doubled.cpu().unique().tolist(),
    )


def test_wait_blocks_the_stream_and_not_the_host():
    # The copy to the device starts when the work completes, and takes 300 ms.
    assert run(2, wait_and_compute) == [(False, False, 0, True, [3.0])] * 2


def drop_everything(rank, size):
    """Tensors and works are dropped; freed memory is poisoned."""
    kept = torch.zeros(4, device=DEVICE)
    fake.set("copy_ms", 20)
    for number in range(3):
        tensor = late(torch.empty(4, device=DEVICE), rank + number, 10)
        dist.all_reduce(tensor, async_op=True)
        del tensor
    if rank == 0:
        dist.isend(late(torch.empty(4, device=DEVICE), 7.0, 50), 1)
        late(kept, 1.0, 50)
    else:
        dist.recv(kept, 0)
    last = torch.ones(4, device=DEVICE)
    dist.all_reduce(last, async_op=True)
    dist.barrier()  # completes the earlier calls, on any stream
    fake.set("copy_ms", 0)  # the copies below do not wait
    with stream(6):
        found = [t.cpu().tolist() for t in (kept, last)]
    fake.synchronize()
    return (*found, fake.uses_of_freed_memory())


def test_dropping_a_work_or_a_tensor_loses_no_data():
    assert run(2, drop_everything) == [
        ([1.0] * 4, [2.0] * 4, 0),
        ([7.0] * 4, [2.0] * 4, 0),
    ]


def write_to_what_a_stream_still_fills(rank, size):
    """Work pending on the caller's stream comes before the writes of the call."""
    wrong = []
    calls = {
        "broadcast": lambda t: dist.broadcast(t, src=0, async_op=True),
        "recv": lambda t: dist.irecv(t, 0) if rank else dist.isend(t, 1),
    }
    for name, call in calls.items():
        for make in (torch.clone, strided):
            given = make(torch.full((4,), 5.0)).to(DEVICE)
            with stream(5):
                if rank:
                    late(given, -1.0, 100)
                call(given).wait()
            fake.synchronize()
            if given.cpu().tolist() != [5.0] * 4:
                wrong.append((name, make.__name__))
    return wrong


def test_a_result_comes_after_the_pending_work_of_the_stream():
    assert run(2, write_to_what_a_stream_still_fills) == [[]] * 2


def use_futures(rank, size):
    tensor = late(torch.empty(4, device=DEVICE), rank + 1.0, 20)
    fake.set("copy_ms", 50)
    work = dist.all_reduce(tensor, async_op=True)

    def times_ten(future):
        (value,) = future.value()
        out = torch.empty(4, device=DEVICE)
        out.copy_(value)
        return out

    then = work.get_future().then(times_ten)
    with stream(4):
        early = torch.empty(4, device=DEVICE)
        (found,) = work.get_future().wait()
        early.copy_(found)
        chained = then.wait().cpu()
    fake.synchronize()
    # A future requested after completion.
    (late_one,) = work.get_future().wait()
    return [t.cpu().tolist() for t in (early, chained, late_one)]


def test_futures_block_the_streams_that_wait_for_them():
    assert run(2, use_futures) == [[[3.0] * 4] * 3] * 2


def reduce_in_parts(rank, size):
    count = 6 * MIB + 1000
    tensor = (torch.arange(count) % 1000 + rank).float().to(DEVICE)
    small = torch.ones(4)
    fake.copies()
    fake.set("copy_ms", 5)
    dist.barrier()
    work = dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(small)
    work.wait()
    fake.synchronize()
    copies = fake.copies()
    fake.set("copy_ms", 0)
    expected = size * (torch.arange(count) % 1000).float() + sum(range(size))
    return (
        copies.count("d") > 4,
        "u" in copies[: copies.rindex("d")],
        torch.equal(tensor.cpu(), expected),
        small.tolist(),
    )


@pytest.mark.parametrize("size", [2, 3])
def test_a_large_sum_is_split_into_overlapping_parts(size):
    expected = (True, True, True, [float(size)] * 4)
    assert run(size, reduce_in_parts) == [expected] * size


def reduce_otherwise(rank, size):
    """Sums that are not split: skippable, not contiguous, by another algorithm."""
    count = 3 * MIB
    values = (torch.arange(count) % 100 + rank).float()
    expected = size * (torch.arange(count) % 100).float() + sum(range(size))
    wrong = []
    tensor = values.to(DEVICE)
    policy = SkipStraggler(floor_ms=1000, ceiling_ms=5000)
    work = aikido_torch.all_reduce(tensor, policy=policy)
    work.wait()
    kind = work.outcome().kind
    if kind != "complete" or not torch.equal(tensor.cpu(), expected):
        wrong.append(("skip", kind))
    tensor = strided(values)
    dist.all_reduce(tensor)
    if not torch.equal(tensor.cpu(), expected):
        wrong.append("strided")
    ring = dist.new_group(
        backend="aikido", pg_options=aikido_torch.Options(collectives_algorithm="ring")
    )
    backend = ring._get_backend(torch.device("cpu"))
    tensor = values.to(DEVICE)
    backend.allreduce([tensor]).wait()
    if not torch.equal(tensor.cpu(), expected):
        wrong.append("ring")
    # One rank has its tensor on the device, the others on the host.
    tensor = values.to(DEVICE) if rank == 0 else values.clone()
    dist.all_reduce(tensor)
    if not torch.equal(tensor.cpu(), expected):
        wrong.append("mixed")
    return wrong


def test_large_sums_that_are_not_split_are_right_too():
    assert run(3, reduce_otherwise) == [[]] * 3


# ---- refusals and failures


def next_sum(rank):
    tensor = on_device([rank + 1.0])
    dist.all_reduce(tensor)
    return tensor.item()


def capture(rank, size):
    tensor = on_device([1.0])
    sentences = []
    under_way = dist.all_reduce(on_device([1.0]), async_op=True)
    if rank == 0:
        with stream(3):
            fake.capture(True)
            sentences.append(str(raised(lambda: dist.all_reduce(tensor))))
            sentences.append(str(raised(under_way.wait)))
            fake.capture(False)
    else:
        sentences.append(str(raised(lambda: dist.all_reduce(tensor))))
    under_way.wait()
    return sentences, next_sum(rank)


def test_a_call_inside_a_captured_graph_is_refused_with_a_clear_error():
    (own, first), (told, second) = run(2, capture)
    refused = "all_reduce on rank 0: the current stream of privateuseone:0 captures"
    assert refused in own[0]
    assert "wait for its work before the capture" in own[1]
    assert refused in told[0]
    assert first == second == 3.0


def run_out_of_memory(rank, size, kind):
    tensor = torch.ones(6, 2).to(DEVICE)[:, 0]
    if rank == 0:
        fake.set(kind, 1)
    error = raised(lambda: dist.all_reduce(tensor))
    return type(error).__name__, str(error), next_sum(rank)


@pytest.mark.parametrize("kind", ["pinned", "allocations"])
def test_out_of_memory_fails_only_that_call_and_names_call_device_and_size(kind):
    (name, own, first), (_, told, second) = run(2, run_out_of_memory, kind)
    assert name == "OutOfMemoryError"
    assert "all_reduce on rank 0: " in own
    assert "24 bytes of privateuseone:0: fake device" in own
    assert "all_reduce on rank 0: it failed there" in told
    assert first == second == 3.0


def copy_in_vain(rank, size, kind, count, skip_copies):
    tensor = torch.ones(count).to(DEVICE)
    after = on_device([rank + 1.0])
    if rank == 0:
        fake.set(kind, 1)
        fake.set("copies_before_fault", skip_copies)
    work = dist.all_reduce(tensor, async_op=True)
    behind = dist.all_reduce(after, async_op=True)
    error = raised(work.wait)
    behind.wait()
    return type(error).__name__, str(error), after.item(), next_sum(rank)


@pytest.mark.parametrize(("count", "before"), [(1000, 0), (6 * MIB, 7)])
def test_a_failed_copy_to_the_host_fails_only_that_call_on_all_ranks(count, before):
    results = run(2, copy_in_vain, "copies_down", count, before)
    for name, sentence, *sums in results:
        assert name == "AbortedError"
        assert "all_reduce on rank 0: the copy to the host of " in sentence
        assert "bytes of privateuseone:0: fake device: an asynchronous" in sentence
        assert sums == [3.0, 3.0]


def copy_up_in_vain(rank, size, count):
    tensor = torch.ones(count).to(DEVICE)
    if rank == 0:
        fake.set("copies_up", 1)
    work = dist.all_reduce(tensor, async_op=True)
    error = raised(work.wait)
    result = work.get_future_result().wait() if rank == 0 else None
    return type(error).__name__, str(error), result, next_sum(rank)


@pytest.mark.parametrize("count", [1000, 6 * MIB])
def test_a_failed_copy_to_the_device_fails_the_call_on_that_rank(count):
    (name, own, result, first), (other, _, _, second) = run(2, copy_up_in_vain, count)
    assert name == "AbortedError"
    assert "all_reduce on rank 0: the copy " in own
    assert "bytes of privateuseone:0: fake device: it takes no copy" in own
    assert (other, result) == ("NoneType", 2)  # COMM_ERROR of torch
    assert first == second == 3.0


def stick(rank, size):
    tensor = torch.ones(4, device=DEVICE)
    if rank == 0:
        late(tensor, 1.0, 2500)
    began = time.perf_counter()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    options = dist.AllreduceOptions()
    options.timeout = timedelta(milliseconds=600)
    work = backend.allreduce([tensor], options)
    error = raised(work.wait)
    took_s = time.perf_counter() - began
    return type(error).__name__, str(error), took_s < 2, next_sum(rank)


def test_a_blocked_stream_ends_the_call_at_its_timeout():
    (name, own, in_time, first), (_, _, told_in_time, second) = run(2, stick)
    assert name == "TimedOutError"
    assert "all_reduce on rank 0: the copy to the host of 16 bytes" in own
    assert in_time
    assert told_in_time
    assert first == second == 3.0


def end_the_group(rank, size, how, late_ms):
    tensor = late(torch.empty(4, device=DEVICE), 1.0, late_ms)
    work = dist.all_reduce(tensor, async_op=True)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    began = time.perf_counter()
    getattr(backend, how)()
    error = raised(work.wait)
    return isinstance(error, AikidoError), time.perf_counter() - began < late_ms / 1000


def test_an_aborted_group_does_not_wait_for_its_devices():
    assert run(2, end_the_group, "abort", 10_000) == [(True, True)] * 2


def test_shutdown_waits_for_pending_copies_from_a_device():
    ends = run(
        2,
        end_the_group,
        "shutdown",
        1000,
        options=aikido_torch.Options(shutdown_linger_ms=10_000),
    )
    assert ends == [(False, False)] * 2
