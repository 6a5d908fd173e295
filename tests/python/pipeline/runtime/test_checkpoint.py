# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Checkpoint of one stage; multiproc/test_pipeline_checkpoints.py has several."""

import os

import pytest
import torch
from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.runtime._checkpoint import (
    Place,
    load_stages,
    newest_states,
    save_stage,
)
from aikido_torch.pipeline.runtime._stage import StageRun


class Alone:
    """The ranks of a pipeline with one rank."""

    def together(self, call):
        return [call()]


def make(width=3):
    def adam(parameters):
        return torch.optim.Adam(parameters, lr=0.1)

    return StageRun(0, nn.Linear(width, 2), make_optimizer=adam, loss_fn=None)


def step(run, times=1):
    for _ in range(times):
        run.forward(0, 0, (torch.ones(1, 3),), 1.0)
        run.backward(0, (torch.ones(1, 2),))
        run.step(1, run.take_update())
        run.end()


def restored(run, place):
    found = newest_states({0: place}, {0: run}, [[0]], Alone())
    if found is None:
        return None
    load_stages(found[1], {0: run})
    return found[0]


def test_training_continues_from_the_file(tmp_path):
    place = Place(tmp_path, 0, 1)
    run = make()
    step(run, 3)
    save_stage(place, 3, run, "a")
    assert place.file(3) == tmp_path / "step-0000000003" / "stage-0-of-1.pt"
    step(run, 2)
    other = make()
    assert restored(other, place) == 3
    step(other, 2)
    assert torch.equal(other.module.weight, run.module.weight)


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    place, run = Place(tmp_path, 0, 1), make()
    save_stage(place, 1, run, "a")
    before = place.file(1).read_bytes()
    step(run)
    seen = []

    def fail(descriptor):
        seen.append(sorted(path.name for path in place.file(1).parent.iterdir()))
        raise OSError("no room")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no room"):
        save_stage(place, 1, run, "a")
    assert len(seen[0]) == 2  # the temporary file has another name
    assert place.file(1).read_bytes() == before
    assert list(place.file(1).parent.iterdir()) == [place.file(1)]
    # Files that a killed rank leaves behind are not checkpoints.
    (tmp_path / "step-0000000009").mkdir()
    (tmp_path / "step-0000000009" / ".stage-0-of-1.pt.17").write_bytes(before)
    (tmp_path / "stage-0-of-1.pt").write_bytes(before)
    assert restored(make(), place) == 1


def test_the_newest_readable_file_is_restored(tmp_path):
    place, run = Place(tmp_path, 0, 1), make()
    assert restored(run, place) is None
    for number in (2, 10, 7):
        save_stage(place, number, run, "a")
    assert restored(run, place) == 10
    place.file(10).write_bytes(b"x")
    with pytest.warns(UserWarning, match=r"stage-0-of-1\.pt cannot be read \("):
        assert restored(run, place) == 7


def test_a_checkpoint_of_another_plan_is_named(tmp_path):
    save_stage(Place(tmp_path, 0, 1), 1, make(), "a")
    with pytest.raises(
        ConfigError, match=r"^stage 0 of 2 has no checkpoint in .* with 1 "
    ):
        restored(make(), Place(tmp_path, 0, 2))
    with pytest.raises(
        ConfigError,
        match=r'^stage 0: "weight" is \[2, 4\] of float32 in this pipeline and ',
    ):
        restored(make(4), Place(tmp_path, 0, 1))


def test_a_restored_step_comes_from_one_life_of_the_pipeline(tmp_path):
    places = {s: Place(tmp_path, s, 2) for s in range(2)}
    runs = {s: make() for s in range(2)}
    for step_number, lives in [(1, "aa"), (2, "ab")]:
        for s, life in enumerate(lives):
            save_stage(places[s], step_number, runs[s], life)
    assert newest_states(places, runs, [[0], [0]], Alone())[0] == 1
    save_stage(places[0], 2, runs[0], "b")
    assert newest_states(places, runs, [[0], [0]], Alone())[0] == 2


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_flipped_byte_is_detected_and_the_step_before_is_restored(tmp_path, place):
    where = Place(tmp_path, 0, 1)
    run = make()
    for number in (1, 2):
        step(run)
        save_stage(where, number, run, "a")
    file = where.file(2)
    data = bytearray(file.read_bytes())
    data[int(place * len(data))] ^= 4
    file.write_bytes(data)
    with pytest.warns(UserWarning, match="cannot be read") as told:
        assert restored(make(), where) == 1
    first, second = (str(warning.message) for warning in told)
    assert "stage-0-of-1.pt cannot be read (ValueError: its checksum is wrong" in first
    assert second == (
        "step 2 is not restored, since its file of stage 0 is damaged; step 1 is "
        "restored."
    )
    where.file(1).unlink()
    with pytest.warns(
        UserWarning, match="no older checkpoint, and nothing is restored"
    ):
        assert restored(make(), where) is None


def test_a_file_without_a_checksum_is_still_read(tmp_path):
    where = Place(tmp_path, 0, 1)
    run = make()
    save_stage(where, 1, run, "a")
    torch.save(torch.load(where.file(1), weights_only=True), where.file(1))
    assert restored(make(), where) == 1
