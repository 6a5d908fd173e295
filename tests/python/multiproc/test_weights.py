# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Weighted means: over ranks, over contributors, and of uneven batches."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import aikido_torch
from aikido_torch import ddp
from aikido_torch.errors import AikidoError, ConfigError
from aikido_torch.straggler import ActiveBackup, Carry, SkipStraggler, WaitAll
from aikido_torch.testing import late, run_ranks

AVG = dist.ReduceOp.AVG
SIZE = 3
COUNT = 50_000
LATE = 2
WEIGHTS = {
    "uneven": (3.0, 0.5, 1000.0),
    "equal": (7.0, 7.0, 7.0),
    "a rank without data": (2.0, 0.0, 5.0),
    "only one": (0.0, 4.0, 0.0),
    "none": (0.0, 0.0, 0.0),
}
DTYPES = {
    torch.float64: 1e-14,
    torch.float32: 4e-7,
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
    torch.complex64: 4e-7,
}
STRICT = None
SKIP = SkipStraggler(min_contributors=2, floor_ms=60, ceiling_ms=60)


def values_of(rank, dtype, count=COUNT):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)


def weighted_mean(tensors, weights):
    """In double precision; and the same of the absolute values."""
    wide = torch.complex128 if tensors[0].is_complex() else torch.float64
    total = sum(weights)
    if total == 0:
        return torch.zeros_like(tensors[0].to(wide)), 1.0
    parts = [w * t.to(wide) for w, t in zip(weights, tensors, strict=True)]
    return sum(parts) / total, sum(p.abs() for p in parts) / total


def assert_near(result, tensors, weights, tolerance):
    expected, size = weighted_mean(tensors, weights)
    assert ((result.to(expected.dtype) - expected).abs() <= tolerance * size).all()


# ---- results ----


def compare_with_double(rank, size):
    for dtype, tolerance in DTYPES.items():
        inputs = [values_of(r, dtype) for r in range(size)]
        mean = inputs[rank].clone()
        aikido_torch.all_reduce(mean, op=AVG)
        for name, weights in WEIGHTS.items():
            for policy in (STRICT, SKIP, WaitAll(rebalance=True)):
                result = inputs[rank].clone()
                work = aikido_torch.all_reduce(
                    result, op=AVG, weight=weights[rank], policy=policy, async_op=True
                )
                work.wait()
                outcome = work.outcome()
                if outcome.skipped:  # on a busy machine
                    continue
                assert outcome.weight == sum(weights), (name, outcome)
                assert all(s.weight == sum(weights) for s in outcome.shards)
                assert_near(result, inputs, weights, tolerance)
                if name == "equal":
                    assert torch.equal(result, mean), (dtype, policy)
                if name == "none":
                    assert not result.any()


def scatter(rank, size):
    weights = WEIGHTS["uneven"]
    inputs = [values_of(r, torch.float32, size * 100) for r in range(size)]
    for policy in (STRICT, SKIP):
        outputs = []
        output = torch.empty(100)
        work = aikido_torch.reduce_scatter(
            output,
            list(inputs[rank].chunk(size)),
            op=AVG,
            weight=weights[rank],
            policy=policy,
            async_op=True,
        )
        outputs.append((work, output))
        output = torch.empty(100)
        work = aikido_torch.reduce_scatter_tensor(
            output,
            inputs[rank],
            op=AVG,
            weight=weights[rank],
            policy=policy,
            async_op=True,
        )
        outputs.append((work, output))
        for work, output in outputs:
            work.wait()
            if work.outcome().skipped:
                continue
            assert work.outcome().weight == sum(weights)
            blocks = [tensor.chunk(size)[rank] for tensor in inputs]
            assert_near(output, blocks, weights, 4e-7)


ALGORITHMS = (
    "auto",
    "direct",
    "one_owner",
    "ring",
    "halving_doubling",
    "tree",
    "two_level",
)


def by_algorithms(rank, size):
    """Each algorithm gives the same bits, since calls with weights go directly."""
    weights = WEIGHTS["uneven"]
    inputs = [values_of(r, torch.float32) for r in range(size)]
    results = []
    for algorithm in ALGORITHMS:
        options = aikido_torch.Options(collectives_algorithm=algorithm)
        group = dist.new_group(backend="aikido", pg_options=options)
        result = inputs[rank].clone()
        aikido_torch.all_reduce(result, op=AVG, weight=weights[rank], group=group)
        results.append(result)
    assert_near(results[0], inputs, weights, 4e-7)
    for algorithm, result in zip(ALGORITHMS, results, strict=True):
        assert torch.equal(result, results[0]), algorithm


def in_one_batch(rank, size):
    """Weighted calls in a batch of torch, beside a call without weights."""
    weights = WEIGHTS["uneven"]
    inputs = [values_of(r, torch.float32, 300) for r in range(size)]
    mean, plain, block = inputs[rank].clone(), torch.ones(3), torch.empty(100)
    group = dist.group.WORLD
    group._start_coalescing(torch.device("cpu"))
    aikido_torch.all_reduce(mean, op=AVG, weight=weights[rank], async_op=True)
    dist.all_reduce(plain)
    aikido_torch.reduce_scatter_tensor(
        block, inputs[rank], op=AVG, weight=weights[rank], async_op=True
    )
    group._end_coalescing(torch.device("cpu")).wait()
    assert_near(mean, inputs, weights, 4e-7)
    assert plain.tolist() == [size] * 3
    assert_near(block, [t.chunk(size)[rank] for t in inputs], weights, 4e-7)


def without_a_late_rank(rank, size):
    weights = WEIGHTS["uneven"]
    inputs = [values_of(r, torch.float32) for r in range(size)]
    dist.barrier()
    if rank == LATE:
        late(0.5)
    result = inputs[rank].clone()
    work = aikido_torch.all_reduce(
        result, op=AVG, weight=weights[rank], policy=SKIP, async_op=True
    )
    work.wait()
    outcome = work.outcome()
    assert outcome.kind == "partial"
    for shard in outcome.shards:
        begin, end = shard.first_element, shard.first_element + shard.num_elements
        ranks = shard.contributors
        assert shard.weight == sum(weights[r] for r in ranks)
        assert_near(
            result[begin:end],
            [inputs[r][begin:end] for r in ranks],
            [weights[r] for r in ranks],
            4e-7,
        )
    assert outcome.weight == min(shard.weight for shard in outcome.shards)
    # The next call is complete.
    again = inputs[rank].clone()
    aikido_torch.all_reduce(again, op=AVG, weight=weights[rank])
    assert_near(again, inputs, weights, 4e-7)
    return result.view(torch.uint8).numpy().tobytes()


def test_weighted_means_equal_those_in_double_precision():
    run_ranks(SIZE, compare_with_double)


def test_reduce_scatter_takes_a_weight():
    run_ranks(SIZE, scatter)


def test_each_algorithm_gives_the_same_weighted_mean():
    run_ranks(SIZE, by_algorithms)


def test_a_batch_takes_calls_with_weights():
    run_ranks(SIZE, in_one_batch)


def test_a_late_rank_does_not_count_with_its_weight():
    results = run_ranks(SIZE, without_a_late_rank)
    assert len(set(results)) == 1


def one_rank(rank, size):
    tensor = torch.tensor([2.0, 3.0])
    aikido_torch.all_reduce(tensor, op=AVG, weight=5)
    assert tensor.tolist() == [2.0, 3.0]
    aikido_torch.all_reduce(tensor, op=AVG, weight=0)
    assert tensor.tolist() == [0.0, 0.0]


def test_a_group_of_one_rank_takes_a_weight():
    run_ranks(1, one_rank)


# ---- bad arguments ----


def refusals(rank, size):
    """Sentences of refused calls; the others of the call get the sentence too."""
    floats, whole = torch.ones(8), torch.ones(8, dtype=torch.int32)
    world = SkipStraggler(divisor="world")
    backup = ActiveBackup(backups=1, mode="substitute")
    cases = {
        "sum": (floats, {"op": dist.ReduceOp.SUM, "weight": 1.0}),
        "integer": (whole, {"op": AVG, "weight": 1.0}),
        "negative": (floats, {"op": AVG, "weight": -1.0 if rank == 0 else 1.0}),
        "nan": (floats, {"op": AVG, "weight": math.nan if rank == 1 else 1.0}),
        "infinite": (floats, {"op": AVG, "weight": math.inf if rank == 0 else 1.0}),
        "huge": (floats, {"op": AVG, "weight": 10**400 if rank == 0 else 1}),
        "text": (floats, {"op": AVG, "weight": "3" if rank == 0 else 3}),
        "bool": (floats, {"op": AVG, "weight": True}),
        "world": (floats, {"op": AVG, "weight": 1.0, "policy": world}),
        "backup": (floats, {"op": AVG, "weight": 1.0, "policy": backup}),
        "carry": (floats, {"op": AVG, "weight": 1.0, "carry": Carry()}),
        "some": (floats, {"op": AVG, "weight": 1.0 if rank == 0 else None}),
        "some skip": (
            floats,
            {"op": AVG, "weight": 1.0 if rank == 0 else None, "policy": SKIP},
        ),
    }
    said = {}
    for name, (tensor, options) in cases.items():
        given = tensor.clone()
        with pytest.raises(AikidoError) as error:
            aikido_torch.all_reduce(given, **options)
        said[name] = str(error.value)
        assert torch.equal(given, tensor), f"{name} has changed the tensor"
    total = torch.tensor([rank + 1.0])
    aikido_torch.all_reduce(total)  # the group still works
    assert total.item() == size * (size + 1) / 2
    return said


REFUSALS = {
    "sum": "needs op=AVG",
    "integer": "needs a floating-point or complex tensor",
    "negative": "weight is -1",
    "nan": "weight is nan",
    "infinite": "weight is inf",
    "huge": "weight is inf",
    "text": "weight is '3'",
    "bool": "weight is True",
    "world": 'divisor="world" takes no weight',
    "backup": "ActiveBackup takes no weight",
    "carry": "leave carry or the weight out",
    "some": "with a weight",
    "some skip": "with a weight",
}


def test_a_wrong_weight_is_refused_on_every_rank():
    for said in run_ranks(SIZE, refusals):
        assert said.keys() == REFUSALS.keys()
        for name, part in REFUSALS.items():
            assert part in said[name], (name, said[name])


# ---- uneven batches ----

STEPS = 5


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def samples_of(rank, step):
    """From 0 to 4 samples."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(
        (rank * 2 + step) % 5, 8, generator=generator, dtype=torch.float64
    )


def loss_of(net, samples):
    return net(samples).square().mean() if len(samples) else net(samples).sum() * 0


def train_alone(size):
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        samples = torch.cat([samples_of(r, step) for r in range(size)])
        loss_of(net, samples).backward()
        optimizer.step()
    return [p.detach() for p in net.parameters()]


def train_uneven(rank, size):
    for policy in (WaitAll(), SkipStraggler(floor_ms=5000, ceiling_ms=5000)):
        model = DistributedDataParallel(make_net(), bucket_cap_mb=0.0005)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = ddp.register(model, optimizer=optimizer, policy=policy)
        assert handle.weight == 1.0
        for step in range(STEPS):
            handle.catch_up()
            samples = samples_of(rank, step)
            handle.weight = len(samples)
            optimizer.zero_grad()
            loss_of(model, samples).backward()
            assert handle.weight == 1.0  # again
            optimizer.step()
        for outcome in handle.outcomes:
            assert outcome.weight is not None
        for own, alone in zip(model.parameters(), train_alone(size), strict=True):
            torch.testing.assert_close(own.detach(), alone, rtol=1e-12, atol=1e-14)
        handle.close()


def test_uneven_batches_train_like_one_process_over_all_samples():
    run_ranks(SIZE, train_uneven)


def train_late(rank, size, is_before):
    """A late rank misses steps, replays them, and has the bits of the others."""
    model = DistributedDataParallel(make_net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = SkipStraggler(min_contributors=2, floor_ms=30, ceiling_ms=30)
    handle = ddp.register(model, optimizer=optimizer, policy=policy)
    step, own = 0, 1 + 10**rank
    while True:
        if is_before:
            handle.weight = own
        step += handle.catch_up()
        if step >= 12:
            break
        if rank == LATE and step == 5:
            late(0.5)
        if not is_before:
            handle.weight = own
        optimizer.zero_grad()
        loss_of(model, samples_of(1, 3)).backward()
        optimizer.step()
        step += 1
    handle.close()
    digest = [p.detach().numpy().tobytes() for p in model.parameters()]
    return digest, [outcome.weight for outcome in handle.outcomes]


@pytest.mark.parametrize("is_before", [True, False])
def test_a_late_rank_replays_weighted_steps(is_before):
    results = run_ranks(SIZE, train_late, is_before)
    assert all(found == results[0] for found in results)
    # Some steps lack the late rank with its weight, and only that rank.
    assert set(results[0][1]) == {13.0, 114.0}


QUIET_STEPS = 40


def train_quietly(rank, size):
    """Every third step has no weight of its own."""
    model = DistributedDataParallel(make_net(), bucket_cap_mb=0.0005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = SkipStraggler(floor_ms=5000, ceiling_ms=5000)
    handle = ddp.register(model, optimizer=optimizer, policy=policy)
    reduce, num_slow = handle._reduce, 0

    def counted(bucket, buffer):
        nonlocal num_slow
        num_slow += bucket.is_last()
        return reduce(bucket, buffer)

    handle._reduce = counted
    for step in range(QUIET_STEPS):
        handle.catch_up()
        if step % 3 < 2:
            handle.weight = 2 + step % 3 + rank
        optimizer.zero_grad()
        loss_of(model, samples_of(1, 3)).backward()
        assert handle.weight == 1.0
        optimizer.step()
    weights = [outcome.weight for outcome in handle.outcomes]
    num_buckets = len(handle._buckets)
    handle.close()
    return weights[-num_buckets * (QUIET_STEPS - 3) :: num_buckets], num_slow


def test_a_step_without_a_weight_counts_with_one_also_in_quiet_steps():
    sums = (9.0, 12.0, 3.0)  # of ranks 0 to 2, by step % 3
    expected = [sums[step % 3] for step in range(3, QUIET_STEPS)]
    for weights, num_slow in run_ranks(SIZE, train_quietly):
        assert weights == expected
        assert num_slow < QUIET_STEPS


def refuse_weights(rank, size):
    def handle_of(**options):
        model = DistributedDataParallel(make_net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, ddp.register(model, optimizer=optimizer, **options)

    model, handle = handle_of(policy=WaitAll())
    for wrong in (-1, math.nan, "2", None):
        with pytest.raises(ConfigError, match="weight is"):
            handle.weight = wrong
    for _ in range(2):
        loss_of(model, samples_of(1, 3)).backward()
    with pytest.raises(ConfigError, match="before the first backward"):
        handle.weight = 2
    _, handle = handle_of(policy=SkipStraggler(), late="carry")
    with pytest.raises(ConfigError, match='late="drop"'):
        handle.weight = 2
    handle.close()
    _, handle = handle_of(policy=SkipStraggler(divisor="world"))
    with pytest.raises(ConfigError, match='divisor="contributors"'):
        handle.weight = 2
    handle.close()


def test_a_handle_refuses_weights_that_it_cannot_use():
    run_ranks(2, refuse_weights)


def forget_one(rank, size):
    model = DistributedDataParallel(make_net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = ddp.register(model, optimizer=optimizer, policy=WaitAll())
    if rank == 0:
        handle.weight = 2
    with pytest.raises(AikidoError, match="with a weight"):
        loss_of(model, samples_of(1, 3)).backward()


def test_a_step_with_a_weight_on_some_ranks_only_is_an_error_on_all():
    run_ranks(2, forget_one)
