# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from collections import Counter

import pytest

from aikido_torch.reassign._dead_ranks import DeadRanks, Facts

SIZE = 4
DEAD = 3
SURVIVORS = (0, 1, 2)


def lists_of(step):
    """Three items for each rank, with names of step, rank and place."""
    return [[100 * step + 10 * rank + i for i in range(3)] for rank in range(SIZE)]


def divided_on(facts, dead=DEAD):
    """The object of each survivor, and its division."""
    found = {}
    for rank in facts:
        ranks = DeadRanks(rank)
        ranks.notice(dead, set(facts), facts[rank])
        assert {s for _, s in ranks.awaited()} == set(facts) - {rank}
        for other in set(facts) - {rank}:
            assert ranks.decide() == []
            ranks.add(dead, other, facts[other])
        (division,) = ranks.decide()
        found[rank] = ranks, division
    return found


def test_facts_are_numbers_and_come_back():
    facts = Facts(5, ((6, 1 << 40, True), (5, 7, False)))
    numbers = facts.numbers()
    assert numbers == [5, 2, 6, 1 << 40, 1, 5, 7, 0]
    assert Facts.of_numbers([*numbers, 0, 0]) == facts
    assert Facts.of_numbers(Facts(-1).numbers()) == Facts(-1)


def test_each_item_of_a_dead_rank_has_one_survivor():
    """It contributed to step 4 last; two items of step 5 were taken, one counts."""
    facts = {
        0: Facts(4, ((5, 530, True),)),
        1: Facts(3),
        2: Facts(4, ((4, 431, False), (5, 999, False))),
    }
    found = divided_on(facts)
    issued = []
    for rank, (ranks, division) in found.items():
        assert division.first_step == 5
        assert division.heirs == [0, 1, 2]
        # Rank 1 is one step further than the others.
        now = 8 if rank == 1 else 7
        issued += ranks.missing(division, range(5, now), lists_of)
        for step in range(now, 9):
            lists = ranks.lists(step, lists_of(step))
            assert lists[DEAD] == []
            issued += lists[rank][3:]
            assert lists[rank][:3] == lists_of(step)[rank]
        assert ranks.decide() == []
    # 431 and 999 failed; 999 is an item that the dead rank had issued again.
    expected = {i for step in range(5, 9) for i in lists_of(step)[DEAD]} - {530}
    assert Counter(issued) == Counter(expected | {431, 999})


def test_failures_before_the_last_contribution_are_left_to_the_dead_rank():
    facts = {0: Facts(2, ((2, 230, False), (3, 330, True))), 1: Facts(3)}
    for _, division in divided_on(facts).values():
        assert division.first_step == 4
        assert division.failed == []
        assert division.counted == {330}


def test_an_item_that_counted_after_a_failure_is_not_issued_again():
    facts = {0: Facts(2, ((3, 999, False),)), 1: Facts(2, ((4, 999, True),))}
    for _, division in divided_on(facts).values():
        assert division.failed == []


def test_steps_before_the_death_have_their_lists():
    ranks, _ = divided_on({0: Facts(4), 1: Facts(4), 2: Facts(4)})[0]
    assert ranks.lists(4, lists_of(4)) == lists_of(4)
    assert DeadRanks(0).lists(4, lists_of(4)) == lists_of(4)


@pytest.mark.parametrize("first", [3, 2])
def test_the_share_of_a_second_dead_rank_is_divided_as_well(first):
    """Ranks 3 and 2 die one after the other, in both orders."""
    second = 5 - first
    issued = []
    for rank in (0, 1):
        ranks = DeadRanks(rank)
        for dead, alive, last in (
            (first, {0, 1, second}, 4),
            (second, {0, 1}, 6),
        ):
            ranks.notice(dead, alive, Facts(last))
            for other in alive - {rank}:
                ranks.add(dead, other, Facts(last))
            (division,) = ranks.decide()
            if dead == second:
                issued += ranks.missing(division, range(7, 9), lists_of)
        lists = ranks.lists(9, lists_of(9))
        assert lists[2] == lists[3] == []
        issued += lists[rank][3:]
    # Own items of the second rank in steps 7 and 8, and its share of the first rank.
    own = [i for step in (7, 8) for i in lists_of(step)[second]]
    inherited = [lists_of(step)[first][2] for step in (7, 8)]
    assert sorted(issued) == sorted(own + inherited + lists_of(9)[2] + lists_of(9)[3])


def test_a_survivor_that_dies_before_it_tells_its_facts():
    ranks = DeadRanks(0)
    ranks.notice(DEAD, {0, 1, 2}, Facts(1))
    ranks.add(DEAD, 1, Facts(1))
    assert ranks.give_up([DEAD]) == []
    assert ranks.give_up([DEAD, 1]) == []  # its facts are here
    assert ranks.give_up([DEAD, 2]) == [(DEAD, 2)]
    assert ranks.awaited() == []
    assert ranks.decide() == []
    assert ranks.known == {DEAD}
    assert ranks.lists(5, lists_of(5)) == lists_of(5)
