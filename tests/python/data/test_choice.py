# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aikido_torch.data._choice import WINDOW, Lateness, choose


@pytest.mark.parametrize(
    ("what", "step", "late", "backups", "gone", "chosen"),
    [
        ("in turn", 0, [], 1, (), {4: 0}),
        ("in turn", 1, [], 1, (), {4: 1}),
        ("in turn", 5, [], 1, (), {4: 1}),
        ("two at once", 0, [], 2, (), {4: 0, 5: 1}),
        ("two at once", 1, [], 2, (), {4: 2, 5: 3}),
        ("a suspect", 7, [[], [2], []], 1, (), {4: 2}),
        ("the others take turns", 0, [[2]], 2, (), {4: 2, 5: 0}),
        ("the others take turns", 1, [[2]], 2, (), {4: 2, 5: 1}),
        ("the others take turns", 2, [[2]], 2, (), {4: 2, 5: 3}),
        ("most often", 7, [[1], [2], [1], [2], [1], [2], [2]], 1, (), {4: 2}),
        ("then latest", 7, [[1], [2], [2], [1]], 1, (), {4: 1}),
        ("then the lowest", 7, [[3, 1], [1, 3]], 2, (), {4: 1, 5: 3}),
        ("once in a step", 7, [[3], [1, 1, 1]], 1, (), {4: 1}),
        ("more than backups", 7, [[0, 1, 2], [1, 2], [2]], 2, (), {4: 2, 5: 1}),
        ("gone before late", 7, [[1]] * 9, 1, (3,), {4: 3}),
        ("gone and late", 7, [[1]] * 9, 2, (3,), {4: 3, 5: 1}),
        ("gone, in order", 7, [[3, 2]] * 9, 2, (3, 2), {4: 2, 5: 3}),
        ("gone is no suspect too", 0, [[3]] * 9, 2, (3,), {4: 3, 5: 0}),
        ("a backup is gone", 7, [[1, 2]], 2, (4,), {5: 1, 4: 2}),
        ("it gets what is next", 6, [[1]], 2, (4,), {5: 1, 4: 0}),
        ("all backups are gone", 7, [[1, 2]], 2, (4, 5), {4: 1, 5: 2}),
        ("as many as primaries", 3, [[1]], 4, (), {4: 1, 5: 0, 6: 2, 7: 3}),
        ("none", 3, [[1]], 0, (), {}),
    ],
)
def test_backups_cover_lost_ranks_then_late_ranks_then_each_in_turn(
    what, step, late, backups, gone, chosen
):
    found = choose(step, late, num_primaries=4, num_backups=backups, out=gone)
    assert found == chosen, what


def test_old_lateness_does_not_count():
    late = [[3]] + [[]] * (WINDOW - 1)
    assert choose(1, late, num_primaries=4, num_backups=1) == {4: 3}
    assert choose(1, [*late, []], num_primaries=4, num_backups=1) == {4: 1}


def test_replicas_keep_their_data_shards():
    late = [[1]] * 9
    found = {"num_primaries": 3, "num_backups": 3, "mode": "replicate"}
    assert choose(5, late, **found) == {3: 0, 4: 1, 5: 2}
    assert choose(5, late, out={0, 4}, **found) == {3: 0, 4: 1, 5: 2}


@st.composite
def _situations(draw):
    num_primaries = draw(st.integers(1, 8))
    num_backups = draw(st.integers(0, num_primaries))
    primaries = st.integers(0, num_primaries - 1)
    late = draw(st.lists(st.sets(primaries), max_size=WINDOW + 4))
    ranks = st.integers(0, num_primaries + num_backups - 1)
    gone = draw(st.sets(ranks))
    return num_primaries, num_backups, late, gone, draw(st.integers(0, 10_000))


@given(_situations())
def test_no_data_shard_has_two_backups_and_live_backups_come_first(situation):
    num_primaries, num_backups, late, gone, step = situation
    found = choose(
        step, late, num_primaries=num_primaries, num_backups=num_backups, out=gone
    )
    assert set(found) == set(range(num_primaries, num_primaries + num_backups))
    assert len(set(found.values())) == len(found)
    assert set(found.values()) <= set(range(num_primaries))
    # Lost primaries are covered before all others, and late primaries before primaries
    # that were in time.
    covered = {data_shard for backup, data_shard in found.items() if backup not in gone}
    lost = {r for r in gone if r < num_primaries}
    suspects = {r for ranks in late[-WINDOW:] for r in ranks} - lost
    assert lost <= covered or covered <= lost
    assert suspects <= covered or covered <= suspects | lost


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 50))
def test_without_late_ranks_all_are_covered_equally_often(
    num_primaries, num_backups, begin
):
    num_backups = min(num_backups, num_primaries)
    counts = dict.fromkeys(range(num_primaries), 0)
    for step in range(begin, begin + num_primaries):
        found = choose(step, [], num_primaries=num_primaries, num_backups=num_backups)
        for data_shard in found.values():
            counts[data_shard] += 1
    assert set(counts.values()) == {num_backups}


def test_lateness_is_stored_by_step_and_in_the_state():
    known = Lateness()
    known.add(0, [])
    known.add(1, [2])
    known.add(1, [0])
    known.add(3, [1], [1])
    known.add(3, [], [4])
    assert known.steps == 4
    assert [known.out_at(step) for step in (1, 2, 3, 4)] == [(), (), (1, 4), ()]
    assert known.before(4)[-4:] == [(), (0, 2), (), (1,)]
    assert known.before(3)[-2:] == [(0, 2), ()]
    assert len(known.before(2)) == WINDOW
    other = Lateness()
    other.add(0, [1])
    other.load_state_dict(known.state_dict())
    assert other.before(4) == known.before(4)
    assert other.out_at(3) == (1, 4)
    assert other.steps == 1


def test_lateness_of_very_old_steps_is_forgotten():
    known = Lateness()
    for step in range(10_050):
        known.add(step, [0], [1])
    assert {len(told) for told in known.state_dict().values()} == {10_000}
    assert known.before(10_050) == [(0,)] * WINDOW
