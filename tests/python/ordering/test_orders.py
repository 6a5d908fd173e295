# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch._C import Op, OpGraph
from aikido_torch.errors import ConfigError
from aikido_torch.ordering import LinkCost, tac
from aikido_torch.ordering._orders import tic
from harness.op_graphs import chain, parallel


def test_a_chain_goes_from_its_first_layer_on():
    graph = chain([5, 1, 3], [1, 9, 1])
    assert tac(graph).transfers == ("r0", "r1", "r2")
    assert tac(graph).places == {"r0": 0, "r1": 1, "r2": 2}
    assert tic(graph).transfers == ("r0", "r1", "r2")
    assert tic(graph).places == {"r0": 0, "r1": 0, "r2": 2}


def test_tac_goes_by_times_and_tic_cannot():
    graph = parallel([9, 3, 6, 2], [1, 4, 5, 7])
    assert tac(graph).transfers == ("r3", "r1", "r2", "r0")
    assert set(tic(graph).places.values()) == {0}


def test_a_graph_says_what_is_in_it():
    graph = chain([2], [3])
    assert graph.transfers == ["r0"]
    assert graph.edges == [("r0", "c0")]
    assert [(op.name, op.time_s, op.bytes, op.is_transfer) for op in graph.ops] == [
        ("r0", 2, 2e6, True),
        ("c0", 3, 0, False),
    ]
    (transfer, _) = graph.with_link(LinkCost(alpha_s=1, beta_s=1e-6)).ops
    assert transfer.time_s == 3


@pytest.mark.parametrize(
    ("ops", "edges", "message"),
    [
        ([Op.compute("a", time_s=-1)], [], 'the time of op "a" is -1 s'),
        ([Op.compute("a", time_s=1)] * 2, [], 'two ops have the name "a"'),
        ([Op.compute("a", time_s=1)], [("a", "b")], 'there is no op "b"'),
        (
            [Op.compute("a", time_s=1), Op.compute("b", time_s=1)],
            [("a", "b"), ("b", "a")],
            'ops need each other in a cycle: "b" -> "a" -> "b"',
        ),
    ],
)
def test_a_graph_that_makes_no_sense_is_refused(ops, edges, message):
    with pytest.raises(ConfigError, match=message):
        OpGraph(ops, edges)


def test_a_link_takes_numbers_from_0_up():
    with pytest.raises(ConfigError, match="alpha of the link is -1"):
        LinkCost(alpha_s=-1, beta_s=0)
    assert LinkCost(alpha_s=1, beta_s=2).time_s(3) == 7
