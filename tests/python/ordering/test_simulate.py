# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.ordering import bounds, simulate, tac
from aikido_torch.ordering._simulate import best_order
from harness.op_graphs import chain, iteration, parallel


def spans(timeline):
    return [(s.op, s.processor, s.begin_s, s.end_s) for s in timeline.spans]


def test_a_timeline_says_when_each_op_ran():
    timeline = simulate(chain([2, 2], [3, 3]), ["r0", "r1"], link="in_order")
    assert spans(timeline) == [
        ("r0", None, 0, 2),
        ("r1", None, 2, 4),
        ("c0", 0, 2, 5),
        ("c1", 0, 5, 8),
    ]
    assert timeline.makespan_s == 8
    assert timeline.done_s == {"r0": 2, "r1": 4, "c0": 5, "c1": 8}


def test_rules_of_the_link_differ_where_gradients_come_last_layer_first():
    graph, order = iteration(), ["g0", "g1", "g2"]
    times = {rule: simulate(graph, order, link=rule) for rule in
             ("fifo", "in_order", "priority", "preemptive")}  # fmt: skip
    assert {rule: t.makespan_s for rule, t in times.items()} == {
        "fifo": 12, "in_order": 12, "priority": 11, "preemptive": 10,
    }  # fmt: skip
    assert times["preemptive"].pauses == 2
    chunked = simulate(graph, order, chunk_bytes=1.5e6)
    assert chunked.makespan_s == 10
    assert simulate(graph, link="fifo").makespan_s == 12


def test_computing_waits_for_the_program_or_has_more_processors():
    graph = parallel([1, 1], [2, 2])
    assert simulate(graph, ["r1", "r0"]).makespan_s == 5
    assert simulate(graph, ["r1", "r0"], compute="program").makespan_s == 6
    assert simulate(graph, ["r1", "r0"], processors=2).makespan_s == 4


def test_the_best_order_is_found_among_all():
    graph = parallel([6, 1], [1, 6])
    assert best_order(graph) == (["r1", "r0"], 8)
    assert best_order(graph, processors=2, link="priority")[1] == 8
    with pytest.raises(
        ConfigError, match="9 transfers; all orders are looked at for 8"
    ):
        best_order(chain([1] * 9, [1] * 9))


def test_bounds_tell_what_there_is_to_win():
    graph = parallel([6, 1], [1, 6])
    of = bounds(graph)
    assert (of.communication_s, of.computation_s) == (7, 7)
    assert (of.upper_s, of.lower_s) == (14, 7)
    assert (of.ratio, of.speed_up) == (1, 1)
    assert of.efficiency(simulate(graph, tac(graph)).makespan_s) == pytest.approx(6 / 7)


@pytest.mark.parametrize(
    ("order", "options", "message"),
    [
        (["r0"], {}, 'the order leaves out "r1"'),
        (["r0", "x"], {}, 'the order has "x", which the graph has not'),
        (["r0", "r1"], {"link": "lifo"}, 'rule of the link is "lifo"'),
        (["r0", "r1"], {"compute": "lazy"}, 'rule of the computing is "lazy"'),
        (["r0", "r1"], {"processors": 0}, "0 processors"),
        (["r0", "r1"], {"chunk_bytes": -1}, "a chunk has -1 bytes"),
    ],
)
def test_what_makes_no_sense_is_refused(order, options, message):
    with pytest.raises(ConfigError, match=message):
        simulate(chain([1, 1], [1, 1]), order, **options)
