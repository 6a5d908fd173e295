# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Calls of a session on a group of one; `multiproc/test_elastic.py` has more."""

import pytest
import torch
import torch.distributed as dist

from aikido_torch.elastic import _group
from aikido_torch.elastic._roster import Member, Roster
from aikido_torch.errors import ConfigError, PeerLostError
from aikido_torch.recovery._state import Snapshot


@pytest.fixture
def handle():
    yield _group.begin_alone(20.0)
    if dist.is_initialized():
        dist.destroy_process_group()


def test_a_process_begins_alone_and_reconnects_to_itself(handle):
    own = Member(number=1, role="reliable", handle=handle)
    _group.connect(Roster(epoch=3, members=(own,)), 20.0)
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    assert _group.compare_steps(7, has_state=True) == [7]
    assert _group.compare_steps(7, has_state=False) == [-1]
    assert _group.lost_ranks() == []


def test_a_commit_carries_notices_and_waiting_processes(handle):
    assert _group.commit(5, 2, is_leaving=True) == _group.Commit(2, (0,))
    assert _group.commit(6, 0, is_leaving=False) == _group.Commit(0, ())


@pytest.mark.parametrize("text", ["", "{}", "ä" * 1000])
def test_a_text_is_shared_as_it_is(handle, text):
    assert _group.share_text(text, 0) == text


class Endless:
    """A call whose other member has left it."""

    def is_completed(self):
        return False


def test_a_call_ends_if_another_member_announces_a_death():
    alarms = iter([False, True])
    with pytest.raises(PeerLostError, match="another member has announced a death"):
        _group.Watched(Endless(), lambda: next(alarms)).wait()


def test_a_state_without_targets_is_sent_to_nobody(handle):
    _group.send(Snapshot(torch.zeros(1), torch.zeros(1)), [])


def test_a_second_group_is_refused(group_of_one):
    with pytest.raises(ConfigError, match="remove init_process_group"):
        _group.begin_alone(20.0)
