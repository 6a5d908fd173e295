# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import copy
import inspect
import pickle
from dataclasses import dataclass, replace

import pytest

from aikido_torch._names import (
    Renamed,
    guess,
    refuse_unknown_names,
    rename_options,
    unknown_variables,
)
from aikido_torch.errors import ConfigError

KNOWN = ["transport_chunk_bytes", "transport_eager_bytes", "socket_ifname"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("transport_chunk_byte", "transport_chunk_bytes"),
        ("tranport_chunk_bytes", "transport_chunk_bytes"),
        ("eager_bytes", "transport_eager_bytes"),
        ("ifname", "socket_ifname"),
    ],
)
def test_the_nearest_name_is_suggested(name, meant):
    assert guess(name, KNOWN) == f'did you mean "{meant}"?'


@pytest.mark.parametrize("name", ["foo", ""])
def test_all_names_are_listed_if_none_is_near(name):
    assert guess(name, KNOWN) == (
        "there are transport_chunk_bytes, transport_eager_bytes, socket_ifname"
    )


@refuse_unknown_names
@dataclass(frozen=True, kw_only=True)
class Pair:
    left: int = 1
    right: int = 2


def test_a_dataclass_refuses_unknown_names_and_is_otherwise_unchanged():
    with pytest.raises(ConfigError) as caught:
        Pair(rigth=3)
    assert str(caught.value) == (
        'Pair: there is no option "rigth"; did you mean "right"?'
    )
    with pytest.raises(TypeError):
        Pair(3)
    assert Pair(left=5) == Pair(left=5, right=2)
    assert list(inspect.signature(Pair).parameters) == ["left", "right"]
    for same in (copy.copy(Pair(left=5)), pickle.loads(pickle.dumps(Pair(left=5)))):
        assert same == Pair(left=5)


@rename_options(side=Renamed("end", {"port": "left"}))
@refuse_unknown_names
@dataclass(frozen=True, kw_only=True)
class Boat:
    end: str = "left"
    length: int = 1


def test_an_old_option_goes_on_with_a_warning_in_the_line_of_the_caller():
    text = "Boat: side is end now; the old name will be removed."
    with pytest.warns(DeprecationWarning, match=text) as told:
        boats = [Boat(side="port"), Boat(side="right"), replace(Boat(), side="right")]
    assert boats == [Boat(end="left"), Boat(end="right"), Boat(end="right")]
    assert [str(w.message) for w in told] == [text] * 3
    assert [w.filename for w in told][:2] == [__file__] * 2
    with pytest.warns(DeprecationWarning, match=text):
        assert [boat.side for boat in boats] == ["port", "right", "right"]


def test_a_new_option_gives_no_warning_and_others_are_refused(recwarn):
    assert Boat(end="right", length=2) == replace(Boat(length=2), end="right")
    assert repr(Boat()) == "Boat(end='left', length=1)"
    with pytest.raises(ConfigError, match='there is no option "sides"'):
        Boat(sides="left")
    assert not recwarn.list


def test_an_unknown_variable_is_named():
    environment = {
        "AIKIDO_SOCKET_IFNAME": "lo",
        "AIKIDO_SOCKET_IFNAM": "lo",
        "AIKIDO_CUDA": "OFF",  # a variable of the build
        "AIKIDO_": "",
        "PATH": "/bin",
    }
    assert unknown_variables(environment, ["AIKIDO_SOCKET_IFNAME"]) == [
        "The environment variable AIKIDO_ is none of aikido and has no effect; did you "
        'mean "AIKIDO_SOCKET_IFNAME"?',
        "The environment variable AIKIDO_SOCKET_IFNAM is none of aikido and has no "
        'effect; did you mean "AIKIDO_SOCKET_IFNAME"?',
    ]
