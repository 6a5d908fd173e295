# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch._C import LinkFit
from aikido_torch.errors import ConfigError
from aikido_torch.ordering import LinkCost
from aikido_torch.ordering._costs import (
    choose_collective,
    collective_time,
    pipelining_depth,
)

LINK = LinkCost(alpha_s=10, beta_s=3)


@pytest.mark.parametrize(
    ("collective", "time_s"),
    [
        ("direct", 28 + 36 + 6),
        ("ring", 60 + 36 + 6),
        ("halving_doubling", 40 + 36 + 6),
        ("tree", 2 * (2 * (10 + 24) + 8)),
        ("two_level", 60 + 36 + 6),
        ("one_owner", 28 + 4 * (36 + 6)),
    ],
)
def test_a_collective_takes_what_its_formula_says(collective, time_s):
    given = {"members": 4, "bytes": 8, "link": LINK, "gamma_s": 1, "message_s": 2}
    assert collective_time(collective, **given) == pytest.approx(time_s)


def test_in_direct_few_own_what_is_small():
    given = {"members": 4, "bytes": 8, "link": LINK}
    by_owners = [
        collective_time("direct", **given, shard_bytes=bytes) for bytes in (2, 4, 8)
    ]
    assert by_owners == pytest.approx(
        [20 + 2 * 3 / owners * 24 for owners in (4, 2, 1)]
    )
    assert choose_collective(**given)[0] == "direct"
    assert choose_collective(**given, shard_bytes=8)[0] == "halving_doubling"


def test_ranks_of_one_host_share_its_link():
    given = {"members": 4, "bytes": 8, "link": LINK, "hosts": [2, 2]}
    local = LinkCost(alpha_s=2, beta_s=0.5)
    assert collective_time("two_level", **given, local=local) == pytest.approx(
        20 + 24 + 4 + 4
    )
    assert collective_time("two_level", **given) == pytest.approx(20 + 24 + 20 + 24)
    assert collective_time("direct", **given, local=local) == pytest.approx(
        20 + 2 * (24 + 1)
    )
    assert choose_collective(**given, local=local) == (
        "two_level", pytest.approx(52)
    )  # fmt: skip
    with pytest.raises(ConfigError, match="the hosts have 3 of 4 members"):
        choose_collective(members=4, bytes=8, link=LINK, hosts=[1, 2])


def test_the_one_that_takes_least_is_chosen():
    given = {"members": 8, "bytes": 8, "link": LINK}
    assert choose_collective(**given) == ("direct", 2 * 10 + 42)
    assert choose_collective(**given, message_s=10)[0] == "halving_doubling"
    assert choose_collective(**given, among=["ring"])[0] == "ring"
    with pytest.raises(ConfigError, match='the collective is "star"'):
        choose_collective(**given, among=["star"])
    with pytest.raises(ConfigError, match="no collective to choose from"):
        choose_collective(**given, among=[])
    with pytest.raises(ConfigError, match="a collective of 0 members"):
        collective_time("ring", members=0, bytes=1, link=LINK)


def test_a_transfer_over_hops_is_cut_where_that_pays():
    link = LinkCost(alpha_s=1e-4, beta_s=1e-9)
    assert pipelining_depth(bytes=1e7, hops=2, link=link) == (
        10, pytest.approx(11 * 1.1e-3),
    )  # fmt: skip
    assert pipelining_depth(bytes=1e7, hops=1, link=link)[0] == 1
    assert pipelining_depth(bytes=1e7, hops=2, link=link, most=3)[0] == 3
    with pytest.raises(ConfigError, match="hops is 0"):
        pipelining_depth(bytes=1, hops=0, link=link)


def test_a_fit_follows_the_link():
    fit = LinkFit(window=16)
    assert fit.link is None
    for seconds_a_byte in (1e-8, 4e-8):
        for size in (1e3, 1e6, 4e6, 2e5) * 4:
            fit.add(bytes=size, seconds=1e-4 + seconds_a_byte * size)
        assert fit.link is not None
        assert fit.link.alpha_s == pytest.approx(1e-4)
        assert fit.link.beta_s == pytest.approx(seconds_a_byte)
    assert (fit.size, fit.changes) == (16, 1)
    with pytest.raises(ConfigError, match="seconds of a transfer is -1"):
        fit.add(bytes=1, seconds=-1)
    with pytest.raises(ConfigError, match="a change takes 9 samples"):
        LinkFit(window=16, change=9)
