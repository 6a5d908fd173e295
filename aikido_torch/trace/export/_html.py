# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Report of traces as one self-contained HTML file that needs no network."""

import base64
import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from aikido_torch._colors import COLORS, PARTS, part_of
from aikido_torch.trace.analyze._fitting import spans_of
from aikido_torch.trace.analyze._pauses import pauses_of
from aikido_torch.trace.analyze._summary import (
    Summary,
    note_of,
    part_of_verdict,
    ranks_of,
    sentence_on,
    summarize,
)
from aikido_torch.trace.analyze._units import ms, percent
from aikido_torch.trace.export._chrome import FRAMES, lanes
from aikido_torch.trace.record._dump import Dump, write_file
from aikido_torch.trace.record._spans import Kind, Span

__all__ = ["write_html"]

_TEMPLATE = Path(__file__).with_name("report.html")
_CALLS = "calls"
# Lanes of each rank from the top. Sent chunks are not shown, because the receiver shows
# them.
_LANES = (
    ((Kind.SECTION, Kind.STOP), "step"),
    ((Kind.OPERATION,), _CALLS),
    ((Kind.RECEIVE_CHUNK,), "received"),
)
_PAUSES = "messages that stand still"
# Overlapping calls get lanes of their own, up to a limit. All lanes together must not
# exceed the size that browsers can paint.
_MOST_LANES, _MOST_IN_ALL = 8, 256
_MOST_STEPS = 200


def write_html(path: str | Path, dumps: Iterable[Dump]) -> Summary:
    """Writes timeline, culprits, arrivals, ranks and links into one page.

    Args:
        path: file to write.
        dumps: traces of ranks of one job.

    Returns:
        The content of the page except the timeline.

    Raises:
        ConfigError: the dumps belong to different jobs, or `path` cannot be written.
    """
    dumps = sorted(dumps, key=lambda dump: dump.rank)
    summary = summarize(dumps)
    head, spans = _timeline(dumps)
    first, last = (summary.steps[0], summary.steps[-1]) if summary.steps else (0, 0)
    notes = "".join(f"<p>Note: {escape(note)}</p>" for note in summary.notes)
    options = "".join(f"<option>{place[0]}</option>" for place in head["steps"])
    page = Template(_TEMPLATE.read_text()).substitute(
        title="What ranks did",
        subtitle=escape(
            f"{len(dumps)} ranks, steps {first} to {last}, job {summary.job}"
        ),
        notes=notes,
        culprits=_section("culprits", "Who made the others wait", _culprits(summary)),
        tables="".join(
            _section(name, title, table) for name, title, table in _tables(summary)
        ),
        light=_colors(0),
        dark=_colors(1),
        step_options=options,
        # Escaped, so that no text can close the script element.
        head=json.dumps(head, separators=(",", ":")).replace("<", "\\u003c"),
        spans=base64.b64encode(spans).decode(),
    )
    write_file(path, page.encode())
    return summary


def _timeline(dumps: list[Dump]) -> tuple[dict[str, Any], bytes]:
    """Data of the spans for the page: a head, and columns of 32-bit numbers."""
    aligned = [(dump, dump.aligned()) for dump in dumps]
    zero = min((s.begin_ns for _, spans in aligned for s in spans), default=0)
    names: dict[str, int] = {}
    heads = []
    most = max(1, min(_MOST_LANES, _MOST_IN_ALL // max(1, len(dumps))))
    begins, lengths = array("I"), array("I")
    numbers, titles = array("I"), array("I")
    steps: dict[int, list[int]] = {}
    for dump, spans in aligned:
        for title, lane in _lanes(dump, spans, most):
            before = len(begins)
            for name, span in lane:
                begins.append(_us(span.begin_ns - zero))
                lengths.append(_us(span.end_ns - span.begin_ns))
                numbers.append(span.number & 0xFFFFFFFF)
                titles.append(names.setdefault(name, len(names)))
                if span.step >= 0:
                    end = begins[-1] + lengths[-1]
                    place = steps.setdefault(span.step, [begins[-1], end])
                    place[:] = min(place[0], begins[-1]), max(place[1], end)
            if lane:
                longest = max(lengths[before:])
                heads.append(
                    {"rank": dump.rank, "title": title, "longest": longest}
                    | {"first": before, "last": len(begins)}
                )
    head = {
        "count": len(begins),
        "end": max((b + n for b, n in zip(begins, lengths, strict=True)), default=1),
        "names": list(names),
        "colors": [PARTS.index(part_of(name)) for name in names],
        "lanes": heads,
        "steps": [[step, *place] for step, place in sorted(steps.items())],
    }
    columns = (begins, lengths, numbers, titles)
    if sys.byteorder == "big":
        for column in columns:
            column.byteswap()
    return head, b"".join(column.tobytes() for column in columns)


def _lanes(
    dump: Dump, spans: list[Span], most: int
) -> Iterator[tuple[str, list[tuple[str, Span]]]]:
    """Title of each lane of a rank, with its spans and their names in order.

    Calls have up to `most` lanes; only the last one may have overlapping spans.
    """
    for kinds, title in _LANES:
        lane = sorted(s for s in spans if s.kind in kinds)
        packed = lanes(lane) if title == _CALLS else [lane]
        last = sorted(span for each in packed[most - 1 :] for span in each)
        for i, members in enumerate([*packed[: most - 1], last]):
            name = title if i == 0 else f"{title} ({i + 1})"
            yield name, [(_name(dump, span), span) for span in members]
    yield (
        _PAUSES,
        [
            (p.reason, p.message._replace(begin_ns=p.begin_ns, end_ns=p.end_ns))
            for p in pauses_of(spans)
        ],
    )


def _us(ns: int) -> int:
    """Microseconds, limited to 32 bits (more than an hour)."""
    return min(max(0, ns // 1000), 0xFFFFFFFF)


def _name(dump: Dump, span: Span) -> str:
    match span.kind:
        case Kind.STOP:
            return "stopped"
        case Kind.SECTION:
            return dump.names[span.name]
        case Kind.OPERATION:
            return dump.operations.get(span.detail, "call")
    return FRAMES.get(span.detail, "frame")


# ---- tables ----


def _colors(background: int) -> str:
    pairs = enumerate(both[background] for both in COLORS.values())
    return "  " + " ".join(f"--c{i}: {color};" for i, color in pairs)


def _tables(summary: Summary) -> list[tuple[str, str, str]]:
    """For each table: id, heading and HTML, which is empty if it has no rows."""
    return [
        (
            "heat",
            "How much later than the first each rank made its last call of a step, ms",
            _arrivals(summary) if summary.steps else "",
        ),
        ("ranks", "Ranks, medians in ms", _ranks(summary)),
        ("stages", _title_of_stages(summary), _stages(summary)),
        ("backups", "Primaries and who stood in for them, in calls", _backups(summary)),
        ("links", "Links in MB/s, senders in rows", _links(summary)),
        ("pauses", "Messages that stood still on their way, ms", _pauses(summary)),
    ]


def _section(name: str, title: str, table: str) -> str:
    """A table below its heading, reachable by keyboard; empty if there is no table."""
    if not table:
        return ""
    return (
        f'<h2 id="{name}">{escape(title)}</h2>\n<div class="scroll" tabindex="0" '
        f'role="region" aria-labelledby="{name}">{table}</div>\n'
    )


def _table(head: Sequence[str], rows: Iterable[str], *, kind: str = "") -> str:
    rows = list(rows)
    if not rows:
        return ""
    cells = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    return (
        f'<table class="{kind}"><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"
    )


def _cells(*values: object) -> str:
    return "".join(f"<td>{escape(str(value))}</td>" for value in values)


def _culprits(summary: Summary) -> str:
    rows = []
    for v in summary.verdicts:
        rows.append(
            _cells(
                f"{v.first_step} to {v.last_step}", ranks_of(v), v.cause,
                part_of_verdict(v), v.pattern, ms(v.lost_s * 1e3),
            )
            + f'<td class="text">{escape(v.evidence)}</td>'
        )  # fmt: skip
    head = (
        "steps", "rank", "cause", "part", "pattern", "lost a step, ms", "evidence",
    )  # fmt: skip
    return _table(head, rows, kind="culprits")


def _arrivals(summary: Summary) -> str:
    steps = summary.steps[-_MOST_STEPS:]
    ranks = sorted(summary.ranks)
    late = [each for step in steps for each in summary.arrivals[step].values()]
    most = max([1.0, *late])
    rows = []
    for rank in ranks:
        cells = [f'<th scope="row">rank {rank}</th>']
        for step in steps:
            late_ms = summary.arrivals[step].get(rank)
            if late_ms is None:
                cells.append("<td></td>")
                continue
            share = 0.85 * (late_ms / most) ** 0.5
            color = f"background:rgba(var(--late),{share:.2f})"
            cells.append(f'<td style="{color}">{ms(late_ms)}</td>')
        rows.append("".join(cells))
    return _table(("", *(f"{step}" for step in steps)), rows, kind="heat")


def _ranks(summary: Summary) -> str:
    rows = [
        _cells(rank)
        + f'<td class="text">{escape(note_of(r))}</td>'
        + _cells(*map(ms, (r.step_ms, r.work_ms, r.input_ms, r.waited_ms, r.wire_ms)))
        + _cells(f"{r.last:.0%}")
        for rank, r in summary.ranks.items()
    ]
    head = (
        "rank", "note", "step", "own work", "of it data", "waited in a call", "wire",
        "last to call",
    )  # fmt: skip
    return _table(head, rows)


def _title_of_stages(summary: Summary) -> str:
    if summary.pipeline is None:
        return ""
    return f"Stages, ms for a micro-batch: {sentence_on(summary.pipeline)}"


def _stages(summary: Summary) -> str:
    stages = summary.pipeline.stages if summary.pipeline else ()
    rows = [
        _cells(
            each.stage, spans_of(each.ranks), ms(each.forward_ms), ms(each.backward_ms),
            ms(each.optimizer_ms), percent(each.bubble),
        )
        for each in stages
    ]  # fmt: skip
    head = ("stage", "ranks", "forward", "backward", "optimizer of a step", "bubble")
    return _table(head, rows)


def _backups(summary: Summary) -> str:
    rows = [
        _cells(
            each.primary, "none" if each.backup is None else each.backup,
            each.num_calls, each.num_steps, f"{each.num_bytes / 1e6:.2f}",
            each.num_own, each.num_without, each.num_all,
        )
        for each in summary.backups
    ]  # fmt: skip
    head = (
        "primary", "backup", "stood in", "in steps", "MB", "primary itself", "nobody",
        "of calls",
    )  # fmt: skip
    return _table(head, rows)


def _links(summary: Summary) -> str:
    receivers = sorted({target for _, target in summary.rates})
    rows = []
    for sender in sorted({source for source, _ in summary.rates}):
        rates = [summary.rates.get((sender, rank)) for rank in receivers]
        cells = ("" if rate is None else f"{rate / 1e6:,.1f}" for rate in rates)
        rows.append(f'<th scope="row">from {sender}</th>' + _cells(*cells))
    return _table(("", *(f"to {rank}" for rank in receivers)), rows)


def _pauses(summary: Summary) -> str:
    rows = [
        _cells(each.rank)
        + f'<td class="text">{escape(each.reason)}</td>'
        + _cells(each.num_pauses, ms(each.total_ms), ms(each.longest_ms))
        for each in summary.pauses
    ]
    return _table(("rank", "reason", "how often", "in all", "longest"), rows)
