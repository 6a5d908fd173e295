# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.elastic._status import Status, StatusMember
from aikido_torch.errors import ConfigError


def status_of(**more):
    members = (
        StatusMember(1, "reliable", "a", 11),
        StatusMember(4, "transient", "b", 12),
        StatusMember(5, "transient", "", 0),
    )
    facts = {"stall_s": 4.0, "elapsed_s": 10.0} | more
    return Status(
        step=7,
        epoch=2,
        stage=2,
        members=members,
        steps_lost=1,
        written_s=1_700_000_000.0,
        **facts,
    )


def test_a_status_survives_the_store():
    status = status_of()
    assert Status.decode(status.encode()) == status


def test_goodput_is_the_part_of_the_time_in_committed_steps():
    assert status_of().goodput == pytest.approx(0.6)
    assert status_of(stall_s=0.0, elapsed_s=0.0).goodput == 1.0
    assert status_of(stall_s=11.0).goodput == 0.0


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
