# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from aikido_torch import _links
from aikido_torch._links import LARGE, MIDDLE, SMALL, find_hosts, link_of, pairs_of


def one_way(alpha, beta, waiting):
    times = {MIDDLE: waiting, LARGE: waiting, SMALL: 0}
    return {n: alpha + n * beta + more for n, more in times.items()}


@pytest.mark.parametrize("size", [3, 4, 9])
def test_alpha_beta_and_message_are_recovered(size):
    alpha, beta, message = 50e-6, 1e-9, 20e-6
    times = one_way(alpha, beta, 3e-4)
    direct = 2 * (times[SMALL] + (size - 2) * message)
    found = link_of(times, direct, size)
    assert found == pytest.approx((alpha, beta, message), rel=1e-3)


@pytest.mark.parametrize(("direct", "share"), [(1e-6, 0), (1.0, 1)])
def test_a_sender_is_busy_for_a_share_of_alpha(direct, share):
    alpha, beta, message = link_of(one_way(50e-6, 0, 0), direct, 4)
    assert (beta, message) == (0, share * alpha)


def test_a_link_that_seems_faster_for_more_bytes_has_no_cost_per_byte():
    times = {SMALL: 1e-4, MIDDLE: 2e-3, LARGE: 1e-3}
    assert link_of(times, 1.0, 2) == (1e-4, 0, 0)


def test_a_group_of_one_measures_nothing():
    class One:
        place = (0, 1)

    _links.measure(One(), [0], None)


@pytest.mark.parametrize(
    ("hosts", "remote", "local"),
    [
        ([0, 0], (0, 1), (0, 1)),
        ([0, 1], (0, 1), (0, 1)),
        ([0, 0, 1, 1], (0, 2), (0, 1)),
        ([0, 1, 0, 1], (0, 1), (0, 2)),
        ([0, 1, 2, 1, 2], (0, 1), (1, 3)),
        ([0, 0, 0], (0, 1), (0, 1)),
    ],
)
def test_one_pair_is_measured_for_each_kind_of_link(hosts, remote, local):
    assert pairs_of(hosts) == (remote, local)


def test_ranks_at_one_address_are_on_one_host(monkeypatch):
    class Backend:
        def __init__(self, rank, host):
            self.place, self.host = (rank, 4), host

        def set_hosts(self, hosts):
            self.hosts = hosts

    addresses = ["10.0.0.9", "fd00::1", "10.0.0.9", "10.0.0.1"]
    told = torch.zeros(4, dtype=torch.int64)

    def tell(backend, tensor, timeout):
        told.add_(tensor)

    monkeypatch.setattr(_links, "_all_reduce", tell)
    backends = [Backend(rank, host) for rank, host in enumerate(addresses)]
    for backend in backends:
        find_hosts(backend, None)
    monkeypatch.setattr(_links, "_all_reduce", lambda _, tensor, __: tensor.copy_(told))
    for backend in backends:
        assert find_hosts(backend, None) == backend.hosts == [0, 1, 0, 2]
