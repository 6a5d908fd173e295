# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Plans, profiles and schedules are values: equal, hashable and picklable."""

import copy
import pickle
from pathlib import Path

import pytest

from aikido_torch import _C, pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan import _profile, _schedule

DATA = Path(__file__).parents[2] / "data/pipedream"


def profile():
    return _profile.read_profile(DATA / "alexnet.txt")


def plan(machines=4):
    return pipeline.partition(profile(), machines=machines, bandwidth=1e9)


def schedule(micro_batches=8):
    return pipeline.schedule("1f1b", stages=plan(), micro_batches=micro_batches)


VALUES = {
    "Profile": (profile, lambda: _profile.read_profile(DATA / "vgg16.txt")),
    "profile with stages": (lambda: profile().with_stages(plan()), profile),
    "Layer": (lambda: profile().layers[3], lambda: profile().layers[4]),
    "Plan": (plan, lambda: plan(8)),
    "Stage": (lambda: plan().stages[0], lambda: plan().stages[1]),
    "Schedule": (schedule, lambda: schedule(9)),
    "Instruction": (lambda: schedule().ranks[0][0], lambda: schedule().ranks[0][1]),
    "Validation": (lambda: schedule().validate(), lambda: schedule(4).validate()),
    "RankMemory": (
        lambda: schedule().validate().ranks[0],
        lambda: schedule().validate().ranks[-1],
    ),
    "Simulation": (lambda: schedule().simulate(), lambda: schedule(9).simulate()),
    "Span": (
        lambda: schedule().simulate().spans[0],
        lambda: schedule().simulate().spans[1],
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_compare_hash_copy_and_pickle(kind):
    make, make_other = VALUES[kind]
    value, same, other = make(), make(), make_other()
    copies = [same, copy.copy(value), copy.deepcopy(value)]
    copies += [pickle.loads(pickle.dumps(value, n)) for n in range(6)]
    for one in copies:
        assert type(one) is type(value)
        assert one == value
        assert hash(one) == hash(value)
        assert repr(one) == repr(value) or "object at" in repr(value)
    assert other != value
    assert value != "something else"
    assert len({value, *copies, other}) == 2


def test_a_schedule_parsed_from_text_equals_the_original():
    made = schedule()
    assert _schedule.Schedule.parse(made.text()) == made
    unpickled = pickle.loads(pickle.dumps(made))
    assert unpickled.options == made.options
    assert unpickled.remade(micro_batches=9) == schedule(9)


def test_a_pickle_of_another_version_is_refused():
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        _C.Plan.__new__(_C.Plan).__setstate__((1, 2, 3))
    layers, _ = profile().__getstate__()
    with pytest.raises(ConfigError, match="needs itself"):
        _C.Profile.__new__(_C.Profile).__setstate__((layers, ((0, 0),)))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"forward_ms": "1"}, "forward_ms of layer \"a\" has '1'; it takes a number"),
        ({"backward_ms": None}, 'backward_ms of layer "a" has None'),
        ({"activation_bytes": 10**400}, "which is too large; it takes a finite number"),
        ({"parameter_bytes": True}, "has True; it takes a number"),
        ({"description": 3}, "description of a layer has 3; it takes a text"),
        ({"id": 3}, "id of a layer has 3; it takes a text"),
    ],
)
def test_figures_of_a_layer_must_be_numbers(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        _C.Layer(**({"id": "a"} | arguments))


def test_a_profile_has_layers_and_edges():
    with pytest.raises(ConfigError, match="layers is a list of Layer, not"):
        _C.Profile(["a"], [])
    with pytest.raises(ConfigError, match="edges is a list of pairs of ids"):
        _C.Profile([_C.Layer("a")], [("a", "b", "c")])
