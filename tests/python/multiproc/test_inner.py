# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Strict calls of tensors on devices, with and without an inner NCCL.

The device and the NCCL are fakes (harness/fake_device.py). Tests with real ones are at
the end, in the gpu lane.
"""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import _inner
from aikido_torch._backend import backend_of
from aikido_torch.straggler import SkipStraggler, WaitAll
from aikido_torch.testing import run_ranks
from aikido_torch.trace.record import _record
from aikido_torch.trace.record._spans import Kind
from harness import fake_device
from harness.every_call import all_calls, flat_calls
from harness.failures import raised
from harness.fake_device import DEVICE, late, plain, stream, strided

fake = torch.ops.fake
made = []  # inner backends of this rank


def run(size, program, *args, device_of=None, fails=(), **options):
    """Runs `program` on `size` ranks; rank r has device r or `device_of[r]`."""
    device_of = device_of or list(range(size))
    given = (fake_device.library(), device_of, fails, program, args)
    return run_ranks(size, with_devices, *given, **options)


def with_devices(rank, size, library, device_of, fails, program, args):
    fake_device.install(library)
    fake_nccl = fake_device.nccl_class(library)
    own = device_of[rank]

    def make(store, rank, size, limit, device):
        if rank in fails:
            raise RuntimeError("it has no network")
        if fails:  # ranks that can connect would wait for the others
            store, rank, size = dist.HashStore(), 0, 1
        gloo = dist.ProcessGroupGloo(store, rank, size, limit)
        made.append(fake_nccl(gloo))
        return made[-1]

    _inner.KINDS[DEVICE] = _inner.Kind(
        name="fake nccl",
        lacks=lambda: "it was left out" if own is None else "",
        identity=lambda device, host: f"gpu {own}",
        make=make,
    )
    return program(rank, size, *args)


def counts():
    """Calls inside the last group that has an inner backend."""
    found = made[-1].counts() if made else {}
    found.pop("set_timeout", None)
    return found


def next_sum(rank):
    tensor = torch.tensor([rank + 1.0])
    dist.all_reduce(tensor)
    return tensor.item()


# ---- calls of the inner backend


def compare_with_the_host(rank, size):
    expected = all_calls(rank, size, torch.clone)
    expected_flat = flat_calls(size, rank, torch.clone)
    on_host = counts()
    found = [
        t.cpu() for place in (plain, strided) for t in all_calls(rank, size, place)
    ]
    flat = [t.cpu() for t in flat_calls(size, rank, plain)]
    fake.synchronize()
    wrong = [
        i
        for i, (a, b) in enumerate(
            zip(found + flat, 2 * expected + expected_flat, strict=True)
        )
        if not torch.equal(a, b)
    ]
    return wrong, on_host, counts(), backend_of(None).counters["inner_operations"]


LISTED = ("allreduce", "reduce", "broadcast", "allgather", "gather", "scatter")
EVERY = dict.fromkeys((*LISTED, "reduce_scatter", "alltoall"), 2) | dict.fromkeys(
    ("allgather_base", "reduce_scatter_base", "alltoall_base"), 1
)


@pytest.mark.parametrize("size", [2, 3])
def test_every_strict_collective_uses_the_inner_backend(size):
    # Messages and barriers are among the calls, and do not count here.
    assert run(size, compare_with_the_host) == [([], {}, EVERY, 19)] * size


@pytest.mark.parametrize(
    ("device_of", "options"),
    [
        ([0, 0], aikido_torch.Options()),
        ([0, None], aikido_torch.Options()),
        ([0, 1], aikido_torch.Options(devices_nccl="off")),
    ],
)
def test_shared_devices_and_the_option_off_disable_the_inner_backend(
    device_of, options
):
    results = run(2, compare_with_the_host, device_of=device_of, options=options)
    assert results == [([], {}, {}, 0)] * 2


def call_what_stays(rank, size):
    """Policies, dtypes, ops and coalesced messages without, then one call with NCCL."""
    policies = [
        SkipStraggler(floor_ms=1000, ceiling_ms=5000),
        WaitAll(rebalance=True),
    ]
    sums = []
    for policy in policies:
        tensor = torch.full((4,), rank + 1.0).to(DEVICE)
        aikido_torch.all_reduce(tensor, policy=policy).wait()
        sums.append(tensor.cpu().tolist())
    small = torch.tensor([rank + 1], dtype=torch.int16).to(DEVICE)
    dist.all_reduce(small)
    bits = torch.tensor([rank + 1]).to(DEVICE)
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    got = torch.zeros(1, device=DEVICE)
    batch = [
        dist.P2POp(dist.isend, torch.tensor([float(rank)]).to(DEVICE), 1 - rank),
        dist.P2POp(dist.irecv, got, 1 - rank),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    before = counts()
    strict = torch.full((4,), rank + 1.0).to(DEVICE)
    aikido_torch.all_reduce(strict, policy=WaitAll()).wait()
    found = (small.item(), bits.item(), got.item(), strict.cpu().tolist())
    return sums, found, before, counts()


def test_policies_messages_and_unsupported_types_do_not_use_nccl():
    for rank, result in enumerate(run(2, call_what_stays)):
        found = (3, 3, 1.0 - rank, [3.0] * 4)
        assert result == ([[3.0] * 4] * 2, found, {}, {"allreduce": 1})


# ---- streams, order, lifetimes


def hold_up_streams(rank, size):
    dist.all_reduce(torch.ones(1, device=DEVICE))
    tensor = late(torch.empty(4, device=DEVICE), rank + 1.0, 300)
    began = time.perf_counter()
    work = dist.all_reduce(tensor, async_op=True)
    (found,) = work.get_future().wait()
    with stream(5):
        work.wait()
        was_late = time.perf_counter() - began > 0.25
        was_there = work.is_completed()
        doubled = torch.empty(4, device=DEVICE)
        doubled.copy_(tensor)
        early = torch.empty(4, device=DEVICE)
        early.copy_(found)
    fake.synchronize()
    sums = (doubled.cpu().tolist(), early.cpu().tolist())
    return was_late, was_there, work.is_completed(), sums


def test_wait_blocks_the_stream_and_blocks_the_host_until_all_have_called():
    sums = ([3.0] * 4, [3.0] * 4)
    assert run(2, hold_up_streams) == [(False, False, True, sums)] * 2


def mix_calls(rank, size):
    """Inner, staged, host and skippable calls in turn, without a wait between them."""
    dist.all_reduce(torch.ones(1, device=DEVICE))
    before = backend_of(None).num_calls
    aikido_torch.trace.start()
    policy = SkipStraggler(floor_ms=1000, ceiling_ms=5000)
    works, tensors = [], []
    for _ in range(3):
        for dtype, place in (
            (torch.float32, DEVICE),
            (torch.int16, DEVICE),
            (torch.float32, "cpu"),
        ):
            tensors.append(torch.full((4,), rank + 1, dtype=dtype).to(place))
            works.append(dist.all_reduce(tensors[-1], async_op=True))
        tensors.append(torch.full((4,), rank + 1.0).to(DEVICE))
        works.append(aikido_torch.all_reduce(tensors[-1], policy=policy))
    for work in works:
        work.wait()
    aikido_torch.trace.stop()
    spans = [s for s in _record.take().spans if s.kind == Kind.OPERATION]
    numbers = sorted(s.number - before for s in spans if s.number > before)
    right = all(t.cpu().tolist() == [3] * 4 for t in tensors)
    return right, backend_of(None).num_calls - before, numbers, counts()


def test_calls_keep_their_order_and_numbers_and_are_traced():
    numbers = list(range(1, 13))
    assert run(2, mix_calls) == [(True, 12, numbers, {"allreduce": 4})] * 2


def drop_everything(rank, size):
    """Tensors and works are dropped; freed memory is poisoned."""
    dist.all_reduce(torch.ones(1, device=DEVICE))
    kept = torch.zeros(2, 4, device=DEVICE)
    for number in range(3):
        tensor = late(torch.empty(4, device=DEVICE), rank + number, 20)
        dist.all_reduce(tensor, async_op=True)
        dist.all_gather_into_tensor(kept, tensor, async_op=True)
        gaps = strided(torch.full((4,), 1.0))
        dist.all_reduce(gaps, async_op=True)
        del tensor, gaps
        torch.full((4,), -1.0, device=DEVICE)
    dist.barrier()  # completes the earlier calls, on any stream
    with stream(6):
        found = kept.cpu().tolist()
    fake.synchronize()
    return found, fake.uses_of_freed_memory()


def test_dropping_a_work_or_a_tensor_loses_no_data():
    assert run(2, drop_everything) == [([[5.0] * 4] * 2, 0)] * 2


def overlap(rank, size):
    """Inputs that overlap their output, in place and elsewhere."""
    found = []
    for shift in (0, 1):
        whole = torch.full((2 * size + 1,), float(rank)).to(DEVICE)
        given = whole[2 * rank + shift : 2 * rank + shift + 2]
        dist.all_gather_into_tensor(whole[: 2 * size], given)
        found.append(whole[: 2 * size].cpu().tolist())
    return found


def test_an_input_can_lie_in_its_output():
    assert run(2, overlap) == [[[0.0, 0.0, 1.0, 1.0]] * 2] * 2


def coalesce(rank, size):
    tensors = [torch.full((3,), rank + 1.0 + i).to(DEVICE) for i in range(3)]
    dist.all_reduce_coalesced(tensors)
    with dist._coalescing_manager(device=torch.device(DEVICE), async_ops=True) as batch:
        for tensor in tensors:
            dist.all_reduce(tensor)
    batch.wait()
    return [t.cpu().tolist() for t in tensors], counts()


def test_calls_of_a_batch_are_executed_one_by_one():
    sums = [[6.0] * 3, [10.0] * 3, [14.0] * 3]
    assert run(2, coalesce) == [(sums, {"allreduce": 6})] * 2


# ---- agreement of ranks


def fail_to_have_it(rank, size):
    sentences = []
    for _ in range(2):
        error = raised(lambda: dist.all_reduce(torch.ones(1, device=DEVICE)))
        sentences.append((type(error).__name__, str(error)))
    return sentences, next_sum(rank)


@pytest.mark.parametrize(
    ("device_of", "fails", "why"),
    [
        ([7, 7], (), "ranks 0 and 1 share gpu 7"),
        ([7, None], (), "rank 1 has no fake nccl: it was left out"),
        ([7, 8], (1,), "rank 1 has no fake nccl: RuntimeError: it has no network"),
    ],
)
def test_the_option_on_is_an_error_on_all_ranks_if_nccl_is_impossible(
    device_of, fails, why
):
    options = aikido_torch.Options(devices_nccl="on")
    given = {"device_of": device_of, "fails": fails, "options": options}
    for sentences, after in run(2, fail_to_have_it, **given):
        for name, sentence in sentences:
            assert name == "ConfigError"
            assert f"devices_nccl is 'on', but {why} [rank 0: " in sentence
            assert f"rank 1: privateuseone:0 (gpu {device_of[1]})]; give" in sentence
        assert after == 3.0


def test_the_option_auto_uses_the_host_if_one_rank_cannot_connect():
    for wrong, _, counted, number in run(2, compare_with_the_host, fails=(1,)):
        assert wrong == []
        assert number == 0
        assert counted in ({}, {"abort": 1})


def differ(rank, size):
    options = aikido_torch.Options(devices_nccl="on" if rank else "off")
    error = raised(lambda: dist.new_group(backend="aikido", pg_options=options))
    return type(error).__name__, str(error)


def test_ranks_with_different_settings_are_told_both_values():
    for name, sentence in run(2, differ):
        assert name == "ConfigError"
        assert "devices_nccl" in sentence
        assert "off" in sentence
        assert "on" in sentence


# ---- failures


def call_different_things(rank, size):
    dist.all_reduce(torch.ones(1, device=DEVICE))
    place = DEVICE if rank == 0 else "cpu"
    mixed = raised(lambda: dist.all_reduce(torch.ones(4, device=place)))
    after = raised(lambda: dist.all_reduce(torch.ones(1, device=DEVICE)))
    fake.synchronize()
    return str(mixed), type(after).__name__, str(after), next_sum(rank), counts()


def test_a_call_of_host_and_device_tensors_is_an_error_and_ends_the_nccl():
    for result in run(2, call_different_things):
        mixed, name, after, following, counted = result
        assert "all_reduce(sum, float32[4]) directly between devices" in mixed
        assert "calls all_reduce(sum, float32[4])" in mixed
        assert name == "AbortedError"
        assert "the inner backend of group" in after
        assert "was given up" in after
        assert following == 3.0
        assert counted["abort"] == 1


def fail_there(rank, size):
    dist.all_reduce(torch.ones(1, device=DEVICE))
    if rank == 0:
        made[-1].fail_next()
    error = raised(lambda: dist.all_reduce(torch.ones(4, device=DEVICE)))
    fake.synchronize()
    return type(error).__name__, str(error), next_sum(rank)


def test_an_exception_of_nccl_names_the_call_and_reaches_all_ranks():
    (name, own, first), (_, told, second) = run(2, fail_there)
    assert name == "AbortedError"
    assert (
        "all_reduce on rank 0: the inner backend of 16 bytes of privateuseone:0: fake "
        "nccl: it takes no call" in own
    )
    assert "all_reduce on rank 0: it failed there" in told
    assert first == second == 3.0


def miss_a_call(rank, size):
    dist.all_reduce(torch.ones(1, device=DEVICE))
    if rank == 1:
        time.sleep(1.5)
        return None
    backend = backend_of(None)
    options = dist.AllreduceOptions()
    options.timeout = timedelta(milliseconds=500)
    tensor = torch.ones(1, device=DEVICE)
    error = raised(backend.allreduce([tensor], options).wait)
    fake.synchronize()
    return type(error).__name__, str(error), counts()["abort"]


def test_a_rank_that_does_not_call_is_named_at_the_time_out():
    name, sentence, num_aborts = run(2, miss_a_call)[0]
    assert name == "TimedOutError"
    assert "rank 1" in sentence
    assert "directly between devices" in sentence
    assert num_aborts == 1


def end_the_group(rank, size, how):
    dist.all_reduce(torch.ones(1, device=DEVICE))
    if how == "destroy":
        dist.destroy_process_group()
    else:
        dist.barrier()
        getattr(backend_of(None), how)()
    return counts()


@pytest.mark.parametrize(
    ("how", "ended"),
    [("destroy", "shutdown"), ("shutdown", "shutdown"), ("abort",) * 2],
)
def test_the_nccl_ends_with_its_group(how, ended):
    assert run(2, end_the_group, how) == [{"allreduce": 1, ended: 1}] * 2


# ---- other groups


def use_other_groups(rank, size):
    """A split group has its own inner backend, a reconfigured group has none."""
    dist.all_reduce(torch.ones(1, device=DEVICE))
    parent = backend_of(None)
    ranks = [0, 2]
    store = dist.PrefixStore("split", dist.distributed_c10d._get_default_store())
    child = parent.split(store, ranks, None) if rank in ranks else None
    tensor = torch.full((2,), rank + 1.0).to(DEVICE)
    if child is not None:
        child.allreduce([tensor]).wait()
    split = (tensor.cpu().tolist(), len(made), counts())
    texts = [None] * size
    dist.all_gather_object(texts, aikido_torch.reconfigure_handle())
    aikido_torch.reconfigure(1, texts)
    again = torch.full((2,), rank + 1.0).to(DEVICE)
    dist.all_reduce(again)
    found = backend_of(None).counters["inner_operations"]
    return split, again.cpu().tolist(), found, made[0].counts().get("abort")


def test_a_split_group_has_its_own_nccl_and_a_reconfigured_one_has_none():
    one = {"allreduce": 1}
    for rank, (split, again, found, num_aborts) in enumerate(run(3, use_other_groups)):
        expected = ([2.0] * 2, 1, one) if rank == 1 else ([4.0] * 2, 2, one)
        assert split == expected
        assert (again, found, num_aborts) == ([6.0] * 2, 0, 1)


# ---- real devices


def reduce_on_gpus(rank, size):
    torch.cuda.set_device(rank % torch.cuda.device_count())
    expected = all_calls(rank, size, torch.clone)
    found = [t.cpu() for t in all_calls(rank, size, torch.Tensor.cuda)]
    wrong = [
        i
        for i, (a, b) in enumerate(zip(found, expected, strict=True))
        if not torch.equal(a, b)
    ]
    return wrong, backend_of(None).counters["inner_operations"]


@pytest.mark.gpu
def test_ranks_on_one_gpu_use_the_host():
    size = torch.cuda.device_count() + 1
    assert run_ranks(size, reduce_on_gpus) == [([], 0)] * size


@pytest.mark.gpu
def test_ranks_with_their_own_gpus_use_nccl():
    if torch.cuda.device_count() < 2:
        pytest.skip("one NVIDIA device here, and NCCL needs one for each rank")
    assert run_ranks(2, reduce_on_gpus) == [([], 8)] * 2


def reduce_alone(rank, size):
    tensor = torch.ones(1 << 20, device="cuda")
    for _ in range(3):
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    return tensor.sum().item(), backend_of(None).counters["inner_operations"]


@pytest.mark.gpu
def test_a_group_of_one_uses_nccl():
    assert run_ranks(1, reduce_alone) == [(1 << 20, 3)]
