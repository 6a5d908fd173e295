# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

import aikido_torch
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import Policy, SkipStraggler, WaitAll


@pytest.mark.parametrize("policy", [None, WaitAll(), SkipStraggler()])
@pytest.mark.parametrize("op", [dist.ReduceOp.SUM, dist.ReduceOp.AVG])
def test_a_call_returns_its_work_with_an_outcome(group_of_one, policy, op):
    tensor = torch.tensor([1.0, 2.0])
    work = aikido_torch.all_reduce(tensor, op=op, policy=policy, group=group_of_one)
    assert isinstance(work, aikido_torch.AikidoWork)
    assert work.is_completed()
    assert tensor.tolist() == [1, 2]
    outcome = work.outcome()
    assert isinstance(outcome, aikido_torch.Outcome)
    assert (outcome.kind, outcome.skipped) == ("complete", [])
    assert (outcome.sequence_number, outcome.scale) == (1, 1.0)
    assert outcome.duration_ms < 5000
    assert outcome.cancelled_bytes == 0


def test_calls_are_numbered_and_can_be_waited_for_later(group_of_one):
    works = [
        aikido_torch.all_reduce(
            torch.ones(3), async_op=True, priority=n, timeout=timedelta(seconds=5)
        )
        for n in range(3)
    ]
    for work in works:
        assert work.wait()
    assert [work.outcome().sequence_number for work in works] == [1, 2, 3]
    if hasattr(works[0], "_get_sequence_number"):  # in newer versions of torch
        assert [work._get_sequence_number() for work in works] == [1, 2, 3]


def test_integers_are_only_reduced_strictly(group_of_one):
    tensor = torch.ones(3, dtype=torch.int32)
    aikido_torch.all_reduce(tensor, op=dist.ReduceOp.MAX)
    with pytest.raises(ConfigError, match="may be left out of floating point data on"):
        aikido_torch.all_reduce(tensor, policy=SkipStraggler())
    with pytest.raises(ConfigError, match="int32; multiply first, then use SUM"):
        aikido_torch.all_reduce(tensor, op=dist._make_nccl_premul_sum(2.0))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"timeout": 5},
            "timeout is 5; pass a datetime.timedelta, or None for the group's.",
        ),
        ({"carry": 1}, "carry is 1; pass an aikido_torch.straggler.Carry(), or None."),
        (
            {"policy": Policy()},
            "Policy has no native() and so says nothing to the engine; pass WaitAll(), "
            "SkipStraggler(...) or ActiveBackup(...).",
        ),
        ({"op": "sum"}, "op is 'sum'; pass a dist.ReduceOp, such as SUM."),
        (
            {"priority": 1.5},
            "priority is 1.5; pass a whole number, or None for the group's.",
        ),
        (
            {"priority": True},
            "priority is True; pass a whole number, or None for the group's.",
        ),
        (
            {"priority": 1001},
            "priority is 1001; it takes a whole number from -1000 to 1000, higher "
            "goes first.",
        ),
        (
            {"priority": -1001},
            "priority is -1001; it takes a whole number from -1000 to 1000, higher "
            "goes first.",
        ),
        (
            {
                "timeout": timedelta(seconds=5),
                "policy": SkipStraggler(ceiling_ms=60_000),
            },
            "SkipStraggler: ceiling_ms is 60000 but the timeout of the call is 5000 "
            "ms: it would fail before a late rank is skipped; use a shorter ceiling_"
            "ms, or None, or a longer timeout.",
        ),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused(group_of_one, arguments, text):
    with pytest.raises(ConfigError) as caught:
        aikido_torch.all_reduce(torch.ones(3), **arguments)
    assert str(caught.value) == f"all_reduce on rank 0: {text}"
    assert caught.value.rank == 0


def test_a_ceiling_must_be_below_the_timeout_of_the_group(group_of_one):
    group = dist.new_group(backend="aikido", timeout=timedelta(seconds=2))
    ones = torch.ones(3)
    for ceiling_ms in (2000, 60_000):
        policy = SkipStraggler(ceiling_ms=ceiling_ms)
        with pytest.raises(ConfigError, match="the timeout of the call is 2000 ms"):
            aikido_torch.reduce_scatter_tensor(ones, ones, policy=policy, group=group)
        aikido_torch.all_reduce(
            ones, policy=policy, group=group, timeout=timedelta(seconds=61)
        )
    # A default ceiling adapts to the time-out.
    for policy in (SkipStraggler(), SkipStraggler(ceiling_ms=1999)):
        aikido_torch.all_reduce(ones, policy=policy, group=group)


def test_without_a_group_the_error_says_what_to_call():
    with pytest.raises(ConfigError, match="call init_process_group"):
        aikido_torch.all_reduce(torch.ones(3))
    with pytest.raises(ConfigError, match="call init_process_group"):
        aikido_torch.send(torch.ones(3), 0)


@pytest.mark.parametrize("priority", [None, -1000, 1000])
def test_a_message_of_any_priority_is_received_by_its_tag(group_of_one, priority):
    works = [
        aikido_torch.send(
            torch.full((3,), float(tag)), 0, tag=tag, priority=priority, async_op=True
        )
        for tag in (1, 2)
    ]
    for tag in (2, 1):
        got = torch.empty(3)
        dist.recv(got, 0, tag=tag)
        assert got.tolist() == [tag] * 3
    for work in works:
        assert work.wait()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"dst": -1}, "send: dst is -1; pass a whole number from 0 to 2147483647."),
        ({"dst": 1}, "send on rank 0: argument dst is 1; the group has"),
        ({"tag": 1.0}, "send: tag is 1.0; pass a whole number from 0 to 1073741823."),
        (
            {"tag": 1 << 30},
            "send: tag is 1073741824; pass a whole number from 0 to 1073741823.",
        ),
        (
            {"priority": "high"},
            "send: priority is 'high'; pass a whole number, or None",
        ),
        (
            {"priority": 2000},
            "send: priority is 2000; it takes a whole number from -1000",
        ),
        ({"timeout": 5}, "send: timeout is 5; pass a datetime.timedelta, or None for"),
        ({"tensor": [1.0]}, "send: tensor is a list; pass a torch.Tensor."),
    ],
)
def test_a_message_with_a_wrong_argument_is_refused(group_of_one, arguments, text):
    with pytest.raises(ConfigError) as caught:
        aikido_torch.send(**({"tensor": torch.ones(3), "dst": 0} | arguments))
    assert str(caught.value).startswith(text)


def test_a_group_can_have_a_priority_for_its_calls(group_of_one):
    options = aikido_torch.Options(transport_priority=-7)
    group = dist.new_group(backend="aikido", pg_options=options)
    tensor = torch.ones(3)
    aikido_torch.all_reduce(tensor, group=group)
    aikido_torch.all_reduce(tensor, group=group, priority=3)
    with pytest.raises(ConfigError, match="a whole number from -1000 to 1000"):
        aikido_torch.Options(transport_priority=1001)


@pytest.mark.parametrize("policy", [None, WaitAll(), SkipStraggler()])
def test_both_forms_of_reduce_scatter_give_the_rank_its_block(group_of_one, policy):
    block, output = torch.tensor([1.0, 2.0]), torch.empty(2)
    work = aikido_torch.reduce_scatter(
        output, [block], policy=policy, group=group_of_one
    )
    assert output.tolist() == [1, 2]
    later = aikido_torch.reduce_scatter_tensor(
        block, block, op=dist.ReduceOp.AVG, policy=policy, async_op=True
    )
    assert later.wait()
    assert block.tolist() == [1, 2]
    for outcome in (work.outcome(), later.outcome()):
        assert (outcome.kind, outcome.skipped, outcome.skipped_by) == (
            "complete",
            [],
            [],
        )


def test_reduce_scatter_names_the_argument_that_is_wrong(group_of_one):
    ones = torch.ones(3)
    with pytest.raises(ConfigError, match=r"rank 0: input_list\[1\] is a list"):
        aikido_torch.reduce_scatter(ones, [ones, [ones]])
    with pytest.raises(ConfigError, match="reduce_scatter_tensor on rank 0: policy i"):
        aikido_torch.reduce_scatter_tensor(ones, ones, policy=3)
    with pytest.raises(ConfigError, match="reduce_scatter on rank 0: policy Skip"):
        aikido_torch.reduce_scatter(
            ones, [ones], op=dist.ReduceOp.MAX, policy=SkipStraggler()
        )


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (8,))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


def without_memory():
    """Name to a tensor without memory for its elements, and the text of the error."""
    freed, cut = torch.ones(8), torch.ones(8)[4:]
    freed.untyped_storage().resize_(0)
    cut.untyped_storage().resize_(24)
    with FakeTensorMode():
        fake = torch.ones(8)
    sparse = torch.ones(8).to_sparse()
    sparse._values().untyped_storage().resize_(0)
    return {
        "freed": (freed, "of shape [8] needs 32 bytes of storage, which has 0; it was"),
        "cut": (cut, "of shape [4] needs 32 bytes of storage, which has 24; it was"),
        "sparse": (sparse, "needs 32 bytes of storage, which has 0; it was"),
        "fake": (fake, "of shape [8] has no memory behind it"),
        "zero": (torch._efficientzerotensor(8), "of shape [8] has no memory behind it"),
        "wrapper": (Wrapper(), "of shape [8] has no memory behind it"),
        "meta": (torch.ones(8, device="meta"), "is on device meta, only cpu and cuda"),
    }


@pytest.mark.parametrize(
    "name", ["freed", "cut", "sparse", "fake", "zero", "wrapper", "meta"]
)
def test_a_tensor_without_memory_is_refused(group_of_one, name):
    tensor, text = without_memory()[name]
    backend = aikido_torch._backend.backend_of(None)
    calls = [lambda: backend.allreduce([tensor])]
    if name != "sparse":
        calls += [
            lambda: aikido_torch.all_reduce(tensor),
            lambda: aikido_torch.reduce_scatter_tensor(torch.ones(8), tensor),
            lambda: aikido_torch.reduce_scatter(tensor, [torch.ones(8)]),
            lambda: backend.broadcast([tensor]),
        ]
    for call in calls:
        with pytest.raises(ConfigError) as caught:
            call()
        assert "on rank 0: argument " in str(caught.value)
        assert text in str(caught.value)
    # An empty tensor needs no memory.
    empty = torch.ones(3)[:0]
    empty.untyped_storage().resize_(0)
    aikido_torch.all_reduce(empty)
