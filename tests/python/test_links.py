# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch import _links
from aikido_torch._links import LARGE, MIDDLE, SMALL, link_of


def one_way(alpha, beta, waiting):
    times = {MIDDLE: waiting, LARGE: waiting, SMALL: 0}
    return {n: alpha + n * beta + more for n, more in times.items()}


@pytest.mark.parametrize("size", [3, 4, 9])
def test_alpha_beta_and_message_are_found_again(size):
    alpha, beta, message = 50e-6, 1e-9, 20e-6
    times = one_way(alpha, beta, 3e-4)
    direct = 2 * (times[SMALL] + (size - 2) * message)
    found = link_of(times, direct, size)
    assert found == pytest.approx((alpha, beta, message), rel=1e-3)


@pytest.mark.parametrize(("direct", "share"), [(1e-6, 0), (1.0, 1)])
def test_a_sender_is_busy_for_a_part_of_alpha(direct, share):
    alpha, beta, message = link_of(one_way(50e-6, 0, 0), direct, 4)
    assert (beta, message) == (0, share * alpha)


def test_a_link_that_looks_faster_for_more_bytes_costs_nothing_for_each():
    times = {SMALL: 1e-4, MIDDLE: 2e-3, LARGE: 1e-3}
    assert link_of(times, 1.0, 2) == (1e-4, 0, 0)


def test_a_group_of_one_measures_nothing():
    class One:
        place = (0, 1)

    _links.measure(One(), None)
