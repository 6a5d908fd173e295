# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import math

import numpy as np
import pytest
import torch

from aikido_torch import _C, pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan import _profile
from aikido_torch.pipeline.plan._arguments import (
    number,
    numbers,
    sequence,
    string,
    whole,
    wholes,
)


def test_whole_numbers_are_ints_or_have_an_index():
    for value in (3, np.int8(3), torch.tensor(3)):
        found = whole("stages", value)
        assert (found, type(found)) == (3, int)
    assert wholes("machines", 3) == [3]
    assert wholes("machines", np.array([3, 4])) == [3, 4]


def test_numbers_are_floats_or_convert_to_floats():
    for value in (3, 3.0, np.float32(3), torch.tensor(3.0)):
        found = number("slot", value)
        assert (found, type(found)) == (3.0, float)
    assert numbers("links", np.array([1, 2])) == [1.0, 2.0]
    assert numbers("links", np.float64(2)) == [2.0]


def test_long_values_are_shortened_in_error_messages():
    with pytest.raises(ConfigError, match=r"^stages has -1e5000; it takes whole"):
        whole("stages", -(10**5000))
    with pytest.raises(ConfigError) as caught:
        number("slot", "x" * 1000)
    assert len(str(caught.value)) < 120


def test_a_list_is_not_a_single_value():
    with pytest.raises(ConfigError, match="replicas has 3; it takes a list"):
        sequence("replicas", 3)
    with pytest.raises(ConfigError, match="replicas has '31'; it takes a list"):
        sequence("replicas", "31")
    with pytest.raises(ConfigError, match=r"replicas has tensor\(3\); it takes a list"):
        sequence("replicas", torch.tensor(3))
    assert sequence("replicas", np.array([3, 1])) == [3, 1]


def test_other_values_are_not_converted_to_text():
    assert string("name", "1f1b", example="'gpipe'") == "1f1b"
    with pytest.raises(ConfigError, match=r"^name has 1e400; it takes a text"):
        string("name", 10**400, example="'gpipe'")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"stages": 2.5}, r"stages has 2\.5"),
        ({"stages": "2"}, "stages has '2'"),
        ({"stages": None}, "stages has None"),
        ({"micro_batches": 2**40}, "micro_batches has 1099511627776"),
        ({"micro_batches": float("nan")}, "micro_batches has nan"),
        ({"replicas": 2}, "replicas has 2; it takes a list"),
        ({"replicas": [1.5, 1]}, r"replicas has 1\.5"),
        ({"stages_per_rank": True}, "stages_per_rank has True"),
        ({"turns": [0]}, r"turns"),
        ({"turns": [["0"], [0]]}, "turns has '0'"),
        ({"warmups": "10"}, "warmups has '10'; it takes a list"),
        ({"recompute": 1}, "recompute has 1; it takes True or False"),
        ({"overlap_sums": "no"}, "overlap_sums has 'no'"),
        ({"weights": 3}, "weights has 3; it takes a text"),
        ({"name": 3}, "name has 3; it takes a text"),
    ],
)
def test_options_of_a_schedule_with_wrong_types_are_refused_by_name(options, sentence):
    defaults = {"name": "1f1b", "stages": 2, "micro_batches": 4}
    with pytest.raises(ConfigError, match=sentence):
        pipeline.schedule(**(defaults | options))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda made: made.simulate(forward="1"), "forward has '1'; it takes numbers"),
        (lambda made: made.simulate(links=10**400), "links has 1e400, which is too"),
        (lambda made: made.simulate(backward=[1, None]), "backward has None"),
        (lambda made: made.simulate(slowdown={0: "x"}), "slowdown has 'x'"),
        (lambda made: made.simulate(slowdown={"0": 2}), "slowdown has '0'"),
        (lambda made: made.simulate(slowdown=2), "slowdown has 2; it takes a list"),
        (lambda made: made.validate(max_activations="2"), "max_activations has '2'"),
        (lambda made: made.grid(max_slots=2.5), r"max_slots has 2\.5"),
        (lambda made: made.grid(slot="1"), "slot has '1'; it takes a number"),
        (lambda made: made.simulate(step=-1), "step has -1; it takes finite times"),
        (lambda made: made.simulate(reduce=math.nan), "reduce has nan; it takes fin"),
        (lambda made: made.simulate(links=math.inf), "links has inf; it takes finite"),
        (lambda made: made.grid(slot=0), "slot is 0; it takes a time above 0"),
        (lambda made: type(made).parse(3), "text has 3; it takes a text"),
    ],
)
def test_times_with_wrong_types_are_refused_by_name(call, sentence):
    made = pipeline.schedule("1f1b", stages=2, micro_batches=4)
    with pytest.raises(ConfigError, match=sentence):
        call(made)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: pipeline.Adapt(every=2.5), r"every has 2\.5; it takes whole"),
        (lambda: pipeline.Adapt(max_activations="8"), "max_activations has '8'"),
        (lambda: pipeline.Adapt(min_gain="5%"), "min_gain has '5%'"),
        (lambda: pipeline.Adapt(patience_s=None), "patience_s has None"),
        (lambda: pipeline.Moving(bytes_per_s="1e9"), "bytes_per_s has '1e9'"),
        (lambda: pipeline.Moving(bytes_per_s=10**400), "bytes_per_s has 1e400"),
        (lambda: pipeline.recut("folder", [], before=2.5), r"before has 2\.5"),
        (lambda: pipeline.recut("folder", [], before=0), "before is 0; it takes 1"),
        (lambda: _profile.read_profile(3), "path is a int"),
        (lambda: _C.Profile.parse(3), "text of a profile is 3; pass a str"),
        (lambda: _C.Profile.parse(b"a"), "text of a profile is b'a'; pass a str"),
        (lambda: pipeline.cut(torch.nn.Sequential(), "3-1"), "plan is a str"),
        (lambda: chain(forward_ms="12"), "forward_ms has '12'; it takes numbers"),
        (lambda: chain(backward_ms=[1, 10**400]), "backward_ms has 1e400"),
    ],
)
def test_related_functions_name_a_refused_argument(call, sentence):
    with pytest.raises(ConfigError, match=sentence):
        call()


def chain(**changes):
    names = ("forward_ms", "backward_ms", "activation_bytes", "parameter_bytes")
    return _profile.chain(**({name: [1, 2] for name in names} | changes))
