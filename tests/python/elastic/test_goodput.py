# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.elastic._goodput import Goodput
from aikido_torch.elastic._roster import Member

MEMBERS = (
    Member(number=1, role="reliable", handle="secret", host="a", pid=11),
    Member(number=4, role="transient", handle="secret"),
)


def status_of(times, now_s=110.0):
    return times.status(
        MEMBERS, step=7, epoch=2, stage=2, now_s=now_s, wall_s=1_700_000_000.0
    )


def test_time_outside_of_committed_steps_is_a_stall():
    times = Goodput(100.0)
    times.begin_step(100.0)
    times.commit(103.0)
    times.begin_step(104.0)  # fails
    times.begin_step(106.0)
    times.commit(109.0)
    status = status_of(times)
    assert (status.elapsed_s, status.stall_s, status.steps_lost) == (10.0, 4.0, 1)
    assert status.goodput == pytest.approx(0.6)


def test_rolled_back_steps_are_lost():
    times = Goodput(100.0)
    times.begin_step(100.0)
    times.commit(101.0)
    times.roll_back()
    times.begin_step(102.0)
    assert times.steps_lost == 1


def test_a_status_names_the_members_without_their_handles():
    status = status_of(Goodput(100.0))
    assert [(m.number, m.role, m.host, m.pid) for m in status.members] == [
        (1, "reliable", "a", 11),
        (4, "transient", "", 0),
    ]
    assert (status.step, status.epoch, status.stage) == (7, 2, 2)
    assert "secret" not in status.encode()  # a handle is for members only
