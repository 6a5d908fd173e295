# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import typer

from benchmarks.lab import Link
from benchmarks.lab.__main__ import links_of

REST = {"queue_ms": 50.0, "delay_ms": 0.0, "loss": 0.0}


def test_slow_hosts_have_rates_of_their_own():
    links = links_of(hosts=3, up=200, down=None, slow=["1:20", "2:30/40"], **REST)
    assert links == [
        Link(up_mbit=200),
        Link(up_mbit=20, down_mbit=20),
        Link(up_mbit=30, down_mbit=40),
    ]


@pytest.mark.parametrize("text", ["1", "1:", "a:20", "3:20", "1:fast", "1:0", "-1:20"])
def test_what_is_no_slow_host_is_refused(text):
    with pytest.raises(typer.BadParameter, match=r"A slow host is HOST:UP\[/DOWN\]"):
        links_of(hosts=3, up=None, down=None, slow=[text], **REST)
