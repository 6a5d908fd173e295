# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Keys of a job in a real store on loopback."""

import threading

import pytest
import torch.distributed as dist

from aikido_torch.elastic._endpoint import Endpoint
from aikido_torch.elastic._roster import Member, Roster
from aikido_torch.errors import ConfigError, PeerLostError, TimedOutError


@pytest.fixture
def address():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield f"127.0.0.1:{store.port}"
    del store


def member(number, role="transient"):
    return Member(number=number, role=role, handle=f"h{number}")


def test_the_first_decision_stands_for_all_connections(address):
    first, second = Endpoint(address, "a"), Endpoint(address, "a")
    assert first.decide("k", "one") == "one"
    assert second.decide("k", "two") == "one"
    assert second.read("k") == "one"
    assert second.read("other") is None
    assert (first.add("n"), second.add("n", 2)) == (1, 3)


def test_two_jobs_on_one_store_do_not_see_each_other(address):
    Endpoint(address, "a").set("k", "1")
    assert Endpoint(address, "b").read("k") is None


def test_the_roster_after_an_epoch_is_the_first_proposal(address):
    store = Endpoint(address, "a")
    old = Roster(epoch=1, members=(member(1, "reliable"), member(2)))
    one, two = old.changed(2, without={2}), old.changed(3)
    assert store.follow(old, one) == one
    assert store.follow(old, two) == one


def test_a_request_waits_for_its_roster(address):
    asks, answers = Endpoint(address, "a"), Endpoint(address, "a")
    own = member(asks.add("requests"))
    roster = Roster(epoch=4, members=(own,))
    found = []
    thread = threading.Thread(target=lambda: found.append(asks.request(own, 20.0)))
    thread.start()
    while answers.request_of(1) is None:
        pass
    assert answers.request_of(1) == own
    assert not answers.has_answer(1)
    answers.admit(own, roster)
    thread.join(20.0)
    assert found == [roster]
    assert answers.request_of(1) is None
    assert answers.has_answer(1)


def test_a_request_without_an_answer_ends_with_a_sentence(address):
    store = Endpoint(address, "a")
    with pytest.raises(TimedOutError, match="no reliable member has admitted"):
        store.request(member(1), 0.02)
    assert store.has_answer(1)  # no leader admits it any more
    store.set("ended", "17")
    with pytest.raises(ConfigError, match="has ended with step 17"):
        store.request(member(2), 5.0)


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", ":1"])
def test_another_form_of_address_is_refused(address):
    with pytest.raises(ConfigError, match="give host:port"):
        Endpoint(address, "a")


def test_a_store_that_is_gone_is_named(address):
    port = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port
    with pytest.raises(PeerLostError, match=f"127.0.0.1:{port} does not answer"):
        Endpoint(f"127.0.0.1:{port}", "a", timeout_s=0.2)
