# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from types import SimpleNamespace

import pytest

from aikido_torch.straggler._share_watch import ShareWatch


def outcome(*skipped, reason="deadline", num_ranks=4):
    """A call of ten elements without the contributions of `skipped`."""
    present = [r for r in range(num_ranks) if r not in skipped]
    return SimpleNamespace(
        contributors=present,
        skipped=list(skipped),
        reason=reason if skipped else "complete",
        shards=[SimpleNamespace(num_elements=10, contributors=present)],
    )


class Loop:
    """Steps of half a second, from second 1000 on; each step has one call."""

    STEP_S = 0.5

    def __init__(self, rank):
        self.watch = ShareWatch(rank, 4, 1000.0)
        self.now, self.step = 1000.0, 0

    def run(self, seconds, *outcomes):
        """Runs steps with the outcomes in turn; returns the messages of the watch."""
        said = []
        for i in range(round(seconds / self.STEP_S)):
            self.watch.on_call(self.step, outcomes[i % len(outcomes)], 10)
            self.step += 1
            self.now += self.STEP_S
            said += self.watch.look(self.now)
        return said


@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_below_one_half_for_a_minute_is_named_once(rank):
    loop = Loop(rank)
    mostly_without = [outcome(3), outcome(3), outcome()]
    assert loop.run(59.5, *mostly_without) == []
    (text,) = loop.run(600, *mostly_without)
    who = "Rank 3 (this rank)" if rank == 3 else "Rank 3"
    assert text.startswith(f"{who} has had less than half of its contributions in ")
    assert "for 60 s, lately 3" in text
    for remedy in ("floor_ms", "WaitAll(rebalance=True)", "ActiveBackup("):
        assert remedy in text
    loop.run(100, outcome())
    assert loop.run(200, outcome(3)) == []


def test_other_ranks_do_not_repeat_it():
    assert Loop(1).run(200, outcome(3)) == []


def test_two_ranks_give_two_messages():
    said = Loop(0).run(200, outcome(2, 3), outcome(3))  # rank 2: exactly half
    assert len(said) == 1
    said = Loop(0).run(200, outcome(2, 3))
    assert [text.split()[1] for text in said] == ["2", "3"]


def test_a_share_of_half_or_a_good_part_of_the_minute_is_enough():
    assert Loop(0).run(300, outcome(3), outcome()) == []
    loop = Loop(0)
    for _ in range(5):
        assert loop.run(50, outcome(3)) == []
        assert loop.run(10, outcome()) == []


def test_one_long_pause_names_nobody():
    loop = Loop(0)
    assert loop.run(20, outcome()) + loop.run(45, outcome(3)) == []
    assert loop.run(120, outcome()) == []


def test_shards_and_stand_ins_count_partly():
    partly = outcome()
    partly.skipped, partly.reason = [3], "deadline"
    partly.shards = [
        SimpleNamespace(num_elements=6, contributors=[0, 1, 2, 3]),
        SimpleNamespace(num_elements=4, contributors=[0, 1, 2]),
    ]
    assert Loop(0).run(200, partly) == []


def test_a_rank_outside_the_group_is_not_named():
    assert Loop(0).run(200, outcome(3, reason="complete")) == []
    assert Loop(0).run(200, outcome(3), outcome(3, reason="complete")) == []


def test_copied_steps_lack_the_contribution_of_this_rank():
    loop = Loop(3)
    said = []
    for _ in range(80):
        for _ in range(2):
            loop.watch.on_copied(loop.step)
            loop.step += 1
        said += loop.run(0.5, outcome())
        loop.now += 1.0
    (text,) = said
    assert "Rank 3 (this rank)" in text
    assert "lately 33%" in text
    assert loop.watch.last.shares == pytest.approx((1, 1, 1, 1 / 3), abs=0.02)


def test_a_jump_of_the_clock_ends_only_one_part():
    loop = Loop(0)
    loop.run(5, outcome(3))
    loop.now += 100  # all ranks were stopped
    (text,) = loop.run(200, outcome(3))
    assert "Rank 3" in text


def test_the_shares_of_the_last_minute_are_known():
    loop = Loop(2)
    assert loop.watch.last is None
    loop.run(9.5, outcome())
    assert loop.watch.last is None
    loop.run(50.5, outcome(), outcome(1))
    last = loop.watch.last
    assert last.steps_per_second == pytest.approx(2)
    assert last.shares == pytest.approx((1, 0.58, 1, 1), abs=0.02)
    loop.run(60, outcome())
    assert loop.watch.last.shares == (1, 1, 1, 1)


def test_the_gain_comes_from_the_counters():
    counters = {
        "replayed_operations": 100, "replayed_bytes": 10, "replayed_bytes_in": 9,
        "replayed_us": 50, "replayed_wait_all_us": 100,
    }  # fmt: skip
    assert ShareWatch.gain_of(counters) == pytest.approx(0.8)


def test_strict_calls_have_all_contributions():
    loop = Loop(0)
    strict = SimpleNamespace(contributors=[], skipped=[], shards=[], reason="complete")
    loop.run(10, strict)
    assert loop.watch.last.shares == (1, 1, 1, 1)
    loop.run(10, outcome(num_ranks=3))  # the fourth rank is a backup
    assert loop.watch.last.shares == (1, 1, 1)
