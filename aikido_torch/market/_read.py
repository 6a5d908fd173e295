# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Readers of recorded markets: CSV, AWS price history, and samples of capacity.

A wrong file is refused with a sentence that begins with its path and line. Nothing is
repaired or left out in silence.
"""

import gzip
import json
import math
import re
from collections import defaultdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from aikido_torch.market._errors import MarketError
from aikido_torch.market._traces import CapacityTrace, PriceTrace

__all__ = ["FORMATS", "Meaning", "read_capacity", "read_prices"]

MAX_GAP_S = 14 * 86400.0
_CSV_HEADER = "unix_seconds,usd_per_hour"
_SAMPLE = re.compile(r"[\[,]\s*(?=[^\s\]])")

FORMATS = f"""\
Prices, CSV: the header is "{_CSV_HEADER}", then one change per line, oldest first.

Prices, AWS JSON: the output of
    aws ec2 describe-spot-price-history --instance-types c3.xlarge \\
        --product-descriptions Linux/UNIX --start-time 2026-01-01
with "SpotPriceHistory" and, in each entry, "AvailabilityZone", "InstanceType",
"SpotPrice" (USD per hour) and "Timestamp". Entries of a market are in order of time,
the newest or the oldest first.

Capacity, JSON: {{"metadata": {{"gap_seconds": 195}}, "data": [1, 1, 0, ...]}}, with one
sample every gap_seconds. --meaning count: a sample is the number of available machines.
--meaning absent: a sample other than 0 says that no machine is available.

A name that ends in .gz is decompressed.
"""


class Meaning(StrEnum):
    """Meaning of a sample of capacity; recorded sets exist with both."""

    COUNT = "count"
    ABSENT = "absent"


def read_prices(path: Path, *, max_gap_s: float = MAX_GAP_S) -> list[PriceTrace]:
    """The price paths of a CSV file (one market) or of an AWS JSON file (several).

    Args:
        max_gap_s: longest time between two changes of a market, in seconds.

    Raises:
        MarketError: the file is wrong; the text has its path and line.
    """
    text = _text_of(path)
    if text.lstrip().startswith("{"):
        return _aws(path, text, max_gap_s)
    return [_csv(path, text, max_gap_s)]


def is_capacity(path: Path) -> bool:
    """True if the file has samples of capacity, False if it has prices."""
    return '"gap_seconds"' in _text_of(path)[:4096]


def read_capacity(path: Path, *, meaning: Meaning = Meaning.COUNT) -> CapacityTrace:
    """The samples of a JSON file.

    Raises:
        MarketError: the file is wrong; the text has its path and line.
    """
    text = _text_of(path)
    content = _json(path, text)
    gap = content.get("metadata", {}).get("gap_seconds")
    if not isinstance(gap, int | float) or not gap > 0:
        raise MarketError(
            f"{path}:1: metadata.gap_seconds is {gap!r}; give the seconds between "
            "samples, above 0."
        )
    data = content.get("data")
    if not isinstance(data, list) or not data:
        raise MarketError(f'{path}:1: the market is empty; "data" has no samples.')
    for place, sample in enumerate(data):
        if not isinstance(sample, int) or isinstance(sample, bool) or sample < 0:
            raise MarketError(
                f"{path}:{_line_of_sample(text, place)}: sample {place + 1} is "
                f"{json.dumps(sample)}; a sample is a count of machines from 0. Fill "
                "gaps in the recording before you use it."
            )
    counts = np.array(data, dtype=np.int64)
    if meaning == Meaning.ABSENT:
        counts = (counts == 0).astype(np.int64)
    return CapacityTrace(name=_name_of(path), gap_s=float(gap), counts=counts)


def _text_of(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise MarketError(f"{path}: the file cannot be read: {error}.") from None


def _name_of(path: Path) -> str:
    return re.sub(r"(\.csv|\.json)?(\.gz)?$", "", path.name)


def _json(path: Path, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise MarketError(f"{path}:{error.lineno}: no JSON: {error.msg}.") from None
    if not isinstance(content, dict):
        raise MarketError(f"{path}:1: the JSON is no object; see fetch-format.")
    return content


def _line_of_sample(text: str, place: int) -> int:
    begin = text.index("[", text.index('"data"'))
    for number, match in enumerate(_SAMPLE.finditer(text, begin)):
        if number == place:
            return text.count("\n", 0, match.end()) + 1
    return 1


def _csv(path: Path, text: str, max_gap_s: float) -> PriceTrace:
    lines = text.splitlines()
    if not lines or lines[0].strip() != _CSV_HEADER:
        first = lines[0].strip() if lines else ""
        raise MarketError(
            f'{path}:1: the header is "{first}"; it has to be "{_CSV_HEADER}". Convert '
            "other units and currencies before."
        )
    changes: list[tuple[float, float, int]] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            time, price = (float(part) for part in line.split(","))
        except ValueError:
            raise MarketError(
                f'{path}:{number}: "{line}" is not a time and a price with a comma '
                "between them."
            ) from None
        changes.append((time, price, number))
    return _checked(path, _name_of(path), changes, max_gap_s)


def _checked(
    path: Path, name: str, changes: list[tuple[float, float, int]], max_gap_s: float
) -> PriceTrace:
    if not changes:
        raise MarketError(f"{path}:1: the market {name} is empty; it has no price.")
    before = -math.inf
    for time, price, line in changes:
        if not 0 <= price < math.inf:
            raise MarketError(
                f"{path}:{line}: the price is {price:g} USD per hour; a price is at "
                "least 0."
            )
        if not time > before:
            raise MarketError(
                f"{path}:{line}: the time {time:.0f} s is not after {before:.0f} s of "
                "the change before; sort the changes."
            )
        if math.isfinite(before) and time - before > max_gap_s:
            raise MarketError(
                f"{path}:{line}: {time - before:.0f} s without a change in {name}, "
                f"above {max_gap_s:.0f} s. If the price was constant, give a larger "
                "--max-gap; else split the file there."
            )
        before = time
    times, prices, _ = zip(*changes, strict=True)
    return PriceTrace(name=name, times_s=np.array(times), usd_per_hour=np.array(prices))


def _aws(path: Path, text: str, max_gap_s: float) -> list[PriceTrace]:
    if not isinstance(_json(path, text).get("SpotPriceHistory"), list):
        raise MarketError(
            f'{path}:1: the JSON has neither "SpotPriceHistory" nor '
            '"metadata.gap_seconds"; see fetch-format.'
        )
    decoder = json.JSONDecoder()
    place = text.index("[", text.index('"SpotPriceHistory"')) + 1
    found: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    while True:
        place += len(text[place:]) - len(text[place:].lstrip(" \t\r\n,"))
        if text[place] == "]":
            break
        line = text.count("\n", 0, place) + 1
        entry, place = decoder.raw_decode(text, place)
        name, time, price = _aws_entry(path, line, entry)
        found[name].append((time, price, line))
    if not found:
        raise MarketError(f"{path}:1: the market is empty; it has no price.")
    return [
        _checked(path, name, _oldest_first(changes), max_gap_s)
        for name, changes in found.items()
    ]


def _oldest_first(
    changes: list[tuple[float, float, int]],
) -> list[tuple[float, float, int]]:
    """Changes in order of time; AWS gives the newest first. A mixed order stays."""
    times = [time for time, _, _ in changes]
    return changes[::-1] if times == sorted(times, reverse=True) else changes


def _aws_entry(path: Path, line: int, entry: Any) -> tuple[str, float, float]:
    try:
        zone, kind = entry["AvailabilityZone"], entry["InstanceType"]
        system = entry.get("ProductDescription", "Linux/UNIX")
        price = float(entry["SpotPrice"])
        time = datetime.fromisoformat(entry["Timestamp"]).timestamp()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MarketError(
            f"{path}:{line}: an entry of SpotPriceHistory is wrong: {error}."
        ) from None
    currency = entry.get("Currency", "USD")
    if currency != "USD":
        raise MarketError(
            f"{path}:{line}: the currency is {currency}; prices are in USD. Convert "
            "them before."
        )
    name = f"{zone} {kind}" + ("" if system == "Linux/UNIX" else f" {system}")
    return name, time, price
