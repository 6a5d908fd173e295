# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from pathlib import Path

import pytest

from aikido_torch import errors, pipeline

DATA = Path(__file__).parents[2] / "data/pipedream"


@pytest.fixture(scope="module")
def vgg16():
    return pipeline.read_profile(DATA / "vgg16.txt")


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


def test_options_reach_the_partitioner(vgg16):
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
    ],
)
def test_options_that_make_no_sense_are_refused(vgg16, options, sentence):
    with pytest.raises(errors.ConfigError, match=sentence):
        pipeline.partition(vgg16, **({"machines": 4, "bandwidth": 1e9} | options))
