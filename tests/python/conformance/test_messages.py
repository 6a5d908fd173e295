# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sends and receives in all forms that callers of torch.distributed may use."""

import pytest
import torch
import torch.distributed as dist

from aikido_torch.testing import late, run_ranks

SIZE = 3
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64,
    torch.float8_e4m3fn,
)  # fmt: skip
# Empty, sent at once, and longer than the limit for eager messages.
COUNTS = (0, 4, 90_000)


def value(rank, i, dtype, count):
    return torch.full((count,), float((3 * rank + i) % 5)).to(dtype)


def bytes_of(tensor):
    return tensor.view(torch.uint8).tolist()


def send_every_dtype(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    wrong = []
    for dtype in DTYPES:
        for count in COUNTS:
            sent, wanted = (value(r, 1, dtype, count) for r in (rank, left))
            received = torch.empty_like(sent)
            if rank == 0:
                dist.send(sent, right)
                source = dist.recv(received, left)
            else:
                source = dist.recv(received, left)
                dist.send(sent, right)
            if bytes_of(received) != bytes_of(wanted) or source != left:
                wrong.append(f"{dtype} {count}")
            received = torch.empty_like(sent)
            works = [dist.irecv(received, left), dist.isend(sent, right)]
            for work in works:
                work.wait()
            if bytes_of(received) != bytes_of(wanted):
                wrong.append(f"{dtype} {count} later")
    return wrong


def test_messages_of_every_dtype_arrive():
    assert run_ranks(SIZE, send_every_dtype) == [[]] * SIZE


def batch(rank, size, is_receive_first):
    right, left = (rank + 1) % size, (rank - 1) % size
    answers = []
    for count in COUNTS:
        received = [torch.empty(count) for _ in range(4)]
        operations = []
        for i, tensor in enumerate(received):
            send = dist.P2POp(
                dist.isend, value(rank, i, torch.float32, count), right, tag=i
            )
            receive = dist.P2POp(dist.irecv, tensor, left, tag=i)
            pair = [receive, send] if is_receive_first else [send, receive]
            operations += pair
        works = dist.batch_isend_irecv(operations)
        for work in works:
            work.wait()
        is_same = all(
            torch.equal(tensor, value(left, i, torch.float32, count))
            for i, tensor in enumerate(received)
        )
        answers.append((is_same, len(works)))
    return answers


@pytest.mark.parametrize("is_receive_first", [False, True])
def test_a_batch_ends_whichever_comes_first(is_receive_first):
    for answers in run_ranks(2, batch, is_receive_first):
        assert [is_same for is_same, _ in answers] == [True] * len(COUNTS)


def test_a_batch_is_one_work():
    for answers in run_ranks(2, batch, True):
        assert [num_works for _, num_works in answers] == [1] * len(COUNTS)


def batch_with_everybody(rank, size):
    """All-to-all by messages, with two batches in progress and one tag for each
    pair.
    """
    rows = [torch.empty(size, 5_000) for _ in range(2)]
    works = []
    for turn, row in enumerate(rows):
        operations = []
        for peer in range(size):
            if peer == rank:
                row[peer] = 100 * turn + rank
                continue
            own = torch.full((5_000,), 100.0 * turn + rank)
            operations.append(dist.P2POp(dist.isend, own, peer))
            operations.append(dist.P2POp(dist.irecv, row[peer], peer))
        works += dist.batch_isend_irecv(operations)
    for work in reversed(works):
        work.wait()
    return [row[:, -1].tolist() for row in rows]


def test_messages_of_one_tag_keep_their_order_over_batches():
    wanted = [[0.0, 1.0, 2.0], [100.0, 101.0, 102.0]]
    assert run_ranks(SIZE, batch_with_everybody) == [wanted] * SIZE


def receive_by_tag(rank, size):
    answers = []
    for count in (3, 90_000):
        if rank == 0:
            works = [
                dist.isend(torch.full((count,), float(tag)), 1, tag=tag)
                for tag in range(4)
            ]
            for work in works:
                work.wait()
        else:
            for tag in (2, 0, 3, 1):
                tensor = torch.empty(count)
                dist.recv(tensor, 0, tag=tag)
                answers.append(tensor[-1].item() == tag)
    return all(answers)


def test_tags_may_be_received_in_another_order():
    assert run_ranks(2, receive_by_tag) == [True, True]


def receive_from_anyone(rank, size):
    if rank != 0:
        for i in range(3):
            dist.send(torch.tensor([rank, i]), 0, tag=7)
        return True
    seen = []
    for _ in range(3 * (size - 1)):
        tensor = torch.empty(2, dtype=torch.int64)
        source = dist.recv(tensor, tag=7)
        seen.append((source, *tensor.tolist()))
    in_order = [[i for s, _, i in seen if s == r] for r in range(1, size)]
    if in_order != [[0, 1, 2]] * (size - 1):
        return seen
    return all(source == rank for source, rank, _ in seen)


def test_messages_from_anyone_come_with_their_source_and_in_order():
    assert run_ranks(SIZE, receive_from_anyone) == [True] * SIZE


def many_under_way(rank, size):
    other = 1 - rank
    count = 64
    received = [torch.empty(3_000) for _ in range(count)]
    works = [dist.irecv(t, other, tag=i % 5) for i, t in enumerate(received)]
    works += [
        dist.isend(torch.full((3_000,), float(i)), other, tag=i % 5)
        for i in range(count)
    ]
    for work in reversed(works):
        work.wait()
    return all(bool((t == i).all()) for i, t in enumerate(received))


def test_many_messages_are_under_way_at_once():
    assert run_ranks(2, many_under_way) == [True, True]


def drop_works(rank, size):
    other = 1 - rank
    answers = []
    for count in COUNTS[1:]:
        received = torch.empty(count)
        for turn in range(3):
            sent = torch.full((count,), float(rank + 10 * turn))
            dist.isend(sent, other)
            del sent
            work = dist.irecv(received, other)
            work.wait()
            answers.append(bool((received == other + 10 * turn).all()))
    # The sender goes on at once; the receiver comes later.
    if rank == 0:
        dist.isend(torch.full((5,), 3.0), 1)
    else:
        late(0.1)
        received = torch.empty(5)
        dist.recv(received, 0)
        answers.append(received.tolist() == [3.0] * 5)
    dist.barrier()
    return all(answers)


def test_a_dropped_send_still_arrives():
    assert run_ranks(2, drop_works) == [True, True]


def exchange_in_subgroup(rank, size):
    """Ranks are those of the whole job, unless the call takes group ranks."""
    group = dist.new_group([2, 1])
    if rank == 0:
        return True
    tensor = torch.empty(1)
    if rank == 1:
        dist.send(torch.tensor([5.0]), 2, group=group)
        dist.recv(tensor, group=group, group_src=1)
    else:
        dist.recv(tensor, 1, group=group)
        dist.send(tensor + 1, group=group, group_dst=0)
    objects = [tensor.item(), None]
    if rank == 1:
        dist.send_object_list(objects, 2, group=group)
    else:
        dist.recv_object_list(objects, 1, group=group)
    return objects


def test_messages_in_a_subgroup():
    assert run_ranks(SIZE, exchange_in_subgroup)[1:] == [[6.0, None]] * 2


def receive_into_less(rank, size):
    if rank == 0:
        dist.send(torch.ones(5), 1)
        return True
    try:
        dist.recv(torch.empty(3), 0)
    except (RuntimeError, ValueError):
        return True
    return False


def test_a_message_longer_than_its_buffer_is_an_error():
    assert run_ranks(2, receive_into_less, group_timeout=5) == [True, True]
