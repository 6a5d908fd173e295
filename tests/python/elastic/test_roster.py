# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decisions about the next roster, as tables."""

import pytest

from aikido_torch.elastic._roster import Member, Roster, decide_survivors
from aikido_torch.errors import ConfigError


def roster_of(reliable, transient, epoch=3):
    roles = ["reliable"] * reliable + ["transient"] * transient
    return Roster(
        epoch=epoch,
        members=tuple(
            Member(number=n, role=role, handle=f"h{n}")
            for n, role in enumerate(roles, start=1)
        ),
    )


# (reliable, transient, answered, lost, waited, verdict)
TABLE = [
    (2, 2, {1, 2, 3}, {4}, 0.0, "go"),
    (2, 2, {1, 2, 3}, set(), 0.1, "wait"),
    (2, 2, {1, 2, 3}, set(), 1.0, "go"),  # the silent member is excluded
    (2, 6, {1, 2}, {3, 4, 5, 6, 7, 8}, 0.0, "go"),  # all transient members vanish
    (2, 6, {1, *range(3, 9)}, {2}, 0.0, "stuck"),  # half of the reliable members
    (3, 0, {1, 3}, {2}, 0.0, "go"),
    (3, 0, {1}, {2, 3}, 9.0, "stuck"),
    (1, 3, {1}, {2, 3, 4}, 0.0, "go"),
    (1, 3, {2, 3, 4}, {1}, 0.0, "stuck"),  # the only reliable member has died
    (2, 2, {1, 2, 3, 9}, {4}, 0.0, "go"),  # 9 is no member
    (2, 2, {1, 2, 3, 4}, {4}, 0.0, "go"),  # only one connection of 4 broke
]


@pytest.mark.parametrize("row", TABLE)
def test_survivors_continue_with_most_reliable_members(row):
    reliable, transient, answered, lost, waited, verdict = row
    roster = roster_of(reliable, transient)
    found = decide_survivors(roster, answered, lost, waited, 0.5)
    assert found.verdict == verdict
    in_roster = {m.number for m in roster.members}
    assert found.numbers == (answered & in_roster if verdict == "go" else set())


def test_the_reason_has_both_numbers():
    found = decide_survivors(roster_of(3, 1), {1, 4}, {2, 3}, 0.0, 0.5)
    assert found.reason.startswith("1 of 3 reliable members have answered")
    found = decide_survivors(roster_of(2, 0), {1}, set(), 0.25, 0.5)
    assert found.reason == "members [2] have not answered for 0.25 s"


def test_the_next_roster_keeps_the_order_and_appends_joining_members():
    before = roster_of(2, 2)
    new = Member(number=9, role="transient", handle="h9")
    after = before.changed(7, without={1, 3}, joins=[new])
    assert after.epoch == 7
    assert [m.number for m in after.members] == [2, 4, 9]
    assert after.leader.number == 2
    assert after.handles == ["h2", "h4", "h9"]
    assert after.find(1) is None
    assert after.find(9) == new


def test_a_roster_survives_its_text():
    roster = roster_of(1, 2)
    assert Roster.decode(roster.encode()) == roster


@pytest.mark.parametrize("text", ["", "[]", '{"epoch": 1}', '{"members": [{}]}'])
def test_another_text_is_refused(text):
    with pytest.raises(ConfigError, match="a roster that this version cannot read"):
        Roster.decode(text)
