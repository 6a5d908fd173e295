# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import sys
import urllib.request

import pytest

from aikido_torch.elastic._metrics import serve_metrics
from aikido_torch.elastic._status import Status, StatusMember
from aikido_torch.errors import PeerLostError, UnsupportedError

STATUS = Status(
    step=7,
    epoch=1,
    stage=2,
    members=tuple(
        StatusMember(number, role, "h", 1)
        for number, role in enumerate(["reliable", "transient", "transient"])
    ),
    steps_lost=1,
    stall_s=2.5,
    elapsed_s=10.0,
    written_s=1_700_000_000.0,
)


@pytest.fixture
def lines_of():
    """Function that serves a status, and returns the samples of one request."""
    servers = []

    def get(read):
        server, thread = serve_metrics("bert", read, host="127.0.0.1", port=0)
        servers.append((server, thread))
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return [line for line in lines if not line.startswith("#")]

    yield get
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def test_each_fact_of_the_status_is_a_gauge(lines_of):
    assert lines_of(lambda: STATUS) == [
        'aikido_elastic_up{job="bert"} 1.0',
        'aikido_elastic_members{job="bert",role="reliable"} 1.0',
        'aikido_elastic_members{job="bert",role="transient"} 2.0',
        'aikido_elastic_stage{job="bert"} 2.0',
        'aikido_elastic_step{job="bert"} 7.0',
        'aikido_elastic_steps_lost{job="bert"} 1.0',
        'aikido_elastic_stall_seconds{job="bert"} 2.5',
        'aikido_elastic_goodput_ratio{job="bert"} 0.75',
        'aikido_elastic_status_timestamp_seconds{job="bert"} 1.7e+09',
    ]


def test_a_job_that_does_not_answer_is_not_up(lines_of):
    def lost():
        raise PeerLostError("the store is gone")

    assert lines_of(lambda: None) == ['aikido_elastic_up{job="bert"} 0.0']
    assert lines_of(lost) == ['aikido_elastic_up{job="bert"} 0.0']


def test_a_port_in_use_gets_a_sentence(lines_of):
    server, thread = serve_metrics("a", lambda: None, host="127.0.0.1", port=0)
    with pytest.raises(UnsupportedError, match=r"cannot be listened on: .*another"):
        serve_metrics("b", lambda: None, host="127.0.0.1", port=server.server_port)
    server.shutdown()
    server.server_close()
    thread.join()


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UnsupportedError, match=r"install aikido-torch\[metrics\]"):
        serve_metrics("a", lambda: None, host="127.0.0.1", port=0)
