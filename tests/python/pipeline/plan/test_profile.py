# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from pathlib import Path

import pytest

from aikido_torch import _C, errors, pipeline
from aikido_torch.pipeline.plan import _profile

DATA = Path(__file__).parents[3] / "data/pipedream"


def test_a_published_profile_is_read_and_written_back(tmp_path):
    read = _profile.read_profile(DATA / "gnmt.txt")
    assert len(read.layers) == 48
    lstm = next(layer for layer in read.layers if layer.description.startswith("LSTM"))
    assert lstm.id == "node7"
    assert lstm.forward_ms == 3.190
    assert lstm.activation_bytes == 6291456 + 2 * 131072
    assert lstm.stage is None
    assert ("node6", "node7") in read.edges
    _profile.write_profile(tmp_path / "again.txt", read)
    again = _profile.read_profile(tmp_path / "again.txt")
    assert again.text() == read.text()
    assert again.edges == read.edges


def test_a_profile_with_a_plan_has_the_stage_of_each_layer(tmp_path):
    read = _profile.read_profile(DATA / "alexnet.txt")
    plan = pipeline.partition(read, machines=4, bandwidth=1e9)
    _profile.write_profile(tmp_path / "staged.txt", read, plan=plan)
    staged = _profile.read_profile(tmp_path / "staged.txt")
    stages = {layer.id: layer.stage for layer in staged.layers}
    assert stages["node1"] == 0  # an input belongs to the first stage
    for number, stage in enumerate(plan.stages):
        assert {stages[layer] for layer in stage.layers} == {number}
    assert None not in stages.values()


def chain(number, prefix="layer"):
    return _profile.chain(
        forward_ms=[1.0] * number, backward_ms=[2.0] * number,
        activation_bytes=[10.0] * number, parameter_bytes=[5.0] * number,
        ids=[f"{prefix}{i}" for i in range(number)],
    )  # fmt: skip


@pytest.mark.parametrize("other", [chain(1), chain(9), chain(4, "other")])
def test_a_plan_of_another_profile_is_refused(tmp_path, other):
    plan = pipeline.partition(chain(4), machines=2, bandwidth=1e9)
    with pytest.raises(errors.ConfigError, match="partition made of this profile"):
        other.with_stages(plan)
    with pytest.raises(errors.ConfigError, match="partition made of this profile"):
        _profile.write_profile(tmp_path / "staged.txt", other, plan=plan)
    assert not (tmp_path / "staged.txt").exists()


def test_other_objects_are_not_written(tmp_path):
    made = chain(2)
    for path, profile, plan in (
        (3, made, None), (tmp_path / "p", "x", None), (tmp_path / "p", made, 3)
    ):  # fmt: skip
        with pytest.raises(errors.ConfigError, match=r"^(path|profile|plan) is a "):
            _profile.write_profile(path, profile, plan=plan)


def test_a_broken_file_is_refused_with_its_name_and_line(tmp_path):
    path = tmp_path / "broken.txt"
    path.write_text("a -- Linear\n")
    with pytest.raises(errors.ConfigError, match=r'broken\.txt: line 1: "a -- Linear"'):
        _profile.read_profile(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(errors.ConfigError, match=r"broken\.txt: .*codec"):
        _profile.read_profile(path)
    with pytest.raises(FileNotFoundError):
        _profile.read_profile(tmp_path / "none.txt")


def test_a_chain_has_an_edge_from_each_layer_to_the_next():
    made = _profile.chain(
        forward_ms=[1, 2, 3],
        backward_ms=[2, 4, 6],
        activation_bytes=[10, 20, 30],
        parameter_bytes=[0, 5, 0],
    )
    assert made.edges == [("layer0", "layer1"), ("layer1", "layer2")]
    assert [layer.backward_ms for layer in made.layers] == [2, 4, 6]


def test_columns_of_unequal_lengths_are_refused_with_all_lengths():
    with pytest.raises(
        errors.ConfigError,
        match="ids has 2, forward_ms has 2, backward_ms has 2, activation_bytes has 1, "
        "parameter_bytes has 2 entries",
    ):
        _profile.chain(
            forward_ms=[1, 2],
            backward_ms=[1, 2],
            activation_bytes=[1],
            parameter_bytes=[1, 2],
        )


def test_profiles_made_by_hand_are_checked():
    layers = [_C.Layer("a", forward_ms=1), _C.Layer("b")]
    assert _C.Profile(layers, [("a", "b")]).edges == [("a", "b")]
    with pytest.raises(errors.ConfigError, match='needs a layer "c"'):
        _C.Profile(layers, [("a", "c")])
    with pytest.raises(errors.ConfigError, match='cycle: "a" -> "b" -> "a"'):
        _C.Profile(layers, [("a", "b"), ("b", "a")])
    with pytest.raises(errors.ConfigError, match='forward time of layer "a" is -1'):
        _C.Profile([_C.Layer("a", forward_ms=-1)], [])
