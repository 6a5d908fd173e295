# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import sys
from urllib.request import urlopen

import pytest
import torch
import torch.distributed as dist

from aikido_torch.errors import ConfigError, UnsupportedError
from aikido_torch.trace._metrics import serve


@pytest.fixture
def metrics(group_of_one):
    pytest.importorskip("prometheus_client")
    served = serve(0)
    yield served
    served.close()


def read(metrics):
    with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_counters_go_on_with_the_calls(metrics):
    before = read(metrics)
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    after = read(metrics)
    key = 'aikido_operations_total{rank="0"}'
    assert float(after[key]) - float(before[key]) == 3
    assert after['aikido_operations_failed_total{rank="0"}'] == "0.0"
    assert after['aikido_group_size{rank="0"}'] == "1.0"
    assert after['aikido_member{rank="0"}'] == "1.0"
    assert after['aikido_clock_offset_seconds{rank="0"}'] == "0.0"


def test_a_port_in_use_is_a_sentence_and_the_first_goes_on(metrics):
    with pytest.raises(ConfigError, match=r"cannot be listened on: Address already in"):
        serve(metrics.port)
    assert read(metrics)


@pytest.mark.parametrize("port", [-1, 70_000])
def test_what_is_no_port_is_a_sentence(group_of_one, port):
    pytest.importorskip("prometheus_client")
    with pytest.raises(ConfigError, match="give another port"):
        serve(port)


def test_the_endpoint_outlives_its_group(metrics):
    dist.destroy_process_group()
    assert isinstance(read(metrics), dict)


def test_without_the_package_it_says_what_to_install(group_of_one, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UnsupportedError, match=r"aikido\[metrics\]"):
        serve(0)
