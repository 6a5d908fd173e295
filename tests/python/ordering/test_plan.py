# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import itertools
import random

import pytest

from aikido_torch._C import Op, OpGraph
from aikido_torch.errors import ConfigError
from aikido_torch.ordering import LinkCost, plan_iteration, simulate
from aikido_torch.ordering._batches import plan_batches
from harness.op_graphs import iteration


def layers(sizes, seed):
    """An iteration of layers that take random times, with these gradients."""
    dice = random.Random(seed)
    count = len(sizes)
    ops = [Op.compute(f"b{i}", time_s=dice.randint(1, 9)) for i in range(count)]
    ops += [Op.transfer(f"g{i}", bytes=size) for i, size in enumerate(sizes)]
    ops += [Op.compute(f"f{i}", time_s=dice.randint(1, 5)) for i in range(count)]
    edges = [(f"b{i + 1}", f"b{i}") for i in range(count - 1)]
    edges += [(f"f{i}", f"f{i + 1}") for i in range(count - 1)]
    edges += [(f"b{i}", f"g{i}") for i in range(count)]
    edges += [(f"g{i}", f"f{i}") for i in range(count)]
    return OpGraph(ops, [*edges, ("b0", "f0")])


def test_cheap_transfers_go_alone_by_tac_and_pause():
    plan = plan_iteration(iteration(), link=LinkCost(alpha_s=0, beta_s=1e-6))
    assert plan.timeline.makespan_s == 10
    assert set(itertools.chain(*plan.batches)) == {"g0", "g1", "g2"}
    assert plan.candidates["alone, by ready"] == 12
    assert len(plan.candidates) == 6


def test_dear_transfers_go_together():
    plan = plan_iteration(iteration(), link=LinkCost(alpha_s=20, beta_s=1e-6))
    assert [set(batch) for batch in plan.batches] == [{"g0", "g1", "g2"}]
    assert plan.timeline.makespan_s == 3 + 28 + 3
    assert plan.order == tuple(plan.graph.transfers)


@pytest.mark.parametrize("rule", ["in_order", "priority", "preemptive"])
@pytest.mark.parametrize("alpha_s", [0, 1, 10])
def test_a_plan_is_the_best_of_its_candidates_and_takes_what_it_says(rule, alpha_s):
    dice = random.Random(alpha_s)
    link = LinkCost(alpha_s=alpha_s, beta_s=1)
    names = set()
    for seed in range(20):
        graph = layers([dice.randint(0, 12) for _ in range(7)], seed)
        plan = plan_iteration(graph, link=link, link_rule=rule)
        names.add(plan.name)
        assert plan.candidates[plan.name] == min(plan.candidates.values())
        again = simulate(plan.graph, plan.order, link=rule, compute="program")
        assert (
            plan.timeline.makespan_s
            == again.makespan_s
            == min(plan.candidates.values())
        )
        assert sorted(itertools.chain(*plan.batches)) == sorted(graph.transfers)
        sizes = {op.name: op.bytes for op in graph.ops}
        batched = {op.name: op for op in plan.graph.ops}
        for name, batch in zip(plan.order, plan.batches, strict=True):
            assert batched[name].bytes == sum(sizes[member] for member in batch)
            assert batched[name].time_s == link.time_s(batched[name].bytes)
        # In the order in which all is ready a batch plan needs no other rule.
        ready = [f"g{i}" for i in reversed(range(7))]
        alone = plan_batches(graph, ready, link=link)
        assert plan.timeline.makespan_s <= alone.end_s + 1e-9
    if alpha_s == 1:
        assert len(names) > 1


def test_a_plan_keeps_to_the_largest_batch():
    plan = plan_iteration(
        iteration(), link=LinkCost(alpha_s=20, beta_s=1e-6), most_bytes=4.5e6
    )
    sizes = {"g0": 2e6, "g1": 2e6, "g2": 4e6}
    assert len(plan.batches) == 2
    assert all(sum(map(sizes.__getitem__, b)) <= 4.5e6 for b in plan.batches)


def test_an_iteration_without_transfers_has_an_empty_plan():
    graph = OpGraph([Op.compute("c", time_s=2)], [])
    plan = plan_iteration(graph, link=LinkCost(alpha_s=1, beta_s=1))
    assert plan.batches == ()
    assert plan.timeline.makespan_s == 2


def test_a_rule_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match='rule of the link is "lifo"'):
        plan_iteration(
            iteration(), link=LinkCost(alpha_s=0, beta_s=0), link_rule="lifo"
        )
