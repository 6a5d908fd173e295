# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Strict all_reduce in the memory of a device that all ranks share.

The device is a fake (harness/fake_device.py). Other processes can map its memory. Tests
with a real device are at the end, in the gpu lane.
"""

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import _C, _ipc
from aikido_torch._backend import backend_of
from aikido_torch.errors import TimedOutError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import run_ranks
from harness import fake_device
from harness.every_call import all_calls
from harness.failures import raised
from harness.fake_device import DEVICE, late, plain, stream, strided

fake = torch.ops.fake


def run(size, program, *args, device_of=None, **options):
    """Runs `program` on `size` ranks with one common device or the given devices."""
    device_of = device_of or [0] * size
    given = (fake_device.library(), device_of, program, args)
    return run_ranks(size, with_memory, *given, **options)


def with_memory(rank, size, library, device_of, program, args):
    fake_device.install(library)
    if device_of[rank] is not None:
        memory = fake_device.module(library).make_memory()
        _C.offer_device_memory(DEVICE, memory)
    _ipc.IDENTITIES[DEVICE] = lambda device, host: f"gpu {device_of[rank]}"
    return program(rank, size, *args)


def num_ipc(group=None):
    return backend_of(group).counters["ipc_operations"]


def sum_of(tensor):
    dist.all_reduce(tensor)
    return tensor.cpu().tolist()


# ---- calls in shared memory


OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
DTYPES = (torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64)


def compare_with_the_host(rank, size):
    wrong = []
    for place in (plain, strided):
        for dtype in DTYPES:
            for name in OPS:
                op = getattr(dist.ReduceOp, name)
                if name == "AVG" and not dtype.is_floating_point:
                    continue
                if name.startswith("B") and dtype.is_floating_point:
                    continue
                values = (torch.arange(1, 9) + rank).to(dtype).view(2, 4)
                expected = values.clone()
                dist.all_reduce(expected, op)
                found = place(values)
                dist.all_reduce(found, op)
                if not torch.equal(found.cpu(), expected):
                    wrong.append((place.__name__, name, dtype))
    return wrong, num_ipc()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.beside
def test_every_op_has_the_same_result_as_on_the_host(size):
    floats, integers = 5, 7
    calls = 2 * (3 * floats + 2 * integers)
    assert run(size, compare_with_the_host) == [([], calls)] * size


def count_what_goes_elsewhere(rank, size):
    all_calls(rank, size, plain)
    of_all = num_ipc()
    dist.all_reduce(torch.ones(4))  # a tensor on the host
    aikido_torch.all_reduce(plain(torch.ones(4)), policy=SkipStraggler())
    dist.all_reduce(plain(torch.ones(0)))
    return of_all, num_ipc() - of_all


@pytest.mark.beside
def test_other_calls_do_not_use_the_shared_memory():
    one_of_all_calls = 1
    assert run(2, count_what_goes_elsewhere) == [(one_of_all_calls, 0)] * 2


def program_on_host(rank, size):
    return sum_of(plain(torch.ones(4))), num_ipc()


@pytest.mark.beside
def test_no_call_uses_it_if_it_is_off():
    options = aikido_torch.Options(devices_ipc="off")
    assert run(2, program_on_host, options=options) == [([2.0] * 4, 0)] * 2


@pytest.mark.parametrize("device_of", [[0, 1], [0, None], [None, 0]])
@pytest.mark.beside
def test_ranks_without_a_common_device_use_the_host(device_of):
    assert run(2, program_on_host, device_of=device_of) == [([2.0] * 4, 0)] * 2


def try_on(rank, size):
    error = raised(lambda: sum_of(plain(torch.ones(4))))
    return str(error), sum_of(torch.ones(1))


@pytest.mark.beside
def test_the_option_on_is_refused_on_all_ranks_if_sharing_is_impossible():
    options = aikido_torch.Options(devices_ipc="on")
    for sentence, after in run(2, try_on, device_of=[0, 1], options=options):
        assert (
            "devices_ipc is 'on', but rank 0 has gpu 0 and rank 1 has gpu 1" in sentence
        )
        assert after == [2.0]


def open_nothing(rank, size):
    fake.set("opens", 1 if rank == 0 else 0)
    return sum_of(plain(torch.ones(4))), num_ipc()


@pytest.mark.beside
def test_all_use_the_host_if_the_memory_of_others_cannot_be_mapped():
    assert run(2, open_nothing) == [([2.0] * 4, 0)] * 2


# ---- streams, and dropped works


def use_streams(rank, size):
    found = []
    dist.all_reduce(plain(torch.ones(1)))
    with stream(1):
        # Pending work of the caller's stream comes first, on all ranks.
        tensor = late(torch.zeros(4, device=DEVICE), rank + 1.0, 100)
        began = time.monotonic()
        work = dist.all_reduce(tensor, async_op=True)
        found.append(time.monotonic() - began < 0.08)
        work.wait()
        found.append(tensor.cpu().tolist())
    # Dropped works and tensors.
    fake.set("kernel_ms", 5)
    for _ in range(20):
        given = late(torch.zeros(4, device=DEVICE), 1.0, 1)
        dist.all_reduce(given, async_op=True)
        del given
        torch.full((4,), -1.0).to(DEVICE)
    dist.barrier()
    # After a barrier, tensors of dropped works can be read.
    kept = [torch.ones(4).to(DEVICE) for _ in range(20)]
    for tensor in kept:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    found.append({t.cpu()[0].item() for t in kept})
    tensors = [torch.full((4,), i + 1.0).to(DEVICE) for i in range(8)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in reversed(works):
        work.wait()
    found.append([t.cpu()[0].item() for t in tensors])
    (future,) = dist.all_reduce(tensors[0], async_op=True).get_future().wait()
    found.append(future.cpu().tolist())
    return found, fake.uses_of_freed_memory()


@pytest.mark.alone
def test_results_follow_the_order_of_streams_and_no_memory_is_freed_too_early():
    expected = [True, [3.0] * 4, {2.0}, [2.0 * i for i in range(1, 9)], [4.0] * 4]
    assert run(2, use_streams) == [(expected, 0)] * 2


def mix_with_others(rank, size):
    """Barriers and messages beside calls that the other rank has not made yet."""
    given = [plain(torch.ones(4)) for _ in range(3)]
    sum_of(given[0])
    word = torch.ones(1)
    if rank == 0:
        barrier = dist.barrier(async_op=True)
        work = dist.all_reduce(given[1], async_op=True)
        barrier.wait()
        dist.send(word, 1)
        work.wait()
    else:
        dist.barrier()
        dist.recv(word, 0)
        dist.all_reduce(given[1])
    # Rank 0's stream reaches the next call late. The others need not wait for it.
    fake.set("kernel_ms", 200)
    work = dist.all_reduce(given[1], async_op=True)
    if rank == 0:
        fake.keep_busy(1500)
    later = dist.all_reduce(given[2], async_op=True)
    began = time.monotonic()
    work.wait()
    took = time.monotonic() - began
    later.wait()
    return took < 1, given[1].cpu().tolist(), given[2].cpu().tolist()


def test_calls_do_not_wait_for_later_calls_of_users():
    results = run(2, mix_with_others, group_timeout=10)
    assert results == [(True, [4.0] * 4, [2.0] * 4)] * 2


def batch(rank, size):
    dist.all_reduce(plain(torch.ones(1)))
    tensors = [plain(torch.full((4,), i + 1.0)) for i in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    host = [torch.ones(2), torch.ones(2)]
    dist.all_reduce_coalesced(host)
    return [t.cpu()[0].item() for t in tensors], num_ipc()


@pytest.mark.beside
def test_calls_of_a_batch_complete_together():
    assert run(2, batch) == [([2.0, 4.0, 6.0], 4)] * 2


def leave_at_once(rank, size):
    tensor = plain(torch.ones(4))
    dist.all_reduce(tensor)
    fake.set("kernel_ms", 300)
    work = dist.all_reduce(tensor, async_op=True)
    dist.destroy_process_group()
    return raised(work.wait) is None and tensor.cpu().tolist()


def test_a_rank_leaves_the_group_once_the_others_have_their_results():
    assert run(2, leave_at_once) == [[4.0] * 4] * 2


# ---- failures


def fail(rank, size, fault, times, on):
    found = []
    sum_of(plain(torch.ones(4)))
    if rank == on:
        fake.set(fault, times)
    found.append(str(raised(lambda: sum_of(plain(torch.ones(4))))))
    found.append(sum_of(plain(torch.ones(4))))
    found.append(sum_of(torch.ones(1)))
    # Messages of users of any size are not mixed with internal messages.
    text = torch.arange(128.0)
    if rank == 0:
        for other in range(1, size):
            dist.send(text, other)
    else:
        got = torch.empty(128)
        dist.recv(got, 0)
        assert torch.equal(got, text)
    return found


@pytest.mark.parametrize(
    ("fault", "times", "on", "why"),
    [
        ("opens", 1, 0, "fake device: this memory cannot be reached"),
        ("kernels", 1, 0, "fake device: an asynchronous copy has failed"),
        ("shares", 2, 1, "fake device: this memory cannot be shared"),
    ],
)
@pytest.mark.beside
def test_a_failure_ends_only_that_call_on_all_ranks(fault, times, on, why):
    results = run(3, fail, fault, times, on)
    where = (
        f"all_reduce on rank {on}: the sum in memory that all ranks share of 16 bytes"
    )
    own = results[on]
    assert own[0].startswith(f"{where} of {DEVICE}:0: {why}")
    for sentence, shared, host in results:
        assert (
            why in sentence
        ) or f"all_reduce on rank {on}: it failed there" in sentence
        assert shared == [3.0] * 4
        assert host == [3.0]


def reduce_what_cannot_be_shared(rank, size):
    found = [sum_of(plain(torch.ones(4)))]
    for place in (plain, strided):
        fake.set("shares", 1 if rank else 0)
        found.append(sum_of(place(torch.ones(4))))
    return found, num_ipc()


@pytest.mark.beside
def test_a_tensor_that_cannot_be_shared_is_copied():
    assert run(2, reduce_what_cannot_be_shared) == [([[2.0] * 4] * 3, 3)] * 2


def share_until_written(rank, size):
    sum_of(plain(torch.ones(4)))
    source = torch.ones(4, device=DEVICE)
    lazy = torch._lazy_clone(source)
    dist.all_reduce(lazy)
    fake.synchronize()
    return lazy.cpu().tolist(), source.cpu().tolist()


@pytest.mark.beside
def test_a_copy_on_write_tensor_gets_its_own_memory():
    assert run(2, share_until_written) == [([2.0] * 4, [1.0] * 4)] * 2


def run_out_of_memory_first(rank, size):
    tensor = strided(torch.ones(4))
    if rank == 1:
        fake.set("allocations", 2)  # of the set-up, and of the call itself
    error = raised(lambda: sum_of(tensor))
    return str(error), sum_of(plain(torch.ones(4))), num_ipc()


@pytest.mark.beside
def test_the_first_call_can_fail_on_one_rank():
    (told, *first), (own, *second) = run(2, run_out_of_memory_first)
    assert "fake device: out of memory" in own
    assert "on rank 1: it failed there" in told
    assert first == second == [[2.0] * 4, 0]


def call_with_different_shapes(rank, size):
    sum_of(plain(torch.ones(4)))
    error = raised(lambda: sum_of(plain(torch.ones(4 + rank))))
    mixed = raised(lambda: sum_of(plain(torch.ones(4)) if rank else torch.ones(4)))
    return str(error), str(mixed), sum_of(plain(torch.ones(4)))


@pytest.mark.beside
def test_ranks_in_different_calls_get_an_error():
    for shapes, mixed, after in run(2, call_with_different_shapes):
        assert "all_reduce(sum, float32[4])" in shapes
        assert "all_reduce(sum, float32[5])" in shapes
        assert "all_reduce(sum, float32[4]) directly between devices" in mixed
        assert after == [2.0] * 4


def come_late(rank, size):
    sum_of(plain(torch.ones(4)))
    tensor = plain(torch.ones(4))
    if rank == 2:
        time.sleep(1.5)
    began = time.monotonic()
    error = raised(lambda: sum_of(tensor))
    return type(error), str(error), time.monotonic() - began


def test_a_time_out_names_the_missing_rank_and_comes_in_time():
    late_ms = timedelta(milliseconds=500)
    results = run(3, come_late, group_timeout=late_ms.total_seconds())
    for kind, sentence, took in results[:2]:
        assert kind is TimedOutError
        assert "rank 2" in sentence
        assert took < 5


def die(rank, size, who, when):
    tensor = plain(torch.ones(4))
    sum_of(tensor)
    if rank == who and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    fake.set("kernel_ms", 300)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == who:
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    error = raised(work.wait)
    return str(error), time.monotonic() - began


@pytest.mark.parametrize("who", [0, 1])
def test_when_a_rank_dies_the_others_are_told_its_name(who):
    results = run(3, die, who, "before", may_die=[who])
    for rank, result in enumerate(results):
        if rank == who:
            continue
        sentence, took = result
        assert f"rank {who}" in sentence
        assert took < 10


def test_when_the_leader_dies_during_the_sum_the_others_are_told():
    for sentence, took in run(3, die, 0, "meanwhile", may_die=[0])[1:]:
        assert "is made by rank 0, which has not said that it is there" in sentence
        assert took < 10


def abort_meanwhile(rank, size):
    tensor = plain(torch.ones(4))
    sum_of(tensor)
    if rank == 0:
        fake.set("kernel_ms", 3000)
    work = dist.all_reduce(tensor, async_op=True)
    time.sleep(0.1)
    if rank == 1:
        backend_of(None).abort()
    failed = raised(work.wait) is not None  # a kept error would hold the work
    place = fake.place_of(tensor)
    del tensor, work
    fake.synchronize()
    # The memory is not freed while the work keeps it for the leader.
    return failed, fake.is_gone(place)


def test_memory_is_kept_while_the_leader_may_write_to_it():
    # Without torch's flight recorder, which writes for a second or more at an abort.
    _, second = run(2, abort_meanwhile, env={"TORCH_FR_BUFFER_SIZE": "0"})
    assert second == (True, False)


# ---- real devices


def reduce_on_one_gpu(rank, size):
    torch.cuda.set_device(0)
    wrong = []
    for count in (1, 1000, 1 << 20):
        for dtype in (torch.float32, torch.float16, torch.int64):
            for name in ("SUM", "MAX", "PRODUCT"):
                values = (torch.arange(count) % 3 + 1 + rank % 2).to(dtype)
                expected = values.clone()
                dist.all_reduce(expected, getattr(dist.ReduceOp, name))
                found = values.cuda()
                dist.all_reduce(found, getattr(dist.ReduceOp, name))
                gaps = values.cuda().repeat_interleave(2)[::2]
                dist.all_reduce(gaps, getattr(dist.ReduceOp, name))
                for kind, tensor in (("plain", found), ("gaps", gaps)):
                    if not torch.equal(tensor.cpu(), expected):
                        wrong.append((count, dtype, name, kind))
    # Tensors are freed and allocated again, so that addresses are reused.
    for i in range(20):
        tensor = torch.full(((1 << 20) + 4096 * i,), float(rank), device="cuda")
        dist.all_reduce(tensor)
        if not bool((tensor == sum(range(size))).all()):
            wrong.append(("again", i))
        del tensor
        if i % 5 == 0:
            torch.cuda.empty_cache()
    return wrong, num_ipc()


@pytest.mark.gpu
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_on_one_gpu_sum_in_its_memory(size):
    assert run_ranks(size, reduce_on_one_gpu) == [([], 74)] * size


def reduce_expandable(rank, size):
    torch.cuda.set_device(0)
    return sum_of(torch.ones(4, device="cuda")), num_ipc()


@pytest.mark.gpu
def test_memory_of_expandable_segments_uses_the_host():
    env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert run_ranks(2, reduce_expandable, env=env) == [([2.0] * 4, 0)] * 2


def die_on_one_gpu(rank, size, who):
    torch.cuda.set_device(0)
    tensor = torch.ones(16 << 20, device="cuda")
    for _ in range(3):
        dist.all_reduce(tensor)
    if rank == who:
        dist.all_reduce(tensor, async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(100):
        error = raised(lambda: dist.all_reduce(tensor))
        if error:
            break
    alive = torch.ones(4, device="cuda").sum().item()
    return str(error), alive


@pytest.mark.gpu
@pytest.mark.parametrize("who", [0, 1])
def test_when_a_rank_on_the_gpu_dies_the_others_continue(who):
    results = run_ranks(3, die_on_one_gpu, who, may_die=[who])
    for rank, result in enumerate(results):
        if rank != who:
            sentence, alive = result
            assert f"rank {who}" in sentence
            assert alive == 4.0
