# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Evaluation of observed trainings by the cases; the trainings do not run here."""

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from benchmarks import backup
from benchmarks.backup_cases import accuracy, late, resources, runs
from benchmarks.backup_cases.plan import (
    WELL_STEPS,
    Training,
    estimate_s,
    from_json,
    to_json,
)
from benchmarks.backup_cases.runs import Record
from benchmarks.backup_cases.split import ByClass
from benchmarks.straggler_cases.case import CaseError, Context

APP = typer.Typer(add_completion=False)
APP.command()(backup.main)


def context():
    return Context(
        is_full=False,
        seed=0,
        on_progress=lambda share: None,
        on_record=lambda record: None,
    )


def record_of(training, *, skipped=(), stand_ins=(), **more):
    """A record of these steps, as rank 0 observed it for all ranks."""
    seen = {
        "ends": [0.1 * (step + 1) for step in range(training.steps)],
        "sent": [0, 100, 300],
        "own_steps": training.steps,
        "skipped": [list(dict(skipped).get(s, ())) for s in range(training.steps)],
        "stand_ins": [dict(stand_ins).get(s, {}) for s in range(training.steps)],
        "fingerprint": 7,
    } | more
    return Record(training, {rank: dict(seen) for rank in range(training.size)})


def test_a_training_travels_to_its_ranks():
    training = Training(name="a", steps=30, late=(2, 3), links={3: 20.0}, backups=1)
    assert from_json(to_json([training, training])) == [training] * 2
    assert training.size == 5
    assert estimate_s([training]) > 30


def test_a_fixed_share_of_the_steps_is_late_and_none_of_the_first():
    training = Training(name="a", steps=120, late=(3,), late_share=0.78)
    steps = training.late_steps(3)
    assert sum(steps) == 78
    assert not any(steps[:WELL_STEPS])
    assert steps == training.late_steps(3)
    assert not any(training.late_steps(2))


def test_data_shards_have_mostly_classes_of_their_own():
    labels = np.repeat(np.arange(8), 50)
    dataset = ByClass(labels, 4, own_share=0.9, seed=1)
    assert len(dataset) == 400
    for epoch in range(2):
        dataset.set_epoch(epoch)
        found = [[dataset[i] for i in range(d, 400, 4)] for d in range(4)]
        # Each sample once, in any data shard.
        assert sorted(i for shard in found for i in shard) == list(range(400))
        for d, shard in enumerate(found):
            own = np.isin(labels[shard], (2 * d, 2 * d + 1)).mean()
            assert 0.85 < own < 1
    first = ByClass(labels, 4, own_share=0.9, seed=1)
    assert [first[i] for i in range(40)] != [dataset[i] for i in range(40)]


def test_who_was_late_is_who_was_skipped_or_stood_in_for():
    training = Training(name="a", steps=WELL_STEPS + 10)
    step = WELL_STEPS
    record = record_of(
        training,
        skipped={step: [3], step + 1: [2, 3]},
        stand_ins={step + 1: {"1": [4]}, step + 4: {"3": [4]}},
    )
    assert record.late_in(step + 1) == {1, 2, 3}
    assert record.share_late(3) == pytest.approx(0.3)
    assert (record.count("skipped"), record.count("stand_ins")) == (3, 2)
    assert record.step_ms([0, 1]) == pytest.approx(100)
    assert record.sent_bytes(well=True) == 4 * 100 / WELL_STEPS
    assert record.sent_bytes(well=False) == 4 * 200 / 10


def test_ranks_that_differ_in_the_end_fail_the_case():
    record = record_of(Training(name="a", steps=30))
    record.check()
    record.by_rank[2]["fingerprint"] = 8
    with pytest.raises(CaseError, match="ranks of 'a' ended with other parameters"):
        record.check()
    del record.by_rank[2]
    with pytest.raises(CaseError, match="other parameters"):
        record.check()


def curve(final, reached_s):
    return [
        {"step": 1, "seconds": 1.0, "accuracy": 0.2},
        {"step": 2, "seconds": reached_s, "accuracy": 0.975},
        {"step": 3, "seconds": 9.0, "accuracy": final},
    ]


def with_records(monkeypatch, records_of):
    monkeypatch.setattr(
        runs, "run", lambda trainings, *_, **__: [records_of(t) for t in trainings]
    )


@pytest.mark.parametrize(
    ("finals", "seconds", "verdicts"),
    [
        ({"shadow": 0.986, "skip": 0.95}, 4.1, ["holds", "holds", "holds"]),
        ({"shadow": 0.984, "skip": 0.971}, 4.3, ["missed", "missed", "missed"]),
    ],
)
def test_accuracy_is_judged_in_points_and_time(monkeypatch, finals, seconds, verdicts):
    finals = {"clean": 0.99, "replicate": 0.985} | finals
    times = {"clean": 4.0, "shadow": seconds, "skip": 5.0, "replicate": 5.0}
    with_records(
        monkeypatch,
        lambda t: record_of(t, curve=curve(finals[t.name], times[t.name])),
    )
    (case,) = accuracy.CASES
    rows = case.measure(case, context())
    assert [row.verdict for row in rows] == [*verdicts, "-", "-"]
    assert rows[0].result.value == pytest.approx(99 - 100 * finals["shadow"])
    assert rows[3].result.value == pytest.approx(0.5)


def test_a_target_that_is_not_reached_is_told(monkeypatch):
    low = [{"step": 1, "seconds": 1.0, "accuracy": 0.9}]
    with_records(monkeypatch, lambda t: record_of(t, curve=low))
    (case,) = accuracy.CASES
    rows = case.measure(case, context())
    assert rows[2].verdict == "failed: 'clean' has not reached 97% but 90.0%"


def test_two_late_primaries_are_covered_and_named_or_the_case_says_when_not(
    monkeypatch,
):
    def seen(**odd):
        def records_of(training):
            steps = range(WELL_STEPS, training.steps)
            stand_ins = {s: {"3": [5]} for s in steps} | odd.get("stand_ins", {})
            skipped = {s: [4] for s in steps} | odd.get("skipped", {})
            return record_of(training, skipped=skipped, stand_ins=stand_ins)

        with_records(monkeypatch, records_of)
        (case,) = late.CASES
        return case.measure(case, context())[0]

    assert seen().verdict == "holds"
    first = WELL_STEPS  # no lateness is known yet in this step
    assert seen(stand_ins={first: {}}, skipped={first: [3, 4]}).verdict == "holds"
    row = seen(stand_ins={40: {}}, skipped={40: [3, 4]})
    assert row.verdict == "missed"
    assert "other steps: [40]" in row.note
    with_records(monkeypatch, record_of)
    (case,) = late.CASES
    with pytest.raises(CaseError, match="both were late in 0 steps only"):
        case.measure(case, context())


def test_resources_are_compared_with_what_they_mean(monkeypatch):
    # 100 bytes for each of 9 contributions and 9 results, of which 8 count.
    per_step = {"strict": 1800, "without": 1600, "clean": 1700, "shadow": 1799}

    class _Lab:
        def __enter__(self):
            return None

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(runs, "lab_of", lambda *_, **__: _Lab())

    def judged(**changed):
        def records_of(training):
            steps = training.steps - WELL_STEPS
            total = (per_step | {"replicate": 3000} | changed)[training.name] * steps
            stand_ins = {s: {"7": [8]} for s in range(WELL_STEPS, training.steps)}
            return record_of(
                training,
                sent=[0, 0, total / training.size],
                stand_ins=stand_ins if training.name == "shadow" else {},
            )

        with_records(monkeypatch, records_of)
        (case,) = resources.CASES
        return [row.verdict for row in case.measure(case, context())]

    assert judged() == ["holds"] * 3
    assert judged(clean=1720, shadow=1799) == ["holds", "missed", "holds"]
    assert judged(shadow=1805) == ["holds", "holds", "missed"]


def test_the_list_shows_all_cases_and_measures_nothing():
    ended = CliRunner().invoke(APP, ["--list"])
    assert ended.exit_code == 0
    for case in backup.CASES:
        assert case.name in ended.output
