# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pickle

import pytest
import torch
from torch.utils.data import IterableDataset, default_collate

from aikido_torch.errors import ConfigError, InternalError, TimedOutError
from aikido_torch.reassign._plan import Item, label_of
from aikido_torch.reassign._staging import (
    NotHereError,
    StagedItems,
    Stream,
    StreamItems,
    StreamPlan,
    check_stage,
)


def item_of(label):
    return Item(label, [label], 1.0, 1.0)


# ---- staged items ----


def test_own_items_are_read_once_before_the_step():
    read = []
    staged = StagedItems(lambda item: read.append(item.label) or item.label * 10)
    staged.expect([item_of(1), item_of(2)], [item_of(9)])
    staged.expect([item_of(2)])
    assert read == [1, 2]
    assert staged.read(item_of(2)) == 20
    assert pickle.loads(staged.pickled(1)) == 10
    assert staged.pickled(9) is None
    assert staged.of([1, 9]) == {1: 10}


def test_an_item_of_another_rank_comes_from_its_owner_or_not():
    staged = StagedItems(lambda item: None)
    asked = []

    def fetch(owner, label, timeout_s):
        asked.append((owner, label))
        return pickle.dumps([7]) if owner == 3 else None

    staged.fetch = fetch
    assert staged.read(item_of(5), 3) == [7]
    with pytest.raises(
        NotHereError, match="rank 2 has not sent the data of its micro-"
    ):
        staged.read(item_of(5), 2)
    assert asked == [(3, 5), (2, 5)]


def test_an_item_is_kept_until_it_cannot_come_back():
    staged = StagedItems(lambda item: item.label)
    staged.expect([item_of(label) for label in range(5)])
    staged.on_outcome(0, [0], [1, 2, 3])
    assert not staged.has(0)  # it counts
    staged.on_outcome(10, [], [3])  # it was lost, and a helper has it again
    staged.forget(16, [])
    assert all(staged.has(label) for label in (1, 2, 3, 4))
    staged.forget(17, [2])  # item 2 is lost
    assert [label for label in range(5) if staged.has(label)] == [2, 3, 4]
    staged.forget(27, [2])
    assert [label for label in range(5) if staged.has(label)] == [2, 4]


# ---- streams ----


class Numbers(IterableDataset):
    """Numbers from `begin` on, with a random number each."""

    def __init__(self, count):
        self._count, self._place = count, 0

    def __iter__(self):
        while self._place < self._count:
            self._place += 1
            yield self._place - 1, torch.rand(())
        self._place = 0


class Saved(Numbers):
    def state_dict(self):
        return {"place": self._place}

    def load_state_dict(self, state):
        self._place = state["place"]


def staged_of(stream, count):
    found = {}
    stream.stage(count, found.__setitem__)
    assert [*found] == stream.labels
    return found


def stream_of(dataset, **options):
    return Stream(dataset, 2, default_collate, 5, **options)


def test_items_of_a_stream_have_names_of_their_own():
    stream = stream_of(Numbers(7))
    stream.begin(1, 2, 3)
    first = staged_of(stream, 2)
    assert [data[0].tolist() for data in first.values()] == [[0, 1], [2, 3]]
    assert [*first] == [label_of(1, 2), label_of(1, 5)]
    plan = StreamPlan(
        num_samples=2**40,
        batch_size=10,
        micro_batch_size=2,
        num_ranks=3,
        shuffle=True,
        seed=0,
        drop_last=True,
    )
    assert plan.item(label_of(1, 5)) == Item(label_of(1, 5), [2, 3], 1.0, 1.0)
    assert [plan.count_of(rank) for rank in range(3)] == [2, 2, 1]
    assert not stream.has_ended
    assert len(staged_of(stream, 2)) == 1  # one sample fills no item
    assert stream.has_ended
    assert staged_of(stream, 2) == {}
    stream.begin(2, 2, 3)
    again = staged_of(stream, 1)
    assert again[label_of(2, 2)][0].tolist() == [0, 1]


def test_random_numbers_follow_the_item():
    def numbers(epoch, rank):
        stream = stream_of(Numbers(8))
        stream.begin(epoch, rank, 2)
        return [data[1].tolist() for data in staged_of(stream, 4).values()]

    expected = numbers(0, 0)
    torch.rand(3)
    assert numbers(0, 0) == expected
    assert numbers(0, 1) != expected
    assert numbers(1, 0) != expected


def test_processes_read_a_stream():
    stream = stream_of(Numbers(6), num_workers=1)
    stream.begin(0, 0, 1)
    found = staged_of(stream, 9)
    assert [data[0].tolist() for data in found.values()] == [[0, 1], [2, 3], [4, 5]]


def test_a_stream_goes_on_after_its_state():
    stream = stream_of(Saved(8))
    stream.begin(3, 0, 1)
    staged_of(stream, 2)
    state = stream.state()
    expected = staged_of(stream, 2)
    other = stream_of(Saved(8))
    other.load(3, state)
    other.begin(3, 0, 1)
    found = staged_of(other, 2)
    assert [*found] == [*expected]
    assert [d[0].tolist() for d in found.values()] == [[4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("dataset", "options", "part"),
    [
        (Numbers(8), {}, "has no state_dict, so its place in the stream cannot be"),
        (Saved(8), {"num_workers": 2}, "2 processes have copies of the iterable"),
    ],
)
def test_a_stream_without_a_state_says_so(dataset, options, part):
    stream = stream_of(dataset, **options)
    for call in (stream.state, lambda: stream.load(0, {})):
        with pytest.raises(ConfigError) as error:
            call()
        assert part in str(error.value)


def test_an_item_of_a_stream_is_not_read_again():
    with pytest.raises(InternalError, match="item 4 of a stream is not here any more"):
        stream_of(Numbers(8)).read(item_of(4))


# ---- end of the streams ----


class Training:
    """Training of rank 0 of three; the others tell what `told` has."""

    place = (0, 3)
    timeout_s = 1.0

    def __init__(self):
        self.told = {1: (0, False), 2: (0, False)}
        self.own = []
        self.lost = []

    def gone(self):
        return self.lost, 0

    def tell_stream(self, run, num_steps, *, has_ended):
        self.own.append((run, num_steps, has_ended))

    def told_stream(self, run, rank):
        return self.told[rank]


class Clock:
    """Time that passes in `wait`, with changes of what other ranks tell."""

    def __init__(self, training, changes=()):
        self.now = 0.0
        self._training, self._changes = training, [*changes]

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds
        if self._changes:
            self._training.told |= self._changes.pop(0)


def items_of(training, count, changes=()):
    stream = stream_of(Numbers(count))
    clock = Clock(training, changes)
    items = StreamItems(
        training, stream, 2, lambda label, data: None, clock, clock.wait
    )
    items.begin_epoch(0)
    return items


def test_a_step_with_own_items_begins_without_a_wait():
    training = Training()
    items = items_of(training, 6)
    assert items.find_end(0) is None
    assert len(items.begin_step(0, 0, 0)) == 2
    assert items.find_end(3) is None  # steps 1 and 2 were missed
    assert items.begin_step(1, 0, 1) == []
    assert len(items.begin_step(3, 0, 3)) == 1
    assert training.own == [(0, 1, False), (0, 4, True)]


def test_an_epoch_ends_with_the_last_stream():
    training = Training()
    changes = [{1: (2, False)}, {2: (4, True)}]
    items = items_of(training, 4, changes)
    assert items.find_end(0) is None
    assert items.find_end(1) is None  # rank 1 has items for it
    assert items.begin_step(1, 0, 1) == []
    assert items.find_end(2) is None
    assert items.begin_step(2, 0, 2) == []
    assert training.own[-1] == (0, 1, True)
    training.told = {1: (3, True), 2: (4, True)}
    assert items.find_end(4) == 4
    items.begin_epoch(1)
    assert items.find_end(0) is None
    assert training.own[-1] == (1, 1, False)


def test_the_stream_of_a_dead_rank_has_ended():
    training = Training()
    items = items_of(training, 0, [{}, {1: (0, True)}])
    training.lost = [2]
    assert items.find_end(0) == 0
    training.told[2] = (1, False)  # told before its death
    assert items.find_end(0) is None


def test_the_wait_for_other_streams_has_a_deadline():
    items = items_of(Training(), 0)
    with pytest.raises(TimedOutError, match="rank 1 has not begun step 0 of the epoch"):
        items.find_end(0)


# ---- arguments ----


def test_arguments_of_a_stage():
    assert not check_stage(None, Numbers(1), None, [1.0], drop_last=False)
    assert not check_stage("send", range(3), None, [1.0], drop_last=False)
    assert check_stage("send", Numbers(1), None, None, drop_last=True)


@pytest.mark.parametrize(
    ("arguments", "drop_last", "part"),
    [
        (("read", range(3), None, None), True, "stage is 'read'; it takes \"send\""),
        (("send", range(3), {}, None), True, "replay is given and stage is"),
        (("send", Numbers(3), None, len), True, "cost is given, and the dataset is"),
        (("send", Numbers(3), None, None), False, "drop_last is False, and the"),
    ],
)
def test_a_wrong_stage_is_refused(arguments, drop_last, part):
    with pytest.raises(ConfigError) as error:
        check_stage(*arguments, drop_last=drop_last)
    assert part in str(error.value)
