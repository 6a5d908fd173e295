# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import typer

from benchmarks import collectives, common


def test_cases_are_chosen_by_name():
    everything = collectives.cases_of([])
    assert [c["name"] for c in everything].count("alltoall") == 3
    assert (
        collectives.cases_of(["idle", "send"]) == everything[-4:-3] + everything[-2:-1]
    )
    with pytest.raises(typer.BadParameter, match="there is no case sned"):
        collectives.cases_of(["sned"])


@pytest.mark.parametrize(
    ("name", "transport", "spins", "bar"),
    [
        ("alltoall", "shared memory", False, 0.5),
        ("alltoall", "TCP", False, 0.9),
        ("ping-pong", "shared memory", False, 0.6),
        ("ping-pong", "shared memory", True, 0.1),
        ("ping-pong", "TCP", False, None),
    ],
)
def test_each_case_has_the_bar_of_its_transport(name, transport, spins, bar):
    samples = {"aikido": common.Samples((3e-3,)), "gloo": common.Samples((4e-3,))}
    case = {"name": name, "num_bytes": 8}
    (result,) = collectives.judged(case, samples, transport=transport, spins=spins)
    assert result.bar == bar
    assert result.holds == (None if bar is None else bar == 0.9)
    assert result.case.startswith(f"{name} 8 B, {transport}")


@pytest.mark.parametrize(("share", "holds"), [(0.004, True), (0.006, False)])
def test_a_group_that_does_nothing_may_need_little(share, holds):
    samples = {"share": common.Samples((share,))}
    (result,) = collectives.judged(
        {"name": "idle"}, samples, transport="TCP", spins=False
    )
    assert result.holds == holds


@pytest.mark.parametrize(("mib", "holds"), [(143.0, True), (145.0, False)])
def test_a_collective_may_take_twice_its_size_and_a_little(mib, holds):
    case = collectives.cases_of(["memory"])[0]
    samples = {"alltoall": common.Samples((mib * 2**20,))}
    (result,) = collectives.judged(case, samples, transport="TCP", spins=False)
    assert result.case == "memory of alltoall 64 MiB, TCP"
    assert (result.value, result.reference) == (mib, 144)
    assert result.holds == holds


@pytest.mark.parametrize(
    ("transport", "least_ms", "bar"),
    [
        ("shared memory", 1.9, 0.5),
        ("shared memory", 2.1, None),
        ("TCP", 3.7, 0.9),  # aikido reaches the bar
    ],
)
def test_a_bar_that_the_least_misses_is_not_asked_for(transport, least_ms, bar):
    ms = {"aikido": 3.0, "gloo": 4.0, "least": least_ms}
    samples = {name: common.Samples((1e-3 * value,)) for name, value in ms.items()}
    case = {"name": "broadcast", "num_bytes": 8}
    beside_gloo, beside_least = collectives.judged(
        case, samples, transport=transport, spins=False
    )
    assert (beside_gloo.ratio, beside_gloo.bar) == (pytest.approx(0.75), bar)
    assert beside_least.case == f"broadcast 8 B, {transport}, beside the least"
    assert beside_least.ratio == pytest.approx(3.0 / least_ms)
    assert beside_least.bar is None


def test_on_links_collectives_are_chosen_by_name():
    on_links = collectives.cases_of([], on_links=True)
    assert [c["name"] for c in on_links] == ["allreduce", *collectives.COLLECTIVES]
    assert {c["num_bytes"] for c in on_links} == {4 << 20}
    assert collectives.cases_of(["alltoall"], on_links=True) == on_links[3:4]
    with pytest.raises(typer.BadParameter, match="there is no case send"):
        collectives.cases_of(["send"], on_links=True)


# 4 MiB at 200 Mbit/s are 175.3 ms with headers.
@pytest.mark.parametrize(
    ("name", "ms"),
    [("allreduce", 262.97), ("broadcast", 175.31), ("alltoall", 131.49)],
)
def test_on_links_a_collective_is_compared_with_what_they_carry(name, ms):
    case = {"name": name, "num_bytes": 4 << 20}
    for late, holds in ((1.03, True), (1.05, False)):
        samples = {
            "aikido": common.Samples((late * ms / 1e3,)),
            "gloo": common.Samples((2 * ms / 1e3,)),
        }
        beside_bound, beside_gloo = collectives.judged_on_links(
            case, samples, ranks=4, mbit=200
        )
        assert beside_bound.case == (
            f"{name} 4 MiB at 200 Mbit/s, beside what links carry"
        )
        assert beside_bound.ratio == pytest.approx(late, rel=1e-4)
        assert (beside_bound.bar, beside_bound.holds) == (1.04, holds)
        assert beside_gloo.ratio == pytest.approx(late / 2, rel=1e-4)
        assert beside_gloo.bar is None
