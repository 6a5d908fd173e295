# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Readers of recorded markets: each wrong file is refused with its line."""

import gzip
import json

import pytest

from aikido_torch.market import MarketError, read_capacity, read_prices
from aikido_torch.market._read import FORMATS, Meaning, is_capacity

HEADER = "unix_seconds,usd_per_hour\n"


def entry(price="0.1", time="2026-01-01T00:00:00Z", zone="a", **more):
    return {
        "AvailabilityZone": zone,
        "InstanceType": "m",
        "SpotPrice": price,
        "Timestamp": time,
    } | more


def aws(*entries):
    return json.dumps({"SpotPriceHistory": list(entries)}, indent=0)


def test_csv_and_its_compressed_form_are_equal(tmp_path):
    text = HEADER + "100,0.1\n200,0.3\n"
    (tmp_path / "z.csv").write_text(text)
    (tmp_path / "z.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("z.csv", "z.csv.gz"):
        (trace,) = read_prices(tmp_path / name)
        assert trace.name == "z"
        assert trace.times_s.tolist() == [100, 200]
        assert trace.usd_per_hour.tolist() == [0.1, 0.3]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ':1: the header is ""'),
        ("ms,eur\n1,2\n", ':1: the header is "ms,eur"'),
        (HEADER, ":1: the market z is empty"),
        (HEADER + "1,0.1\nx,0.1\n", ':3: "x,0.1" is not a time'),
        (HEADER + "1,0.1\n2,-0.1\n", ":3: the price is -0.1"),
        (HEADER + "1,0.1\n2,nan\n", ":3: the price is nan"),
        (HEADER + "2,0.1\n1,0.1\n", ":3: the time 1 s is not after 2 s"),
        (HEADER + "1,0.1\n9999999,0.1\n", ":3: 9999998 s without a change"),
        ("{", ":1: no JSON"),
        ('{"a": 1}', ":1: the JSON has neither"),
        (aws(), ":1: the market is empty"),
        (aws(entry(), {"SpotPrice": "1"}), ":9: an entry of SpotPriceHistory is wrong"),
        (aws(entry(Currency="EUR")), ":3: the currency is EUR"),
        (aws(entry(price="-1")), ":3: the price is -1"),
        (
            aws(
                entry(time="2026-01-02T00:00:00Z"),
                entry(time="2026-01-01T00:00:00Z"),
                entry(time="2026-01-03T00:00:00Z"),
            ),
            ":9: the time .* is not after",
        ),
    ],
)
def test_wrong_prices_are_refused_with_their_line(tmp_path, text, says):
    path = tmp_path / "z.csv"
    path.write_text(text)
    with pytest.raises(MarketError, match=f"z.csv{says}"):
        read_prices(path)


def test_aws_gives_a_market_for_each_zone_and_the_newest_change_first(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        aws(
            entry("0.3", "2026-01-01T00:10:00Z"),
            entry("0.2", "2026-01-01T00:05:00Z", zone="b"),
            entry("0.1", "2026-01-01T00:00:00+00:00"),
        )
    )
    first, second = read_prices(path)
    assert (first.name, second.name) == ("a m", "b m")
    assert first.usd_per_hour.tolist() == [0.1, 0.3]
    assert first.span_s == 600


def test_capacity_has_a_meaning(tmp_path):
    path = tmp_path / "c.json"
    path.write_text('{"metadata": {"gap_seconds": 60}, "data": [0, 2, 1]}')
    assert is_capacity(path)
    assert read_capacity(path).counts.tolist() == [0, 2, 1]
    absent = read_capacity(path, meaning=Meaning.ABSENT)
    assert absent.counts.tolist() == [1, 0, 0]
    assert absent.gap_s == 60


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"data": [1]}', ":1: metadata.gap_seconds is None"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', ":1: metadata.gap_seconds"),
        ('{"metadata": {"gap_seconds": 1}, "data": []}', ":1: the market is empty"),
        ('{"metadata": {"gap_seconds": 1},\n"data": [1,\n2,\nnull]}', ":4: sample 3"),
        ('{"metadata": {"gap_seconds": 1},\n"data": [1, -2]}', ":2: sample 2 is -2"),
        ("[1]", ":1: the JSON is no object"),
    ],
)
def test_wrong_capacity_is_refused_with_its_line(tmp_path, text, says):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(MarketError, match=f"c.json{says}"):
        read_capacity(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MarketError, match=r"none\.csv: the file cannot be read"):
        read_prices(tmp_path / "none.csv")


def test_the_formats_name_each_key():
    for word in ("gap_seconds", "SpotPriceHistory", HEADER.strip()):
        assert word in FORMATS
