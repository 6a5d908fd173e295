# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from aikido_torch.trace.analyze._backups import BackupSummary
from aikido_torch.trace.analyze._summary import summarize
from aikido_torch.trace.record._spans import Kind, SpanOutcome
from harness.traces import backed_up_call, dump, span


def rows(dumps):
    fields = (
        "primary", "backup", "num_calls", "num_steps", "num_bytes", "num_own",
        "num_without", "num_all",
    )  # fmt: skip
    assert fields == tuple(BackupSummary.__dataclass_fields__)
    return [
        tuple(getattr(each, name) for name in fields)
        for each in summarize(dumps).backups
    ]


def example():
    return [
        *backed_up_call(1, step=0),
        *backed_up_call(2, (2, 3), step=1),
        *backed_up_call(3, (2, 3), step=1),
        # One half of the result is filled by the backup, the other half by no rank.
        *backed_up_call(4, (2, 3), skipped=(1, 2), step=2),
    ]


EXPECTED = [
    (0, None, 0, 0, 0, 4, 0, 4),
    (1, None, 0, 0, 0, 3, 1, 4),
    (2, 3, 3, 2, 6_000_000, 1, 1, 4),
]


def test_each_primary_has_its_backups_and_the_number_of_calls_without_one():
    assert rows([dump(0, example())]) == EXPECTED


def test_a_call_in_the_traces_of_several_ranks_is_counted_once():
    assert rows([dump(rank, example()) for rank in range(4)]) == EXPECTED
    # A rank with an incomplete or missing trace removes no call.
    assert rows([dump(0, example()), dump(3, example()[:1])]) == EXPECTED


def test_a_primary_has_a_row_for_each_of_its_backups():
    calls = [span for n in (1, 2) for span in backed_up_call(n, (1, 2 + n))]
    found = rows([dump(0, calls, size=5)])
    assert [row[:3] for row in found] == [
        (0, None, 0),
        (1, 3, 1),
        (1, 4, 1),
        (2, None, 0),
    ]
    assert [row[5:] for row in found] == [(2, 0, 2), (0, 0, 2), (0, 0, 2), (2, 0, 2)]


def test_ranks_are_ranks_of_the_job():
    # Peers in memory are ranks of the job: rank 3 of the group is rank 7 of the job.
    members = {"default": (1, 3, 5, 7)}
    found = rows([dump(1, backed_up_call(1, (2, 7)), size=8, members=members)])
    assert [row[:3] for row in found] == [(1, None, 0), (3, None, 0), (5, 7, 1)]
    # The members of the group are not known.
    assert rows([dump(1, backed_up_call(1, (2, 3)), members={"default": ()})]) == []


def test_calls_without_a_result_or_without_backups_do_not_count():
    plain = span(Kind.OPERATION, 10, 20, number=1, step=0)
    assert rows([dump(0, [plain])]) == []
    for outcome in (SpanOutcome.FAILED, SpanOutcome.OPEN):
        (call,) = backed_up_call(1)
        assert rows([dump(0, [call._replace(outcome=outcome)])]) == []
    # The tracing rank was skipped itself, but the call has a result.
    (*hole, call) = backed_up_call(1, skipped=(2,))
    skipped = [*hole, call._replace(outcome=SpanOutcome.SKIPPED)]
    assert rows([dump(2, skipped)])[2] == (2, None, 0, 0, 0, 0, 1, 1)
