# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from types import SimpleNamespace

from aikido_torch.straggler._steps import StepCounters


def outcome(
    skipped=(), reason="deadline", deadline_ms=0.0, cancelled_bytes=0, stand_ins=()
):
    return SimpleNamespace(
        skipped=list(skipped),
        stand_ins=list(stand_ins),
        reason=reason,
        deadline_ms=deadline_ms,
        cancelled_bytes=cancelled_bytes,
        contributors=[r for r in range(4) if r not in skipped],
        shards=[],
    )


def test_the_calls_of_a_step_add_up():
    step = StepCounters(7)
    step.add(outcome())
    assert step.is_plain()
    step.add(outcome([2], deadline_ms=20.0, cancelled_bytes=5))
    step.add(outcome([1, 2], "known_behind", 10.0, 6))
    step.add(outcome([2], deadline_ms=30.0))
    assert step.num_calls == 4
    assert step.skipped == {
        1: {"known_behind": 1},
        2: {"deadline": 2, "known_behind": 1},
    }
    assert (step.deadline_ms, step.cancelled_bytes) == (30.0, 11)
    assert step.contributions.num_ranks == 4
    assert step.contributions.missing == {1: 1, 2: 3}
    assert not step.is_plain()


def test_a_caught_up_step_is_shown_in_reports():
    assert not StepCounters(0, way="replayed").is_plain()
    assert not StepCounters(0, way="copied", copied_from=1).is_plain()


def test_stand_ins_are_counted_by_data_shard_and_backup():
    step = StepCounters(0)
    step.add(outcome(stand_ins=[(2, 4)]))
    step.add(outcome(stand_ins=[(2, 5), (0, 4)]))
    step.add(outcome(stand_ins=[(2, 4)]))
    assert step.stand_ins == {2: {4: 2, 5: 1}, 0: {4: 1}}
    assert step.skipped == {}
    assert not step.is_plain()
