# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import base64
import io
import json
import re
from array import array
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib import pyplot

from aikido_torch._colors import COLORS
from aikido_torch.errors import ConfigError
from aikido_torch.trace.export._html import write_html
from aikido_torch.trace.record._spans import Kind
from benchmarks.tracing_cases.simulate import Injected, Model
from harness.browser import PROGRAM, Browser
from harness.traces import backed_up_call, dump, paused_message, span, staged_rank


class Page(HTMLParser):
    """Elements by id, texts, and the elements that would load something."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.loads, self.texts, self._inside = {}, [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self._inside = attributes.get("id") if tag == "script" else None
        if "id" in attributes:
            self.ids[attributes["id"]] = attributes
        if "src" in attributes or "href" in attributes or tag in ("link", "iframe"):
            self.loads.append(tag)

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.texts[self._inside] = self.texts.get(self._inside, "") + data


def written(tmp_path, dumps):
    path = tmp_path / "report.html"
    write_html(path, dumps)
    text = path.read_text()
    return text, Page(text)


def columns(page):
    head = json.loads(page.texts["head"])
    numbers = array("I", base64.b64decode(page.texts.get("spans", "")))
    count = head["count"]
    return head, [numbers[i * count : (i + 1) * count] for i in range(4)]


def test_the_page_loads_nothing_and_names_the_culprit(tmp_path):
    dumps = Model().run([None] + [Injected("compute", 2, seconds=0.2)] * 5, seed=3)
    text, page = written(tmp_path, dumps)
    assert page.loads == []
    assert not re.search(r"https?://|@import|url\(", text)
    assert "Rank 2 worked 2" in text
    assert {"culprits", "timeline", "heat", "ranks", "links", "lanes"} <= set(page.ids)


def test_the_timeline_has_the_spans_of_each_rank_in_order(tmp_path):
    spans = [
        span(Kind.OPERATION, 30, 40, number=7, detail=1, step=3),
        span(Kind.OPERATION, 12, 20, number=6, detail=1, step=2),
        span(Kind.SECTION, 10, 12, name=2, step=2),
        span(Kind.SEND, 10, 12, number=6),
    ]
    _, page = written(tmp_path, [dump(1, spans), dump(0, spans[:1])])
    head, (begins, lengths, numbers, names) = columns(page)
    titles = [(lane["rank"], lane["title"]) for lane in head["lanes"]]
    assert titles == [(0, "calls"), (1, "step"), (1, "calls")]
    assert list(begins) == [20_000, 0, 2_000, 20_000]
    assert list(lengths) == [10_000, 2_000, 8_000, 10_000]
    assert list(numbers) == [7, 0, 6, 7]
    assert [head["names"][i] for i in names] == [
        "all_reduce", "forward", "all_reduce", "all_reduce",
    ]  # fmt: skip
    assert head["steps"] == [[2, 0, 10_000], [3, 20_000, 30_000]]
    assert head["lanes"][2]["longest"] == 10_000
    assert head["end"] == 30_000


def test_messages_that_stand_still_have_a_lane_and_a_table(tmp_path):
    text, page = written(tmp_path, [dump(0, paused_message())])
    head, (begins, lengths, numbers, names) = columns(page)
    (lane,) = head["lanes"]
    assert lane["title"] == "messages that stand still"
    assert (list(begins), list(lengths), list(numbers)) == ([9_000], [11_000], [1])
    assert head["names"][names[0]] == "paused for priority 5"
    row = '<td>0</td><td class="text">paused for priority 5</td><td>1</td><td>11.0</td>'
    assert row in text


def test_backups_have_a_table_that_the_keyboard_reaches(tmp_path):
    calls = backed_up_call(1) + backed_up_call(2, (2, 3), skipped=(1,))
    text, page = written(tmp_path, [dump(0, calls)])
    cells = [2, 3, 1, 1, "2.00", 1, 0, 2]
    assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" in text
    cells = [1, "none", 0, 0, "0.00", 1, 1, 2]
    assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" in text
    assert "backups" in page.ids
    (region,) = re.findall('<div [^>]*aria-labelledby="backups">', text)
    assert 'class="scroll" tabindex="0" role="region"' in region
    text, page = written(tmp_path, [dump(0, [span(Kind.OPERATION, 1, 2)])])
    assert "backups" not in text


def test_a_table_without_rows_has_no_heading(tmp_path):
    text, page = written(tmp_path, [dump(0, [span(Kind.SECTION, 1, 2)])])
    assert re.findall('<h2 id="(\\w+)"', text) == ["timeline", "ranks"]
    assert {"culprits", "heat", "links", "pauses"}.isdisjoint(page.ids)


def test_a_part_of_the_step_has_the_same_colour_in_all_reports(tmp_path):
    spans = [span(Kind.SECTION, 1, 2, name=n, step=0) for n in (2, 3)]
    text, page = written(tmp_path, [dump(0, spans)])
    head = json.loads(page.texts["head"])
    colors = dict(zip(head["names"], head["colors"], strict=True))
    for name, index in colors.items():
        light, dark = COLORS[name]
        assert f"--c{index}: {light};" in text
        assert f"--c{index}: {dark};" in text


def test_a_pipeline_has_a_table_of_its_stages(tmp_path):
    ranks = [staged_rank(r, stage=r, forward=3, backward=6) for r in range(2)]
    text, page = written(tmp_path, ranks)
    assert "stages" in page.ids
    cells = ["0", "0", "3.00", "6.00", "1.00", "62%"]
    assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" in text


def test_names_cannot_break_out_of_the_page(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    made = dump(0, [span(Kind.SECTION, 1, 2, name=0)], names=[evil], job=evil)
    text, page = written(tmp_path, [made])
    assert "<img" not in text
    assert page.loads == []
    assert json.loads(page.texts["head"])["names"] == [evil]


def test_all_controls_have_a_name_and_a_key(tmp_path):
    text, page = written(tmp_path, Model().run([None] * 3, seed=1))
    assert page.ids["lanes"]["tabindex"] == "0"
    assert page.ids["said"]["aria-live"] == "polite"
    for key in ("ArrowLeft", "ArrowRight", "Home", "PageUp", "PageDown", "Enter"):
        assert key in text
    for theme in ("prefers-color-scheme", 'data-theme="dark"'):
        assert theme in text
    for step in (0, 1, 2):
        assert f"<option>{step}</option>" in text


def test_an_empty_trace_gives_a_page_too(tmp_path):
    _, page = written(tmp_path, [dump(0, [])])
    assert columns(page)[0]["count"] == 0


def test_overlapping_calls_have_their_own_lanes(tmp_path):
    spans = [
        span(Kind.OPERATION, begin, begin + 30, number=begin, detail=1, step=0)
        for begin in (0, 10, 20, 40, 41)
    ]
    _, page = written(tmp_path, [dump(0, spans)])
    head, (_, _, numbers, _) = columns(page)
    shown = [
        (lane["title"], list(numbers[lane["first"] : lane["last"]]))
        for lane in head["lanes"]
    ]
    assert shown == [("calls", [0, 40]), ("calls (2)", [10, 41]), ("calls (3)", [20])]


def test_calls_without_end_share_the_last_lane(tmp_path):
    spans = [span(Kind.OPERATION, k, 100, number=k, detail=1) for k in range(20)]
    _, page = written(tmp_path, [dump(0, spans)])
    head, (begins, *_) = columns(page)
    assert [lane["last"] - lane["first"] for lane in head["lanes"]] == [1] * 7 + [13]
    assert list(begins[7:]) == sorted(begins[7:])


in_a_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")
ARTEFACTS = Path(__file__).parents[4] / "build" / "artefacts"


def bands(picture):
    """Number of separate horizontal bands of marks in a picture."""
    pixels = pyplot.imread(io.BytesIO(picture))[:, :, :3]
    is_marked = (pixels != pixels[-1, -1]).any(axis=(1, 2)).tolist()
    return sum(now and not was for was, now in pairwise([False, *is_marked]))


@in_a_browser
def test_each_lane_is_painted(tmp_path):
    kinds = [Kind.OPERATION, Kind.RECEIVE_CHUNK, Kind.SECTION]
    spans = [span(kind, 10, 60, name=2, detail=1, step=0) for kind in kinds]
    spans += [span(Kind.OPERATION, 30, 90, detail=1, step=0), *paused_message()]
    path = tmp_path / "report.html"
    write_html(path, [dump(rank, spans) for rank in range(3)])
    with Browser(path.as_uri()) as browser:
        assert browser.value("painted") > 0
        assert browser.value("head.lanes.length") == 3 * 5
        x, y, width, height = browser.value(
            "(() => { const at = canvas.getBoundingClientRect(); return ["
            "at.x + LEFT + 2, at.y + 1, width - LEFT - 4, height]; })()"
        )
        assert bands(browser.picture(x, y, width, height)) == 3 * 5
        assert "rank 1, calls" in browser.value(
            "say(LEFT + (width - LEFT) / 2, tops[6] + 3), get('said').textContent"
        )
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        page = browser.value("[0, 0, root.scrollWidth, root.scrollHeight]")
        (ARTEFACTS / "report.png").write_bytes(browser.picture(*page))


@in_a_browser
def test_a_page_of_many_ranks_and_spans_is_painted_within_two_seconds(tmp_path):
    """Measured from the start of loading to the first frame with the timeline."""
    spans = [
        span(
            Kind(1 + k % 6), 2 * k, 2 * k + 9 - k % 6,
            number=k // 10, step=k // 100, detail=1, name=1 + k % 4,
        )
        for k in range(10_000)
    ]  # fmt: skip
    ranks = [dump(rank, spans, size=64, clock=None) for rank in range(64)]
    path = tmp_path / "report.html"
    write_html(path, ranks)
    with Browser(path.as_uri()) as browser:
        painted_ms = browser.value("painted")
        shown = browser.value("head.lanes.map((lane) => lane.title)")
        names = browser.value("head.names")
    assert {"step", "calls", "received"} <= set(shown)
    assert {"stopped", "backward", "all_reduce"} <= set(names)
    assert painted_ms < 2000


def test_a_path_that_cannot_be_written_gives_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write_html(tmp_path / "no" / "report.html", [dump(0, [])])
