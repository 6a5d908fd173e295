# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Agreement of survivors, as threads with a connection each to one store."""

import threading

import pytest
import torch.distributed as dist

from aikido_torch.elastic._agreement import Watch, agree
from aikido_torch.elastic._endpoint import Endpoint
from aikido_torch.elastic._roster import Member, Roster
from aikido_torch.errors import AbortedError


@pytest.fixture
def endpoint():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield Endpoint(f"127.0.0.1:{store.port}", "job")
    del store


def roster_of(*roles):
    members = [
        Member(number=i, role=role, handle=f"h{i}") for i, role in enumerate(roles, 1)
    ]
    return Roster(epoch=1, members=tuple(members))


def outcomes(endpoint, roster, alive, lost, **limits):
    """Results of `agree` on the members `alive`, which know the deaths `lost`."""
    found = {}
    limits = {"grace_s": 20.0, "timeout_s": 20.0} | limits

    def run(member):
        try:
            found[member.number] = agree(
                endpoint.again(), roster, member, lambda: lost, **limits
            )
        except AbortedError as error:
            found[member.number] = error

    threads = [
        threading.Thread(target=run, args=(m,))
        for m in roster.members
        if m.number in alive
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    return found


def test_all_survivors_get_one_roster(endpoint):
    endpoint.add("epoch", 5)
    roster = roster_of("reliable", "reliable", "transient", "transient", "transient")
    found = outcomes(endpoint, roster, {1, 2, 4}, [3, 5])
    rosters = list(found.values())
    assert len(rosters) == 3
    assert rosters.count(rosters[0]) == 3
    assert [m.number for m in rosters[0].members] == [1, 2, 4]
    assert rosters[0].epoch > 5


def test_a_silent_member_is_excluded_after_the_grace(endpoint):
    roster = roster_of("reliable", "transient", "transient")
    found = outcomes(endpoint, roster, {1, 2}, [], grace_s=0.05)
    assert [m.number for m in found[2].members] == [1, 2]


def test_too_few_reliable_members_end_the_job_with_a_sentence(endpoint):
    roster = roster_of("reliable", "reliable", "transient")
    found = outcomes(endpoint, roster, {1, 3}, [2], timeout_s=0.1)
    for number in (1, 3):
        text = str(found[number])
        assert "1 of 2 reliable members have answered" in text
        assert "from its last checkpoint" in text


def test_a_planned_roster_is_not_replaced_by_the_survivors(endpoint):
    roster = roster_of("reliable", "transient", "transient")
    planned = endpoint.follow(roster, roster.changed(9, without={2}))
    found = outcomes(endpoint, roster, {1, 3}, [2])
    assert found == {1: planned, 3: planned}


def test_a_watch_answers_for_a_member_that_computes(endpoint):
    endpoint.add("epoch", 5)
    roster = roster_of("reliable", "transient")
    watch = Watch(endpoint, 2, lambda text: None)
    try:
        watch.follow(roster)
        found = outcomes(endpoint, roster, {1}, [])
        assert [m.number for m in found[1].members] == [1, 2]
        while not watch.has_alarm():
            pass
        watch.follow(found[1])
        assert not watch.has_alarm()
    finally:
        watch.close()


def test_a_watch_of_the_leader_sees_living_processes_that_wait(endpoint):
    roster = roster_of("reliable")
    watch = Watch(endpoint, 1, lambda text: None)
    try:
        watch.follow(roster)
        endpoint.add("requests")  # of the leader itself
        own = Member(number=endpoint.add("requests"), role="transient", handle="h")
        dead = Member(number=endpoint.add("requests"), role="transient", handle="d")
        other = endpoint.again()
        other.set("request/3", '{"number": 3, "role": "transient", "handle": "d"}')
        thread = threading.Thread(target=lambda: endpoint.request(own, 20.0))
        thread.start()
        while watch.waiting() != [own]:
            assert dead not in watch.waiting()
        other.admit(own, roster.changed(2, joins=[own]))
        thread.join(20.0)
        watch.follow(roster.changed(2, joins=[own]))
        assert watch.waiting() == []
    finally:
        watch.close()


def test_an_eviction_by_the_command_line_is_seen(endpoint):
    watch = Watch(endpoint, 4, lambda text: None)
    try:
        assert watch.notice_s() is None
        endpoint.set("evict/4", "120")
        while watch.notice_s() is None:
            pass
        assert watch.notice_s() == 120.0
    finally:
        watch.close()
