# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
import torch.distributed as dist

from aikido_torch.errors import PeerLostError
from aikido_torch.pipeline.runtime._channel import GroupChannel
from aikido_torch.straggler import WaitAll


@pytest.mark.parametrize("policy", [None, WaitAll()])
def test_messages_are_matched_by_their_tags_and_sums_complete(group_of_one, policy):
    channel = GroupChannel(group_of_one, {3: group_of_one}, policy)
    into = [torch.empty(2, dtype=torch.uint8) for _ in range(2)]
    pending = [channel.receive(0, tag, into[tag]) for tag in (1, 0)]
    assert not any(one.is_done() for one in pending)
    for tag in (0, 1):
        sent = torch.full((2,), tag, dtype=torch.uint8)
        pending.append(channel.send(0, tag, sent))
    total = torch.ones(3)
    pending.append(channel.reduce(3, total))
    for one in pending:
        one.wait()
        assert one.is_done()
    assert [tensor.tolist() for tensor in into] == [[0, 0], [1, 1]]
    assert total.tolist() == [1, 1, 1]


class Refusing:
    """A work that has failed because of a rank."""

    def __init__(self, rank):
        self.rank = rank

    def wait(self):
        text = "no sum"
        raise PeerLostError(
            text, rank=self.rank, operation="all_reduce", sequence_number=7
        )


@pytest.mark.parametrize("is_at_once", [False, True])
@pytest.mark.parametrize("rank", [0, None])
def test_the_culprit_of_a_failed_sum_is_a_rank_of_the_pipeline(
    group_of_one, monkeypatch, rank, is_at_once
):
    monkeypatch.setattr(dist, "get_group_rank", lambda group, rank: 5 + rank)
    channel = GroupChannel(group_of_one, {3: group_of_one})

    def refuse(*_, **__):
        if is_at_once:
            Refusing(rank).wait()
        return Refusing(rank)

    monkeypatch.setattr(dist, "all_reduce", refuse)
    with pytest.raises(PeerLostError) as caught:
        channel.reduce(3, torch.ones(3)).wait()
    error = caught.value
    assert (error.operation, error.sequence_number) == ("all_reduce", 7)
    assert error.rank == (None if rank is None else 5)
    told = " (in the group of the replicas of stage 3, whose ranks 0 are ranks 5 of "
    assert str(error) == "no sum" + ("" if rank is None else told + "the pipeline)")
