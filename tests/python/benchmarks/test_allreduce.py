# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import typer

from benchmarks import allreduce, common


@pytest.mark.parametrize(
    ("text", "num_bytes", "name"),
    [
        ("4", 4, "4 B"),
        ("4K", 4096, "4 KiB"),
        ("64k", 65536, "64 KiB"),
        ("1M", 1 << 20, "1 MiB"),
        ("1048576", 1 << 20, "1 MiB"),
    ],
)
def test_a_size_is_read_and_named(text, num_bytes, name):
    assert allreduce.parse_size(text) == num_bytes
    assert allreduce.size_name(num_bytes) == name


@pytest.mark.parametrize("text", ["", "0", "3", "M", "-4", "4G", "1.5K"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(typer.BadParameter, match="a multiple of 4 bytes"):
        allreduce.parse_size(text)


@pytest.mark.parametrize(
    ("num_bytes", "transport", "ranks", "bar", "holds"),
    [
        (8192, "TCP", 4, None, None),
        (4096, "TCP", 4, 0.25, False),
        (1 << 20, "TCP", 4, 0.9, False),
        (64 << 20, "TCP", 4, 0.85, False),
        (64 << 20, "TCP", 2, 0.8, False),
        (64 << 20, "TCP between hosts", 4, 0.85, False),
        (64 << 20, "TCP between hosts", 2, 0.8, False),
        (4096, "shared memory", 4, 0.1, False),
        (64 << 20, "shared memory", 2, 0.45, False),
    ],
)
def test_only_sizes_with_a_bar_are_judged(num_bytes, transport, ranks, bar, holds):
    samples = {
        "direct": common.Samples((3.0, 3.0, 9.0)),
        "ring": common.Samples((4.0,)),
        "gloo": common.Samples((2.0, 2.0, 1.0)),
    }
    result = allreduce.judged(num_bytes, "direct", samples, transport, ranks)
    assert (result.bar, result.holds) == (bar, holds)
    assert result.ratio == 1.5
    shaped = allreduce.judged(num_bytes, "direct", samples, transport, ranks, 200)
    assert shaped.case == f"{result.case} at 200 Mbit/s"
    shared = allreduce.judged(num_bytes, "direct", samples, transport, ranks, 200, 2)
    assert shared.case == f"{result.case} on 2 hosts at 200 Mbit/s"
    assert shared.bar is None
    assert shaped.bar == {1 << 20: 1.1}.get(num_bytes)
    ring = allreduce.judged(num_bytes, "ring", samples, transport, ranks)
    assert (ring.case, ring.ratio, ring.bar) == (f"{result.case} by ring", 2, None)
    assert allreduce.table_of({num_bytes: samples}, transport, ranks).row_count == 2
    staged = allreduce.judged(
        num_bytes, "direct", samples, transport, ranks, device="cuda"
    )
    assert (staged.case, staged.bar) == (f"{result.case} on cuda", None)


@pytest.mark.parametrize(
    ("ours", "least", "bar", "holds"),
    [
        (0.3, 0.1, 0.1, False),
        (0.3, 0.25, None, None),  # the least exchange misses the bar, too
        (0.19, 0.25, 0.1, True),  # the least exchange was slow by chance
    ],
)
def test_a_bar_that_the_least_misses_is_not_asked_for(ours, least, bar, holds):
    values = {"direct": ours, "gloo": 2.0, "least": least}
    samples = {name: common.Samples((ms,)) for name, ms in values.items()}
    result = allreduce.judged(4096, "direct", samples, "shared memory", 4)
    assert (result.bar, result.holds) == (bar, holds)
    table = allreduce.table_of({4096: samples}, "shared memory", 4)
    assert table.row_count == 1  # the least exchange is no backend and has no row
    setting = dict.fromkeys(("mbit", "hosts"))
    setting |= {"transport": "shared memory", "ranks": 4, "device": "cpu"}
    (row,) = allreduce.rows_of({4096: samples}, setting)
    assert (row["least"], row["num_samples"]) == (least, 1)


def test_the_least_is_asked_of_every_transport_alike():
    values = {"direct": 1.7, "gloo": 2.0, "least": 1.65}
    samples = {name: common.Samples((ms,)) for name, ms in values.items()}
    assert allreduce.judged(1 << 20, "direct", samples, "TCP", 2).bar is None
    assert allreduce.judged(1 << 20, "direct", samples, "TCP", 4).holds


@pytest.mark.parametrize(
    ("arguments", "least_over"),
    [
        ([], "shared memory"),
        (["--tcp"], "TCP"),
        (["--tcp", "--no-least"], None),
        (["--unshaped"], "TCP between hosts"),
        (["--mbit", "200"], None),
        (["--device", "cuda"], None),
    ],
)
def test_the_least_is_measured_where_links_have_no_rate(
    monkeypatch, arguments, least_over
):
    asked = []

    def measure(console, **setting):
        asked.append(setting["least_over"])
        return {}, 0

    monkeypatch.setattr(allreduce, "measure", measure)
    # monkeypatch restores it later.
    monkeypatch.setenv("AIKIDO_TRANSPORT_SHARED_MEMORY_BYTES", "0")
    app = typer.Typer()
    app.command()(allreduce.main)
    app(arguments, standalone_mode=False)
    assert asked == [least_over]


def test_algorithms_are_read_by_name():
    assert allreduce.parse_algorithms("ring,auto") == ["ring", "auto"]
    assert set(allreduce.parse_algorithms("all")) == {
        "direct", "ring", "halving_doubling", "tree", "two_level", "one_owner"
    }  # fmt: skip
    with pytest.raises(typer.BadParameter, match="'star': an algorithm is direct, "):
        allreduce.parse_algorithms("ring,star")


def test_what_bytes_go_over_follows_from_the_options():
    transport_of = allreduce.transport_of
    assert transport_of(tcp=False, mbit=None, unshaped=False) == "shared memory"
    assert transport_of(tcp=True, mbit=None, unshaped=False) == "TCP"
    assert transport_of(tcp=False, mbit=200, unshaped=False) == "TCP"
    assert transport_of(tcp=False, mbit=None, unshaped=True) == "TCP between hosts"
    with pytest.raises(typer.BadParameter, match="links have a rate"):
        transport_of(tcp=False, mbit=200, unshaped=True)


def test_a_device_is_of_two_kinds():
    with pytest.raises(typer.BadParameter, match="'tpu': a device is cpu or cuda"):
        allreduce.parse_algorithms(None, "tpu")


def test_ranks_are_spread_over_hosts():
    assert allreduce.spread(3, None, None) == [0, 1, 2]
    assert allreduce.spread(3, None, 200) == [0, 1, 2]
    assert allreduce.spread(4, 2, 200) == [0, 0, 1, 1]
    assert allreduce.spread(5, 2, 200) == [0, 0, 0, 1, 1]
    assert allreduce.spread(5, 2, 200, interleaved=True) == [0, 1, 0, 1, 0]
    with pytest.raises(typer.BadParameter, match="say how many"):
        allreduce.spread(4, None, 200, interleaved=True)
    with pytest.raises(typer.BadParameter, match="give their rate with --mbit"):
        allreduce.spread(4, 2, None)
    with pytest.raises(typer.BadParameter, match="5 hosts for 4 ranks"):
        allreduce.spread(4, 5, 200)
