# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import copy
import random
from collections import Counter

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from aikido_torch.elastic._sampler import ElasticSampler
from aikido_torch.errors import ConfigError


def sampler_of(num_items=10, batch_size=2, **more):
    return ElasticSampler(num_items, batch_size, shuffle=False, **more)


def items_of(assignment):
    return {member: list(items) for member, items in assignment.items.items()}


def test_a_step_has_a_batch_of_each_member_in_rank_order():
    sampler = sampler_of()
    first = sampler.assign(["a", "b"])
    assert (first.step, first.epoch) == (0, 0)
    assert items_of(first) == {"a": [0, 1], "b": [2, 3]}
    assert sampler.is_assigned
    assert sampler.assign(["a", "b"]) == first == sampler.assignment
    sampler.commit()
    assert not sampler.is_assigned
    assert items_of(sampler.assign(["a", "b"])) == {"a": [4, 5], "b": [6, 7]}


def test_the_last_step_of_an_epoch_is_divided_evenly():
    sampler = sampler_of(num_items=11)
    for _ in range(2):
        sampler.assign(["a", "b"])
        sampler.commit()
    last = sampler.assign(["a", "b", "c", "d"])
    assert items_of(last) == {"a": [8], "b": [9], "c": [10], "d": []}
    assert [last.share_of(m) for m in "abcd"] == [1 / 3, 1 / 3, 1 / 3, 0]
    assert last.batches_of("d") == ()
    sampler.commit()
    assert sampler.num_remaining == 0
    new = sampler.assign(["a"])
    assert (new.epoch, new.step, items_of(new)) == (1, 3, {"a": [0, 1]})


def test_a_member_may_have_several_batches_in_a_step():
    sampler = sampler_of(batches_per_step=2)
    step = sampler.assign(["a", "b"])
    assert step.batches_of("a") == ((0, 1), (2, 3))
    assert step.batches_of("b") == ((4, 5), (6, 7))
    sampler.commit()
    assert sampler.assign(["a", "b"]).batches_of("b") == ((9,),)


def test_survivors_repeat_a_failed_step_with_the_same_items():
    sampler = sampler_of()
    sampler.assign(["a", "b", "c"])
    repeated = sampler.lose(["b", "unknown"])
    assert items_of(repeated) == {"a": [0, 1], "c": [4, 5]}
    assert repeated.step == 0
    sampler.commit()
    assert items_of(sampler.assign(["a", "c"])) == {"a": [2, 3], "c": [6, 7]}


def test_items_of_a_member_lost_in_the_last_step_extend_the_epoch():
    sampler = sampler_of(num_items=4)
    sampler.assign(["a", "b"])
    sampler.lose(["b"])
    sampler.commit()
    assert sampler.num_remaining == 2
    last = sampler.assign(["a"])
    assert (last.epoch, items_of(last)) == (0, {"a": [2, 3]})


def test_a_step_without_survivors_begins_anew():
    sampler = sampler_of()
    sampler.assign(["a", "b"])
    assert sampler.lose(["a", "b"]) is None
    assert items_of(sampler.assign(["c"])) == {"c": [0, 1]}


def test_released_items_are_the_first_ones_of_the_next_step():
    sampler = sampler_of()
    sampler.release()
    sampler.assign(["a", "b"])
    sampler.release()
    assert items_of(sampler.assign(["a", "b", "c"])) == {
        "a": [0, 1],
        "b": [2, 3],
        "c": [4, 5],
    }


def test_a_rolled_back_step_has_the_same_items():
    sampler = sampler_of()
    first = sampler.assign(["a", "b"])
    sampler.commit()
    sampler.assign(["a", "b"])
    assert sampler.roll_back() == first
    assert items_of(sampler.lose(["b"])) == {"a": [0, 1]}
    sampler.commit()
    assert items_of(sampler.assign(["a"])) == {"a": [2, 3]}
    assert sampler.num_remaining == 8


def test_a_rollback_goes_back_over_the_end_of_an_epoch():
    sampler = ElasticSampler(4, 2, seed=3)
    first = sampler.assign(["a", "b"])
    sampler.commit()
    assert sampler.assign(["a", "b"]).epoch == 1
    assert sampler.roll_back() == first
    sampler.commit()
    assert sampler.num_remaining == 0


def test_only_one_step_can_be_rolled_back():
    sampler = sampler_of()
    sampler.assign(["a"])
    sampler.commit()
    sampler.roll_back()
    with pytest.raises(ConfigError, match="only the last committed step can be"):
        sampler.roll_back()


def test_each_epoch_has_an_order_of_its_own_from_the_seed():
    def orders(seed):
        sampler, found = ElasticSampler(50, 50, seed=seed), []
        for _ in range(2):
            found.append(sampler.assign(["a"]).items["a"])
            sampler.commit()
        return found

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)
    first, second = orders(1)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(50))


class Churn:
    """Random members of a job; counts the items that were trained in each epoch."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.num_items = self.random.randint(1, 120)
        self.members = [f"m{i}" for i in range(self.random.randint(1, 6))]
        self.num_named = len(self.members)
        self.trained: dict[int, Counter[int]] = {}
        self.last = None
        self.seed = seed
        self.sampler = self.new_sampler()

    def new_sampler(self):
        return ElasticSampler(
            self.num_items,
            self.random.randint(1, 5),
            batches_per_step=self.random.randint(1, 2),
            seed=self.seed,
        )

    def change_members(self):
        for _ in range(self.random.randint(0, 3)):
            if self.random.random() < 0.5 and len(self.members) > 1:
                self.members.remove(self.random.choice(self.members))
            elif len(self.members) < 8:
                self.members.append(f"m{self.num_named}")
                self.num_named += 1

    def count(self, step, sign=1):
        counter = self.trained.setdefault(step.epoch, Counter())
        for items in step.items.values():
            for item in items:
                counter[item] += sign

    def do_step(self):
        step = self.sampler.assign(self.members)
        replica = copy.deepcopy(self.sampler)
        event = self.random.random()
        if event < 0.3:
            most = len(self.members)
            lost = self.random.sample(self.members, self.random.randint(0, most))
            step = self.sampler.lose(lost)
            assert replica.lose(lost) == step
            self.members = [m for m in self.members if m not in lost] or ["new"]
        elif event < 0.4:
            self.sampler.release()
            step = None
        elif event < 0.5 and self.last is not None:
            step = self.sampler.roll_back()
            assert step == self.last
            self.count(self.last, -1)
        elif event < 0.6:  # stop in the middle of the step, and resume
            state = self.sampler.state_dict()
            self.sampler = self.new_sampler()
            self.sampler.load_state_dict(state)
            self.last = step = None
        if step is not None:
            self.sampler.commit()
            self.count(step)
            self.last = step


@pytest.mark.parametrize("seed", range(200))
def test_each_item_of_an_epoch_is_trained_once_under_churn(seed):
    churn = Churn(seed)
    while churn.sampler.epoch < 3:
        churn.do_step()
        churn.change_members()
    for epoch in range(2):  # a rollback may open the last finished epoch again
        assert churn.trained[epoch] == Counter(range(churn.num_items)), epoch
    assert max(churn.trained[2].values(), default=1) == 1


def test_a_state_resumes_with_another_number_of_members():
    sampler = ElasticSampler(20, 3, seed=5)
    done = []
    for members in (["a", "b"], ["a", "b", "c"]):
        for items in sampler.assign(members).items.values():
            done += items
        if len(members) == 2:
            sampler.commit()
    done = done[:6]  # the second step is assigned and not committed
    resumed = ElasticSampler(20, 4, seed=5)
    resumed.load_state_dict(sampler.state_dict())
    assert (resumed.step, resumed.num_remaining) == (1, 14)
    while resumed.num_remaining:
        done += resumed.assign(["x"]).items["x"]
        resumed.commit()
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: None, "is a NoneType; give the result of state_dict"),
        (lambda s: {**s, "step": -1}, "has step=-1"),
        (lambda s: {k: v for k, v in s.items() if k != "epoch"}, "has no 'epoch'"),
        (lambda s: {**s, "place": 11}, "has place=11 of 10 items"),
        (lambda s: {**s, "returned": [0, 0]}, r"has returned=\[0, 0\]"),
        (lambda s: {**s, "returned": [7]}, r"has returned=\[7\]"),
        (lambda s: {**s, "of": 3}, "has of=3"),
        (
            lambda s: {**s, "of": {**s["of"], "num_items": 12}},
            "is of a sampler with num_items=12, but here it is 10",
        ),
        (
            lambda s: {**s, "of": {**s["of"], "seed": 9}},
            "is of a sampler with seed=9, but here it is 0",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, text):
    sampler = sampler_of()
    sampler.assign(["a"])
    sampler.commit()
    before = sampler.state_dict()
    with pytest.raises(ConfigError, match=text):
        sampler.load_state_dict(change(sampler.state_dict()))
    assert sampler.state_dict() == before


class Endless(IterableDataset):
    def __iter__(self):
        yield from ()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((Endless(), 2), "cannot be divided among members that come and go"),
        ((0, 2), "dataset is 0; it takes a whole number, at least 1"),
        ((10, 0), "batch_size is 0"),
        ((10, 2.0), "batch_size is 2.0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, text):
    with pytest.raises(ConfigError, match=text):
        ElasticSampler(*arguments)


def test_calls_out_of_order_are_refused():
    sampler = ElasticSampler(TensorDataset(torch.zeros(5)), 2)
    calls = sampler.commit, lambda: sampler.lose(["a"]), lambda: sampler.assignment
    for call in calls:
        with pytest.raises(ConfigError, match="step 0 is not assigned"):
            call()
    for members in ([], ["a", "a"]):
        with pytest.raises(ConfigError, match="give each member once"):
            sampler.assign(members)
    sampler.assign(["a"])
    with pytest.raises(ConfigError, match="step 0 is assigned to a, and assign is"):
        sampler.assign(["a", "b"])
