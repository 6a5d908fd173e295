# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.ordering import LinkCost, simulate
from aikido_torch.ordering._batches import plan_batches, windows
from harness.op_graphs import iteration

LAST_FIRST = ["g2", "g1", "g0"]


def test_windows_go_from_a_gradient_to_its_first_use():
    found = {
        w.transfer: (w.ready_s, w.first_use_s, w.tail_s, w.slack_s)
        for w in windows(iteration())
    }
    assert found == {"g2": (1, 5, 1, 0), "g1": (2, 4, 2, 0), "g0": (3, 3, 3, -2)}


def test_a_plan_ends_when_the_simulator_says():
    for alpha in (0, 0.5, 2, 20):
        link = LinkCost(alpha_s=alpha, beta_s=1e-6)
        plan = plan_batches(iteration(), LAST_FIRST, link=link)
        timeline = simulate(
            plan.graph, plan.graph.transfers, link="in_order", compute="program"
        )
        assert timeline.makespan_s == pytest.approx(plan.end_s)


def test_dear_transfers_go_together():
    link = LinkCost(alpha_s=20, beta_s=1e-6)
    plan = plan_batches(iteration(), LAST_FIRST, link=link)
    (batch,) = plan.batches
    assert batch.transfers == LAST_FIRST
    assert (batch.bytes, batch.begin_s, batch.end_s) == (8e6, 3, 31)
    assert plan.graph.transfers == ["g2..g0"]
    assert plan.end_s == 34
    plan = plan_batches(iteration(), LAST_FIRST, link=link, most_bytes=6e6)
    assert [b.transfers for b in plan.batches] in (
        [["g2", "g1"], ["g0"]], [["g2"], ["g1", "g0"]],
    )  # fmt: skip


def test_an_order_of_other_transfers_is_refused():
    with pytest.raises(ConfigError, match='the order leaves out "g1"'):
        plan_batches(iteration(), ["g2", "g0"], link=LinkCost(alpha_s=0, beta_s=0))
