# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io

from rich.console import Console

from aikido_torch.trace.export._text import report
from aikido_torch.trace.record._spans import Kind, SpanOutcome
from benchmarks.tracing_cases.simulate import Injected, Model
from harness.traces import backed_up_call, dump, paused_message, span, staged_rank


def printed(dumps, width=200):
    out = io.StringIO()
    report(dumps, console=Console(file=out, width=width))
    return out.getvalue()


def test_the_culprit_is_named_with_its_evidence():
    dumps = Model().run([None] + [Injected("input", 2, seconds=0.2)] * 5, seed=3)
    text = printed(dumps)
    assert "Who made the others wait" in text
    assert "Rank 2 waited 20" in text
    assert "for its data in 5 of 5 steps" in text
    assert "input" in text
    for title in ("Ranks, medians", "Links in MB/s", "Last calls, ms late"):
        assert title in text
    assert "from 3" in text
    assert "to 1" in text


def test_missing_ranks_are_named_first():
    text = printed(Model().run([None] * 3, seed=3)[:2])
    assert text.startswith("note: ranks 2, 3 of 4 are missing")


def test_a_trace_without_steps_is_printed_too():
    text = printed([dump(0, [span(Kind.SECTION, 1, 2)])])
    assert "Ranks, medians" in text
    assert "Last calls" not in text


def test_overtaken_messages_are_counted_by_reason():
    text = printed([dump(0, paused_message())])
    (row,) = [line for line in text.splitlines() if "paused for priority 5" in line]
    assert row.split("│")[1:-1] == [
        "    0 ", " paused for priority 5 ", "         1 ", "       11.0 ",
        "        11.0 ",
    ]  # fmt: skip
    assert "stood still" not in printed([dump(0, [span(Kind.SECTION, 1, 2)])])


def test_backups_are_named_with_their_primaries():
    calls = backed_up_call(1) + backed_up_call(2, (2, 3)) + backed_up_call(3, (2, 3))
    lines = printed([dump(0, calls)]).splitlines()
    (title,) = [i for i, line in enumerate(lines) if "Primaries and who stood" in line]
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in lines[title + 4 : title + 7]
    ]
    assert rows == [
        ["0", "none", "0", "0", "0.00", "3", "0", "3"],
        ["1", "none", "0", "0", "0.00", "3", "0", "3"],
        ["2", "3", "2", "1", "4.00", "1", "0", "3"],
    ]
    assert "stood in" not in printed([dump(0, [span(Kind.OPERATION, 1, 2)])])


def skipped(rank, outcome):
    return [
        span(
            Kind.OPERATION, 10 * i, 10 * i + 1205, number=i, step=i, detail=1,
            outcome=outcome if i > 0 else SpanOutcome.COMPLETE,
        )
        for i in range(7)
    ]  # fmt: skip


def test_a_skipped_rank_is_marked_before_its_times():
    ranks = [
        dump(0, skipped(0, SpanOutcome.COMPLETE)),
        dump(1, skipped(1, SpanOutcome.SKIPPED)),
    ]
    lines = printed(ranks, width=80).splitlines()
    (row,) = [line for line in lines if "skipped in 6 of 7" in " ".join(line.split())]
    cells = [cell.strip() for cell in row.split("│")]
    assert cells[1] == "1"
    assert cells[2].startswith("skipped in 6 of 7")


def test_no_table_is_wider_than_the_output_and_no_cell_is_cut():
    dumps = Model(size=16).run([None] + [Injected("compute", 2)] * 5, seed=3)
    text = printed(dumps, width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "more columns in a wider terminal" in " ".join(text.split())


def test_a_pipeline_has_a_table_of_its_stages():
    ranks = [staged_rank(0, stage=0, forward=3, backward=6)]
    ranks.append(staged_rank(1, stage=1, forward=5, backward=10))
    text = printed(ranks)
    assert (
        "Stages, ms for a micro-batch: 50% of the ranks' time is bubbles; stage 1 is "
        "the slowest, 25% above the mean of the stages"
    ) in " ".join(text.split())
    assert "Stages" not in printed([dump(0, [span(Kind.SECTION, 1, 2)])])


def test_long_times_have_no_exponent():
    dumps = Model().run([None] + [Injected("compute", 2, seconds=1.2)] * 5, seed=3)
    text = printed(dumps)
    assert "e+03" not in text
    assert "Rank 2 worked 1,2" in text
