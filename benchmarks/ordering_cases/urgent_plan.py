# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One turn of the ranks: plain values, no torch, equal for all ranks."""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass

PLAN_FILE = "plan.json"  # in the folder of the ranks
NUM_BULK = 8
BULK_BYTES = 2_000_000
URGENT_BYTES = 250_000


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Bulk allreduces at once, and a later allreduce that may be urgent."""

    name: str
    backend: str = "aikido"  # or "gloo"
    algorithm: str = ""  # algorithm of the group; "" is its default
    num_bulk: int = 0
    bulk_bytes: int = BULK_BYTES
    urgent_bytes: int = URGENT_BYTES  # 0: no such allreduce
    priority: int = 0  # priority of the later allreduce; bulk has 0
    after_s: float = 0.0  # seconds from bulk to the later allreduce
    settle_s: float = 0.3  # seconds of silence before the turn


def to_json(turns: Iterable[Turn]) -> str:
    return json.dumps([dataclasses.asdict(turn) for turn in turns])


def from_json(text: str) -> list[Turn]:
    return [Turn(**row) for row in json.loads(text)]


def estimate_s(turns: Iterable[Turn], *, mbit: float) -> float:
    """Rough estimate for the deadline of the ranks."""
    seconds_per_byte = 2 * 8e-6 / mbit
    return 40 + sum(
        turn.settle_s
        + 0.1
        + seconds_per_byte * (turn.num_bulk * turn.bulk_bytes + turn.urgent_bytes)
        for turn in turns
    )
