# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Times and counts from the observations of the ranks of a block. Pure."""

import collections
import itertools
import statistics
from collections.abc import Iterable, Sequence

from benchmarks.common import Samples
from benchmarks.straggler_cases.case import CaseError
from benchmarks.straggler_cases.runs import Record


def op_times(
    record: Record,
    *,
    begin: int | None = None,
    end: int | None = None,
    ranks: Iterable[int] | None = None,
) -> list[float]:
    """ms of each operation: from the last healthy rank's start to the last one's end.

    Args:
        record: the block.
        begin: first operation; None: the first measured one.
        end: operation after the last; None: all.
        ranks: ranks that count instead of the healthy ones.
    """
    block = record.block
    counted = [record.by_rank[rank] for rank in ranks or block.counted()]
    begin = block.warm_up if begin is None else begin
    done = min(len(rank["ends"]) for rank in counted)
    return [
        1e3
        * (max(r["ends"][op] for r in counted) - max(r["begins"][op] for r in counted))
        for op in range(begin, min(done, block.ops if end is None else end))
    ]


def named(records: Iterable[Record], name: str) -> list[Record]:
    found = [record for record in records if record.block.name == name]
    if not found:
        raise CaseError(f"no block is named {name!r}")
    return found


def samples(records: Iterable[Record], name: str) -> Samples:
    """The operations of all blocks of that name."""
    return Samples(tuple(t for r in named(records, name) for t in op_times(r)))


def step_ends(record: Record) -> list[float]:
    """Time when each step was done, that is done by most ranks.

    For blocks in which any rank may be late, so that no single rank is representative.
    """
    ranks = [record.by_rank[rank] for rank in record.block.members()]
    needed = len(ranks) // 2
    return [
        sorted(rank["ends"][op] for rank in ranks)[needed]
        for op in range(record.block.ops)
    ]


def step_times(record: Record) -> list[float]:
    """ms from one step to the next, without the first ones."""
    pairs = itertools.pairwise(step_ends(record))
    return [1e3 * (later - earlier) for earlier, later in pairs][record.block.warm_up :]


def worst_steps(
    record: Record, moments: Iterable[float], within_s: float
) -> list[float]:
    """For each moment, ms of the longest step that ran within `within_s` after it.

    Moments after the last step have none.
    """
    pairs = list(itertools.pairwise(step_ends(record)))
    found = []
    for moment in moments:
        near = [
            1e3 * (later - earlier)
            for earlier, later in pairs
            if earlier <= moment + within_s and later >= moment
        ]
        if near:
            found.append(max(near))
    return found


def num_skipped(record: Record, *, begin: int = 0) -> int:
    """Operations from `begin` on in which a rank was skipped, as seen by any rank."""
    skipped = {
        int(op)
        for rank in record.by_rank.values()
        for op in rank["skipped"]
        if int(op) >= begin
    }
    return len(skipped)


def skips_by_rank(records: Iterable[Record]) -> dict[int, int]:
    """Number of skips of each rank after the warm-up, as seen by the first rank."""
    count: collections.Counter[int] = collections.Counter()
    for record in records:
        first = record.by_rank[record.block.counted()[0]]
        for op, skipped in first["skipped"].items():
            if int(op) >= record.block.warm_up:
                count.update(skipped)
    return dict(sorted(count.items()))


def reasons(records: Iterable[Record]) -> dict[str, int]:
    """Reasons why operations ended, over all blocks, as seen by the first healthy
    rank.
    """
    count: collections.Counter[str] = collections.Counter()
    for record in records:
        count.update(record.by_rank[record.block.counted()[0]]["reasons"])
    return dict(count)


def evidence(records: Sequence[Record]) -> str:
    """Text for a row: number of skips by rank, and reasons of ends."""
    skips = " ".join(f"{rank}:{n}" for rank, n in skips_by_rank(records).items())
    why = (f"{name or 'strict'} {n}" for name, n in reasons(records).items())
    return f"skips {skips or 'none'}; {', '.join(why)}"


def check_bits(records: Iterable[Record]) -> None:
    """Raises CaseError if two ranks of a block had different bits in a result."""
    for record in records:
        sums = {
            rank: seen["sums"]
            for rank, seen in record.by_rank.items()
            if rank in record.block.members() and seen["error"] is None
        }
        for rank, own in sums.items():
            first, other = next(iter(sums.items()))
            if own != other:
                raise CaseError(
                    f"ranks {first} and {rank} have different bits in "
                    f"'{record.block.name}'"
                )


def excess(times: Sequence[float], healthy: float) -> float:
    """Sum of the times above the healthy time; shorter times do not compensate."""
    return sum(max(0.0, time - healthy) for time in times)


def position(record: Record, rank: int, moment: float) -> int:
    """Number of calls of that rank that had ended by then."""
    return sum(end <= moment for end in record.by_rank[rank]["ends"])


def moment_of(record: Record, do: str, *, last: bool = False) -> float:
    """Time of the first (or last) action of that kind."""
    done = [moment for moment, action in record.done if action.do == do]
    if not done:
        raise CaseError(f"'{do}' was not done in '{record.block.name}'")
    return done[-1 if last else 0]


def median(values: Sequence[float]) -> float:
    if not values:
        raise CaseError("no operation was measured")
    return statistics.median(values)


def mean(values: Sequence[float]) -> float:
    if not values:
        raise CaseError("no operation was measured")
    return statistics.fmean(values)
