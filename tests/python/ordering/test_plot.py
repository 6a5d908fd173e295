# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.ordering import simulate
from aikido_torch.ordering._plot import plot_timelines
from harness.op_graphs import iteration


def timelines(graph, **options):
    return {
        "before": simulate(graph, link="fifo", **options),
        "after": simulate(graph, ["g0", "g1", "g2"], link="preemptive", **options),
    }


def test_a_picture_has_both_timelines_and_names_in_their_boxes(tmp_path):
    pytest.importorskip("matplotlib")
    graph = iteration()
    path = tmp_path / "timeline.svg"
    plot_timelines(graph, timelines(graph), path)
    svg = path.read_text()
    for text in ("before: 12,000 ms", "after: 10,000 ms", "link", "compute", "ms"):
        assert f"<!-- {text} -->" in svg
    # One span before, two after: it paused.
    assert svg.count("<!-- g2 -->") == 3
    assert svg.count("<!-- f2 -->") == 2
    plot_timelines(graph, timelines(graph, processors=2), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
