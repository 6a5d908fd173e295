# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.data._state import check_same, check_state
from aikido_torch.errors import ConfigError

STATE = {"epoch": 1, "late": [], "of": {"seed": 3}}


def check(state):
    check_state("Loader", state, numbers=["epoch"], others=["late"])


def test_a_whole_state_is_taken():
    check(STATE)


@pytest.mark.parametrize(
    ("state", "part"),
    [
        ([], "is a list"),
        ({"epoch": 1, "of": {}}, "has no 'late'"),
        ({"epoch": 1, "late": []}, "has no 'of'"),
        (STATE | {"epoch": -1}, "has epoch=-1"),
        (STATE | {"epoch": True}, "has epoch=True"),
        (STATE | {"of": None}, "has of=None"),
    ],
)
def test_another_state_is_refused(state, part):
    with pytest.raises(ConfigError) as error:
        check(state)
    assert str(error.value) == (
        f"Loader: the state to load {part}; give the result of state_dict() of a "
        "Loader."
    )


def test_a_state_of_other_data_is_refused():
    check_same("Loader", "batches", {"seed": 3}, {"seed": 3, "old": 1})
    with pytest.raises(ConfigError) as error:
        check_same("Loader", "batches", {"seed": 4, "size": 2}, STATE["of"])
    assert str(error.value) == (
        "Loader: the state to load is of a Loader with seed=3, but here it is 4, so "
        "its batches are others; take seed=3, or begin without a state."
    )
    with pytest.raises(ConfigError, match="size=None, but here it is 2"):
        check_same("Loader", "batches", {"size": 2}, STATE["of"])
