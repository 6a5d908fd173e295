# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from aikido_torch.pipeline._channel import GroupChannel
from aikido_torch.straggler import WaitAll


@pytest.mark.parametrize("policy", [None, WaitAll()])
def test_messages_are_known_by_their_tags_and_sums_end(group_of_one, policy):
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
