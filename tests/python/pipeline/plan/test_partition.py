# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from pathlib import Path

import numpy as np
import pytest

from aikido_torch import _C, errors, pipeline
from aikido_torch.pipeline.plan import _profile

DATA = Path(__file__).parents[3] / "data/pipedream"


@pytest.fixture(scope="module")
def vgg16():
    return _profile.read_profile(DATA / "vgg16.txt")


def test_vgg16_is_cut_as_published(vgg16):
    plan = pipeline.partition(
        vgg16, machines=8, bandwidth=1.25e9, cost_model="published_code"
    )
    assert plan.text == "7-1"
    assert plan.period_s == pytest.approx(0.1008413934, rel=1e-9)
    assert plan.machines == 8
    assert plan.one_machine_s == pytest.approx(0.672535)
    first, second = plan.stages
    assert first.replicas == [7]
    in_order = sorted((layer.id for layer in vgg16.layers), key=lambda id: int(id[4:]))
    assert [*first.layers, *second.layers] == in_order
    assert first.period_s == pytest.approx(
        (first.compute_s + first.sync_s) / 7, rel=1e-12
    )
    assert repr(plan) == "<Plan 7-1, 0.100841 s>"


def test_levels_are_given_lowest_first(vgg16):
    options = {"cost_model": "published_code", "count_transfers": False}
    plan = pipeline.partition(
        vgg16, machines=[4, 4], bandwidth=[10e9, 1.25e9], **options
    )
    assert plan.period_s == pytest.approx(0.0441210743, rel=1e-9)
    assert [stage.machines for stage in plan.stages] == [12, 3, 1]
    assert plan.stages[0].replicas == [4, 3]


def test_options_are_passed_to_the_partitioner(vgg16):
    straight = pipeline.partition(vgg16, machines=4, bandwidth=1e9, straight=True)
    assert straight.text == "1-1-1-1"
    few = pipeline.partition(vgg16, machines=4, bandwidth=1e6, fewer_machines=True)
    assert few.machines < 4
    free = pipeline.partition(vgg16, machines=4, bandwidth=1e9, count_transfers=False)
    assert free.period_s == pytest.approx(0.169562, rel=1e-9)
    limit = max(stage.memory_bytes for stage in free.stages) - 1
    held = pipeline.partition(vgg16, machines=4, bandwidth=1e9, memory_bytes=limit)
    assert max(stage.memory_bytes for stage in held.stages) <= limit


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bandwidth": 0}, "bandwidth of level 1 is 0"),
        ({"machines": []}, "0 numbers of machines and 1 bandwidths"),
        ({"machines": [2, 2]}, "2 numbers of machines and 1 bandwidths"),
        ({"machines": 0}, "level 1 has 0 machines"),
        ({"machines": True}, "machines has True"),
        ({"machines": [2.5]}, "machines has 2.5"),
        ({"machines": 2**40}, "machines has"),
        ({"cost_model": "best"}, 'cost model is "best"'),
        ({"memory_bytes": float("nan")}, "memory of a machine is nan"),
        ({"memory_bytes": 1e9}, "no plan fits into 1000000000 bytes"),
        ({"max_cuts": 0}, "max_cuts is 0"),
        ({"max_cuts": 39}, "in more than 39 ways"),
        ({"machines": 41, "straight": True}, "at most 40"),
        ({"machines": "4"}, "machines has '4'; it takes whole numbers"),
        ({"machines": None}, "machines has None; it takes whole numbers"),
        ({"machines": 2.0}, r"machines has 2\.0; it takes whole numbers"),
        ({"machines": [[2]]}, r"machines has \[2\]"),
        ({"bandwidth": "1e9"}, "bandwidth has '1e9'; it takes numbers"),
        ({"bandwidth": None}, "bandwidth has None; it takes a number"),
        ({"bandwidth": True}, "bandwidth has True; it takes a number"),
        ({"bandwidth": 10**400}, "bandwidth has 1e400, which is too large"),
        ({"bandwidth": [10**5000]}, "bandwidth has 1e5000, which is too large"),
        ({"memory_bytes": "16GB"}, "memory_bytes has '16GB'; it takes a number"),
        ({"memory_bytes": 10**400}, "memory_bytes has 1e400, which is too large"),
        ({"memory_bytes": 1j}, "memory_bytes has 1j"),
        ({"max_cuts": 2.5}, r"max_cuts has 2\.5; it takes whole numbers"),
        ({"max_cuts": 2**70}, "max_cuts has 1180591620717411303424; it takes whole"),
        ({"max_cuts": True}, "max_cuts has True"),
        ({"cost_model": 3}, "cost_model has 3"),
        ({"straight": "yes"}, "straight has 'yes'; it takes True or False"),
        ({"count_transfers": None}, "count_transfers has None"),
        ({"fewer_machines": 1}, "fewer_machines has 1"),
        ({"profile": "vgg16.txt"}, "profile is a str"),
    ],
)
def test_invalid_options_are_refused(vgg16, options, sentence):
    defaults = {"profile": vgg16, "machines": 4, "bandwidth": 1e9}
    with pytest.raises(errors.ConfigError, match=sentence):
        pipeline.partition(**(defaults | options))


def test_numbers_of_numpy_are_accepted(vgg16):
    plan = pipeline.partition(
        vgg16,
        machines=np.int64(4),
        bandwidth=np.array([1e9]),
        memory_bytes=np.float32(1e12),
    )
    assert plan == pipeline.partition(
        vgg16, machines=4, bandwidth=1e9, memory_bytes=float(np.float32(1e12))
    )


def layer(name, ms, out):
    return _C.Layer(
        name,
        forward_ms=ms / 3,
        backward_ms=2 * ms / 3,
        activation_bytes=out,
        parameter_bytes=1e9,
    )


@pytest.mark.parametrize("order", ["xyzw", "yzxw", "wzyx"])
def test_towers_are_cut_optimally_in_any_order(order):
    layers = {
        "x": layer("x", 10, 100e6),
        "y": layer("y", 1, 1e3),
        "z": layer("z", 10, 1e3),
        "w": layer("w", 1, 1e3),
    }
    edges = [("x", "w"), ("y", "z"), ("z", "w")]
    profile = _C.Profile([layers[name] for name in order], edges)
    plan = pipeline.partition(profile, machines=2, bandwidth=1e9)
    assert plan.period_s == pytest.approx(0.011)
    assert [sorted(stage.layers) for stage in plan.stages] == [["y", "z"], ["w", "x"]]
    assert plan.note == ""


def test_too_many_towers_are_refused_with_a_remedy():
    layers = [layer(f"table{i}", 1, 1e3) for i in range(26)] + [layer("top", 5, 1)]
    edges = [(one.id, "top") for one in layers[:-1]]
    profile = _C.Profile(layers, edges)
    with pytest.raises(errors.ConfigError, match=r"more than 5000 ways.*26 sources"):
        pipeline.partition(profile, machines=2, bandwidth=1e9)
    plan = pipeline.partition(
        profile, machines=2, bandwidth=1e9, cost_model="published_code"
    )
    assert plan.note == ""


def inception(blocks, branches=4, length=7):
    """Blocks with branches of several layers side by side, as Inception has them."""
    layers, edges = [layer("stem", 5, 1e6)], []
    for block in range(blocks):
        before = layers[-1].id
        ends = []
        for branch in range(branches):
            last = before
            for at in range(length):
                made = layer(f"b{block}.{branch}.{at}", 1 + branch, 1e5 * (1 + at))
                layers.append(made)
                edges.append((last, made.id))
                last = made.id
            ends.append(last)
        layers.append(layer(f"b{block}.concat", 0, 1e6))
        edges += [(end, layers[-1].id) for end in ends]
    return _C.Profile(layers, edges)


@pytest.mark.parametrize("cost_model", ["paper", "published_code"])
@pytest.mark.parametrize("machines", [4, [2, 2]])
def test_wide_branches_are_joined_with_a_log_message(cost_model, machines, caplog):
    profile = inception(blocks=11)
    rates = [1e9] * (1 if machines == 4 else 2)
    options = {"machines": machines, "bandwidth": rates, "cost_model": cost_model}
    plan = pipeline.partition(profile, **options)
    assert "each branch is joined to one layer" in plan.note
    assert plan.note in caplog.text
    named = [name for stage in plan.stages for name in stage.layers]
    assert sorted(named) == sorted(one.id for one in profile.layers)
    needs = {}
    for needed, by in profile.edges:
        needs.setdefault(by, set()).add(needed)
    done = set()
    for name in named:  # a stage comes after the stages it depends on
        assert needs.get(name, set()) <= done
        done.add(name)
    total = sum(one.forward_ms + one.backward_ms for one in profile.layers) / 1e3
    assert plan.one_machine_s == pytest.approx(total)
    small = inception(blocks=1, length=2)
    whole = pipeline.partition(small, **options)
    joined = pipeline.partition(small, **options, max_cuts=40)
    assert whole.note == ""
    assert joined.note
    assert joined.period_s >= whole.period_s


@pytest.mark.parametrize("memory", [None, 1e9])
@pytest.mark.parametrize(("figure", "bandwidth"), [(1e308, 1e9), (1.0, 1e-308)])
def test_figures_whose_sums_are_infinite_are_refused(figure, bandwidth, memory):
    profile = _profile.chain(
        forward_ms=[figure] * 4, backward_ms=[figure] * 4,
        activation_bytes=[100.0] * 4, parameter_bytes=[100.0] * 4,
    )  # fmt: skip
    with pytest.raises(errors.ConfigError, match="no plan has a finite time"):
        pipeline.partition(
            profile, machines=2, bandwidth=bandwidth, memory_bytes=memory
        )
