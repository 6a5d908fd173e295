# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Messages between the exchanges of several ranks, delivered within this process."""

import pytest
import torch

from aikido_torch.errors import ConfigError, PeerLostError, RanksDifferError
from aikido_torch.recovery._state import Snapshot
from aikido_torch.recovery._state_transfer import StateTransfer, check_reachable


class Work:
    def __init__(self):
        self.is_done = False
        self.error = None

    def is_completed(self):
        return self.is_done

    def wait(self):
        if self.error:
            raise self.error


class Mail:
    """Shared state of the backends of `size` ranks. Messages match as in a group."""

    def __init__(self, size):
        self.size = size
        self.messages = []  # (from, to, tag, tensor)
        self.receives = []  # (from or None, to, tag, tensor, work)

    def match(self):
        for receive in list(self.receives):
            source, to, tag, tensor, work = receive
            for message in self.messages:
                if message[1:3] == (to, tag) and source in (None, message[0]):
                    assert message[3].shape == tensor.shape
                    tensor.copy_(message[3])
                    work.is_done = True
                    self.messages.remove(message)
                    self.receives.remove(receive)
                    break

    def lose(self, rank):
        for receive in list(self.receives):
            if receive[0] == rank:
                receive[4].error = PeerLostError("gone")
                receive[4].is_done = True
                self.receives.remove(receive)


class Backend:
    group_name, epoch = "fake", 1

    def __init__(self, mail, rank):
        self.mail = mail
        self.place = (rank, mail.size)
        self.num_calls = 40
        self.standing = "member"
        self.acked = 40
        self.is_waited_for = False
        self.gone = []
        self.seals = []  # (seq, rank, tag)

    def seal(self, seq, rank, tag):
        self.seals.append((seq, rank, tag))
        self.send_seals()

    def send_seals(self):
        """Sends seals, as the progress thread does after each change."""
        left = []
        for seq, rank, tag in self.seals:
            if seq <= self.acked or self.standing != "member":
                word = 1 if seq <= self.acked else -1
                self.send([torch.tensor([word])], rank, tag)
            else:
                left.append((seq, rank, tag))
        self.seals = left

    def send(self, tensors, rank, tag):
        self.mail.messages.append((self.place[0], rank, tag, tensors[0].clone()))
        self.mail.match()
        work = Work()
        work.is_done = True
        return work

    def recv(self, tensors, rank, tag):
        work = Work()
        self.mail.receives.append((rank, self.place[0], tag, tensors[0], work))
        self.mail.match()
        return work

    def recv_anysource(self, tensors, tag):
        return self.recv(tensors, None, tag)


def exchanges(size=3):
    mail = Mail(size)
    return mail, [StateTransfer(Backend(mail, r), number=5) for r in range(size)]


def snapshot():
    return Snapshot(torch.tensor([7, 8], dtype=torch.uint8), torch.ones(100).byte())


def test_who_asks_gets_the_state_that_the_other_has_at_its_next_look():
    _, (a, b, _) = exchanges()
    fetch = a.ask(1, step=3)
    assert not fetch.advance()
    b.look()
    (ask,) = b.asks
    assert (ask.rank, ask.step) == (0, 3)
    assert b.answer(8, snapshot) == [ask]
    copied = fetch.result(1.0, lambda: None)
    assert (copied.rank, copied.step, copied.call) == (1, 8, 40)
    assert copied.snapshot.outline.tolist() == [7, 8]
    assert copied.snapshot.data.sum() == 100
    assert b.answer(9, snapshot) == []


def test_several_that_ask_share_one_snapshot():
    _, (a, b, c) = exchanges()
    fetches = [a.ask(1, step=3), c.ask(1, step=5), c.ask(1, step=7)]
    taken = []
    b.look()
    given = b.answer(8, lambda: taken.append(1) or snapshot())
    assert [(ask.rank, ask.step) for ask in given] == [(0, 3), (2, 7)]
    assert taken == [1]
    steps = [fetch.result(1.0, lambda: None) for fetch in fetches]
    # A rank that asks again has left its first request.
    assert [copied and copied.step for copied in steps] == [8, None, 8]
    assert all(fetch.is_over for fetch in fetches)


def test_a_state_is_of_no_use_before_the_others_have_all_that_is_in_it():
    _, (a, b, _) = exchanges()
    fetch = a.ask(1, step=3)
    b._backend.acked = 39
    b.look()
    b.answer(8, snapshot)
    assert not fetch.advance()
    assert fetch.has_head
    # The sender itself may now be in a call that waits for the asking rank.
    b._backend.acked = 40
    b._backend.send_seals()
    assert fetch.result(1.0, lambda: None).step == 8


def test_a_donor_that_is_left_out_itself_takes_its_state_back():
    _, (a, b, _) = exchanges()
    fetch = a.ask(1, step=3)
    b._backend.acked = 39
    b.look()
    b.answer(8, snapshot)
    b._backend.standing = "refused"
    b._backend.send_seals()
    assert fetch.result(5.0, lambda: None) is None
    assert fetch.is_over


def test_who_has_called_more_gets_no_state():
    _, (a, b, _) = exchanges()
    a._backend.num_calls = 41
    fetch = a.ask(1, step=3)
    b.look()
    assert b.answer(8, snapshot) == []
    assert fetch.result(5.0, lambda: None) is None


def test_who_is_behind_itself_says_so_and_takes_no_snapshot():
    _, (a, b, _) = exchanges()
    fetch = a.ask(1, step=3)

    def look():
        b.look()
        b.answer(9, None)

    assert fetch.result(5.0, look) is None
    assert fetch.is_over


def test_who_does_not_answer_in_time_is_left_and_its_answer_thrown_away():
    mail, (a, b, _) = exchanges()
    fetch = a.ask(1, step=3)
    looks = []
    assert fetch.result(0.01, lambda: looks.append(1)) is None
    assert looks
    assert not fetch.is_over
    a.leave(fetch)
    b.look()
    b.answer(8, snapshot)
    a.look()
    assert fetch.is_over
    assert mail.messages == []


def test_nobody_asks_long_who_is_waited_for_itself():
    _, (a, b, _) = exchanges()
    fetch = a.ask(1, step=3)
    looks = []

    def look():
        looks.append(1)
        a._backend.is_waited_for = len(looks) == 3

    assert fetch.result(30.0, look) is None
    assert len(looks) == 3
    # A transfer that has begun is finished, because that delays no waiting rank.
    again = a.ask(1, step=3)
    b.look()
    b._backend.acked = 39
    b.answer(8, snapshot)

    def settle():
        b._backend.acked = 40
        b._backend.send_seals()

    a._backend.is_waited_for = True
    assert again.advance() is False
    assert again.result(30.0, settle).step == 8


def test_without_anybody_to_ask_the_error_says_so():
    _, (a, _, _) = exchanges()
    a._backend.gone = [1]
    check_reachable(a._backend)
    a._backend.gone = [1, 2]
    with pytest.raises(PeerLostError, match=r"rank 0 .* all 2 others have left") as why:
        check_reachable(a._backend)
    assert why.value.rank == 1


def test_a_rank_that_cannot_be_taken_in_again_waits_for_nobody():
    _, (a, b, _) = exchanges()
    fetch = a.ask(1, step=3)
    b.look()
    a._backend.gone = [2]
    check_reachable(a._backend)
    a._backend.standing = "ended"
    assert fetch.result(30.0, a.look) is None
    with pytest.raises(PeerLostError, match="rank 2 left the group or failed") as why:
        check_reachable(a._backend)
    assert why.value.rank == 2


def test_a_donor_that_dies_gives_nothing():
    mail, (a, b, _) = exchanges()
    fetches = [a.ask(1, step=3), a.ask(1, step=3)]
    b.look()
    # One rank has received the head of a state, the other rank nothing.
    b._send(torch.tensor([8, 40, 2, 100]), 0, b.asks[0].tag)
    assert [fetch.advance() for fetch in fetches] == [False, False]
    assert [fetch.has_head for fetch in fetches] == [True, False]
    mail.lose(1)
    for fetch in fetches:
        assert fetch.result(5.0, lambda: None) is None
        assert fetch.is_over


def test_a_failure_is_told_to_all_others_shortened_if_need_be():
    _, (a, b, c) = exchanges()
    a.tell_failure(ConfigError("it does not fit"), timeout_s=1.0)
    for other in (b, c):
        other.look()
        assert isinstance(other.failure, ConfigError)
        assert str(other.failure) == "it does not fit"
    assert a.failure is None
    c.tell_failure(ConfigError("x" * 5000), timeout_s=1.0)
    a.look()
    assert str(a.failure).startswith("xxx")
    assert str(a.failure).endswith(" ...")


@pytest.mark.parametrize("name", ["layer.weight", "layer." * 400])
def test_a_difference_is_told_with_its_rank_step_and_tensor(name):
    _, (a, b, _) = exchanges()
    told = RanksDifferError(f"rank 0 differs in {name}", rank=0, step=95, tensor=name)
    a.tell_failure(told, timeout_s=1.0)
    b.look()
    found = b.failure
    assert isinstance(found, RanksDifferError)
    assert (found.rank, found.step) == (0, 95)
    assert found.tensor.startswith("layer.")
    assert str(found).startswith("rank 0 differs in layer.")
    if len(name) < 100:
        assert (found.tensor, str(found)) == (told.tensor, str(told))


def test_the_end_of_a_training_is_told_by_number():
    _, (a, b, _) = exchanges()
    a.tell_end(1, 60, "abc")
    a.tell_end(2, 80, "")
    b.look()
    assert b.take_ends(1) == [(0, 60, "abc")]
    assert b.take_ends(1) == []
    assert b.take_ends(2) == [(0, 80, "")]
    assert b.take_digests() == []


def test_models_on_one_group_do_not_hear_each_other():
    mail = Mail(2)
    one, other = (StateTransfer(Backend(mail, 0), number=n) for n in (1, 2))
    StateTransfer(Backend(mail, 1), number=2).ask(0, step=0)
    one.look()
    other.look()
    assert (len(one.asks), len(other.asks)) == (0, 1)


def test_a_patient_ask_is_answered_once_the_other_rank_is_ahead():
    _, (a, b, _) = exchanges()
    fetch = a.ask(1, step=5, is_patient=True)
    b.look()
    assert b.answer(5, snapshot) == []  # it is not ahead yet
    assert b.answer(6, None) == []  # it has no valid state at the moment
    assert not fetch.advance()
    (ask,) = b.answer(6, snapshot)
    assert (ask.rank, ask.step, ask.is_patient) == (0, 5, True)
    assert b.answer(7, snapshot) == []


def test_a_state_of_the_same_place_needs_no_seal():
    _, (a, b, _) = exchanges()
    fetch = a.ask(1, step=5, is_patient=True)
    b._backend.acked = 39  # the seal is sent later
    b.look()
    b.answer(6, snapshot)
    assert fetch.result(0.0, lambda: None, own_place=(6, 39)) is None
    copied = fetch.result(0.0, lambda: None, own_place=(6, 40))
    assert (copied.step, copied.call) == (6, 40)
    assert copied.snapshot.data.sum() == 100


def test_digests_reach_all_others():
    _, (a, b, c) = exchanges()
    a.tell_digest(95, "abc")
    b.tell_digest(95, "def")
    for exchange in (a, b, c):
        exchange.look()
    assert c.take_digests() == [(0, 95, "abc"), (1, 95, "def")]
    assert c.take_digests() == []
    assert (a.take_digests(), b.take_digests()) == (
        [(1, 95, "def")],
        [(0, 95, "abc")],
    )


def test_short_steps_reach_all_others():
    _, (a, b, c) = exchanges()
    a.tell_short(7, 2)
    b.tell_short(7, 2)
    for exchange in (a, b, c):
        exchange.look()
    assert c.take_shorts() == [(7, 2), (7, 2)]
    assert c.take_shorts() == []
    assert a.take_shorts() == [(7, 2)]


def test_many_models_of_one_group_have_tags_of_their_own():
    mail = Mail(2)
    for number in (0, 255, 256, 300, 70_000):
        StateTransfer(Backend(mail, 0), number=number)
    assert len({tag for _, _, tag, *_ in mail.receives}) == 5
