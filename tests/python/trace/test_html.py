# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import base64
import json
import re
import shutil
import subprocess
from array import array
from html.parser import HTMLParser

import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.trace import Kind
from aikido_torch.trace._html import write_html
from benchmarks.tracing_cases.simulate import Injected, Model
from harness.traces import dump, paused_message, span


class Page(HTMLParser):
    """Elements by id, texts, and whatever would load something."""

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


def test_names_cannot_break_out_of_the_page(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    made = dump(0, [span(Kind.SECTION, 1, 2, name=0)], names=[evil], job=evil)
    text, page = written(tmp_path, [made])
    assert "<img" not in text
    assert page.loads == []
    assert json.loads(page.texts["head"])["names"] == [evil]


def test_all_that_is_operated_has_a_name_and_a_key(tmp_path):
    text, page = written(tmp_path, Model().run([None] * 3, seed=1))
    assert page.ids["lanes"]["tabindex"] == "0"
    assert page.ids["said"]["aria-live"] == "polite"
    for key in ("ArrowLeft", "ArrowRight", "Home", "PageUp", "PageDown", "Enter"):
        assert key in text
    for theme in ("prefers-color-scheme", 'data-theme="dark"'):
        assert theme in text
    for step in (0, 1, 2):
        assert f"<option>{step}</option>" in text


def test_a_trace_without_anything_is_a_page_too(tmp_path):
    _, page = written(tmp_path, [dump(0, [])])
    assert columns(page)[0]["count"] == 0


BROWSER = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None
)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_page_of_many_ranks_and_spans_is_painted_within_two_seconds(tmp_path):
    ranks = [
        dump(
            rank,
            [
                span(Kind(2 + k % 4), 2 * k, 2 * k + 1, number=k // 10, step=k // 100)
                for k in range(10_000)
            ],
            size=64,
        )
        for rank in range(64)
    ]
    path = tmp_path / "report.html"
    write_html(path, ranks)
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    ran = subprocess.run([*command, path.as_uri()], capture_output=True, timeout=50)
    painted = re.search(rb'data-painted-ms="(\d+)"', ran.stdout)
    assert painted, ran.stderr[-500:]
    assert int(painted[1]) < 2000


def test_a_path_that_cannot_be_written_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write_html(tmp_path / "no" / "report.html", [dump(0, [])])
