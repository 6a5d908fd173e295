# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.elastic._roster import Member
from aikido_torch.elastic._status import Goodput, Status
from aikido_torch.errors import ConfigError

MEMBERS = (
    Member(number=1, role="reliable", handle="secret", host="a", pid=11),
    Member(number=4, role="transient", handle="secret", host="b", pid=12),
    Member(number=5, role="transient", handle="secret"),
)


def status_of(times=None, now_s=110.0):
    times = times or Goodput(100.0)
    return times.status(
        MEMBERS, step=7, epoch=2, stage=2, now_s=now_s, wall_s=1_700_000_000.0
    )


def test_a_status_survives_the_store():
    status = status_of()
    assert Status.decode(status.encode()) == status
    assert "secret" not in status.encode()  # a handle is for members only


def test_time_outside_of_committed_steps_is_a_stall():
    times = Goodput(100.0)
    times.begin_step(100.0)
    times.commit(103.0)
    times.begin_step(104.0)
    times.lose()
    times.begin_step(106.0)
    times.commit(109.0)
    status = status_of(times)
    assert (status.elapsed_s, status.stall_s, status.steps_lost) == (10.0, 4.0, 1)
    assert status.goodput == pytest.approx(0.6)


def test_a_rollback_loses_steps_and_ends_the_attempt():
    times = Goodput(100.0)
    times.begin_step(100.0)
    times.lose(2)
    times.commit(109.0)
    assert times.steps_lost == 2
    assert status_of(times).stall_s == 10.0


def test_goodput_at_the_begin_is_1():
    assert status_of(now_s=100.0).goodput == 1.0


def test_a_status_counts_members_by_role_and_explains_the_stage():
    status = status_of()
    assert (status.number_of("reliable"), status.number_of("transient")) == (1, 2)
    assert status.stage_reason == (
        "stage 2 stays: 2 transient to 1 reliable members, ratio 2"
    )


def test_rows_and_ranks_name_the_members():
    status = status_of()
    assert status.rows()[1:] == [
        ("1", "4", "transient", "b", "12"),
        ("2", "5", "transient", "-", "-"),
    ]
    assert status.rank_of(2).number == 5
    for rank in (-1, 3):
        with pytest.raises(ConfigError, match=f"no rank {rank}; .* ranks 0 to 2"):
            status.rank_of(rank)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"members": 3}',
        status_of().encode().replace('"stage": 2', '"stage": 9'),
    ],
)
def test_another_text_is_refused(text):
    with pytest.raises(ConfigError, match=r"cannot read .*use the version of the job"):
        Status.decode(text)
