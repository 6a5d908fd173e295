# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import logging

import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.reassign._place import LoopPlace
from aikido_torch.reassign._plan import Plan
from aikido_torch.reassign._state import pending_of, read_state, write_state

OPTIONS = {
    "num_samples": 40,
    "batch_size": 10,
    "micro_batch_size": 2,
    "num_ranks": 2,
    "shuffle": True,
    "seed": 3,
    "drop_last": True,
}
PLAN = Plan(**OPTIONS)
STATE = write_state(PLAN, (2, 3), 1, [7, 8])


def test_a_state_moves_a_loop():
    place = LoopPlace(4)
    read_state(PLAN, place, STATE)
    place.begin(100)
    assert (place.epoch, place.step) == (2, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_samples", 42), ("batch_size", 20), ("seed", 4), ("shuffle", False)],
)
def test_a_state_of_other_items_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name}={OPTIONS[name]}, but here"):
        read_state(Plan(**OPTIONS | {name: value}), LoopPlace(4), STATE)


def test_the_number_of_ranks_may_change():
    read_state(Plan(**OPTIONS | {"num_ranks": 4}), LoopPlace(4), STATE)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"epoch": -1}, "has epoch=-1"),
        ({"step": "3"}, "has step='3'"),
        ({"pending": [1.5]}, r"has pending=\[1.5\]"),
        ({"of": None}, "has of=None"),
    ],
)
def test_nonsense_is_refused(change, part):
    with pytest.raises(ConfigError, match=part):
        read_state(PLAN, LoopPlace(4), STATE | change)


def test_missing_parts_are_named():
    with pytest.raises(ConfigError, match="is a list"):
        read_state(PLAN, LoopPlace(4), [])
    with pytest.raises(ConfigError, match="has no 'pending'"):
        read_state(
            PLAN, LoopPlace(4), {n: v for n, v in STATE.items() if n != "pending"}
        )


def test_pending_items_belong_to_their_rank(caplog):
    assert pending_of(STATE, 1) == [7, 8]
    with caplog.at_level(logging.WARNING, "aikido"):
        assert pending_of(STATE, 0) == []
    assert "is of rank 1, so rank 0 does not know" in caplog.text
    caplog.clear()
    assert pending_of(STATE | {"pending": []}, 0) == []
    assert caplog.text == ""
