# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import dataclasses

import pytest

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.options import Options


def by_option(settings):
    return {setting.option: setting for setting in settings}


def test_an_option_overrides_its_variable_and_the_variable_the_default(
    monkeypatch,
):
    monkeypatch.setenv("AIKIDO_TRANSPORT_EAGER_BYTES", "1111")
    monkeypatch.setenv("AIKIDO_SHUTDOWN_LINGER_MS", "7")
    options = Options(transport_eager_bytes=2222)
    settings = by_option(options.resolve())
    eager = settings["transport_eager_bytes"]
    assert (eager.value, eager.source) == (2222, "option")
    assert (eager.name, eager.variable) == (
        "transport.eager_bytes",
        "AIKIDO_TRANSPORT_EAGER_BYTES",
    )
    linger = settings["shutdown_linger_ms"]
    assert (linger.value, linger.source) == (7, "environment")
    chunk = settings["transport_chunk_bytes"]
    assert (chunk.value, chunk.source) == (262_144, "default")
    assert options.value("transport_eager_bytes") == 2222
    assert options.value("shutdown_linger_ms") == 7
    assert options.given() == {"transport_eager_bytes": "2222"}


def test_an_option_of_text_keeps_its_text():
    assert Options().value("socket_ifname") == ""
    assert Options(socket_ifname="eth7").value("socket_ifname") == "eth7"


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (16_777_217, "16777217"), ("many", "many")]
)
def test_an_option_out_of_its_range_is_refused_with_the_range(value, text):
    with pytest.raises(ConfigError) as caught:
        Options(transport_chunk_bytes=value)
    assert str(caught.value).startswith(
        f'option transport_chunk_bytes is "{text}"; it takes a whole number from 4096 '
        "to 16777216 (longest piece of a message"
    )


@pytest.mark.parametrize("text", ["-1", "", "5.0", " 5", "9223372036854775808"])
def test_a_variable_that_is_not_a_number_in_range_is_named(monkeypatch, text):
    monkeypatch.setenv("AIKIDO_MEMORY_POOL_BYTES", text)
    with pytest.raises(ConfigError) as caught:
        Options()
    assert str(caught.value).startswith(
        f'AIKIDO_MEMORY_POOL_BYTES is "{text}"; it takes a whole number from 0 to '
    )
    # An explicit option is used instead of the wrong variable.
    assert Options(memory_pool_bytes=5).value("memory_pool_bytes") == 5


def test_an_unknown_option_is_refused_with_the_known_options():
    with pytest.raises(ConfigError) as caught:
        Options(chunk_bytes=5)
    assert str(caught.value) == (
        'Options: there is no option "chunk_bytes"; did you mean '
        '"transport_chunk_bytes"?'
    )
    with pytest.raises(ConfigError, match='did you mean "heartbeat_timeout_ms"'):
        Options(hartbeat_timeout_ms=1000)
    with pytest.raises(ConfigError, match='"foo"; there are transport_chunk_bytes, '):
        Options(foo=1)
    with pytest.raises(ConfigError) as caught:
        _C.resolve_settings({"chunk_bytes": "5"})
    assert str(caught.value).startswith(
        'there is no option "chunk_bytes"; there are transport_chunk_bytes, '
    )


def test_asking_for_an_unknown_option_suggests_the_nearest():
    with pytest.raises(ConfigError) as caught:
        Options().value("chunk")
    assert str(caught.value) == (
        "Options: there is no option 'chunk'; did you mean \"transport_chunk_bytes\"?"
    )


def test_options_compare_by_value():
    options = Options(transport_chunk_bytes=4096)
    assert options == Options(transport_chunk_bytes=4096)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.transport_chunk_bytes = 8192
