# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io

from rich.console import Console

from aikido_torch._C import Op, OpGraph
from aikido_torch.ordering import simulate
from aikido_torch.ordering._show import show_timelines
from harness.op_graphs import chain, iteration


def printed(graph, timelines, order):
    out = io.StringIO()
    show_timelines(graph, timelines, order=order, console=Console(file=out, width=100))
    return out.getvalue()


def test_both_timelines_are_drawn_on_one_scale():
    graph, order = iteration(), ["g0", "g1", "g2"]
    before = simulate(graph, link="fifo")
    after = simulate(graph, order, link="preemptive")
    lines = printed(graph, {"before": before, "after": after}, order).splitlines()
    # 12 s are 60 characters: 5 for each second.
    rows = {name: lines[lines.index(name) + 1 :][:2] for name in ("before", "after")}
    busy, idle, over = "█" * 5, "·" * 5, " " * 5
    assert [row[9:69] for row in rows["before"]] == [
        busy * 3 + idle * 6 + busy * 3,
        idle + busy * 8 + idle * 3,
    ]
    assert [row[9:].ljust(60)[:60] for row in rows["after"]] == [
        busy * 3 + idle * 2 + busy * 2 + idle * 2 + busy + over * 2,
        idle + busy * 8 + idle + over * 2,
    ]


def test_figures_are_those_of_the_timelines():
    graph, order = iteration(), ["g0", "g1", "g2"]
    text = printed(graph, {"before": simulate(graph, link="fifo")}, order)
    assert "before    │   12,000 │    6,000 │       0.33 │      0 " in text
    assert "g0       │ 2,000,000 │ 2,000 │ 3,000 │ -2,000 │        9,000 " in text
    assert "g1       │ 2,000,000 │ 2,000 │ 2,000 │      0 │        7,000 " in text
    assert "communication 8,000 ms, computation 6,000 ms, 1.33 to 1" in text
    assert "at best 8,000 ms, without any overlap 14,000 ms" in text


def test_what_takes_little_of_a_slice_is_not_drawn():
    graph = chain([0.04, 0.06], [3, 2.96])
    text = printed(graph, {"x": simulate(graph, ["r0", "r1"])}, ["r0", "r1"])
    rows = text.splitlines()[text.splitlines().index("x") + 1 :][:2]
    assert [row[9:69] for row in rows] == ["█" * 60, "█" + "·" * 59]


def test_a_long_list_of_transfers_is_cut():
    graph = chain([1] * 45, [1] * 45)
    text = printed(graph, {"x": simulate(graph, graph.transfers)}, graph.transfers)
    assert "r39" in text
    assert "r40" not in text
    assert "and 5 more" in text


def test_names_are_no_markup():
    graph = OpGraph([Op.transfer("[red]", time_s=1, bytes=1)], [])
    text = printed(graph, {"[blue]": simulate(graph, ["[red]"])}, ["[red]"])
    assert "[red]" in text
    assert "[blue]\n" in text
