# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.straggler._waiting import Waiting


def waiting(operations=1000, in_results=0.9, seconds=60.0, of_wait_all=100.0):
    return Waiting.of(
        {
            "replayed_operations": operations,
            "replayed_bytes": 10_000,
            "replayed_bytes_in": int(10_000 * in_results),
            "replayed_us": int(seconds * 1e6),
            "replayed_wait_all_us": int(of_wait_all * 1e6),
            "operations": 5,
        }
    )


def test_a_gain_compares_contributions_per_second():
    assert waiting().gain == pytest.approx(0.9 * 100 / 60 - 1)
    assert waiting(in_results=1, seconds=100).gain == pytest.approx(0)


def test_the_line_shows_the_gain_of_skipping():
    assert waiting(seconds=68.7).line() == (
        "Skipping gained 31% against waiting for all, by the 1000 calls of which this "
        "rank closed a shard."
    )


def test_the_line_shows_what_waiting_would_have_given():
    line = waiting(in_results=0.9, seconds=93.6).line()
    assert line.startswith("Waiting would have been 4% faster, by the 1000 calls")
    assert line.endswith(": give WaitAll(), or a longer floor_ms.")


@pytest.mark.parametrize(
    "known",
    [
        waiting(operations=49),
        waiting(operations=0, in_results=0, seconds=0, of_wait_all=0),
        waiting(in_results=0.0),
        waiting(in_results=1.0, seconds=99.5),
        waiting(in_results=1.0, seconds=100.5),
    ],
)
def test_few_operations_or_a_small_difference_give_no_line(known):
    assert known.line() is None
