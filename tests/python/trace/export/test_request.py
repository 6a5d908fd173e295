# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json

import pytest
from torch.distributed import HashStore

from aikido_torch import trace
from aikido_torch.errors import ConfigError, RetryLaterError
from aikido_torch.trace import read
from aikido_torch.trace.export._request import ask, check_places, fetch, write
from aikido_torch.trace.record._spans import Kind
from aikido_torch.trace.record._trace_store import Board
from harness.traces import dump, span


@pytest.fixture
def board():
    """Board of a job of two ranks that have answered request 1."""
    made = Board(HashStore())
    made.join(2)
    assert made.request(3, 5) == 1
    for rank, data in dumps().items():
        made.give(1, rank, data)
    return made


def dumps():
    spans = [span(Kind.SECTION, 1, 2, name=2)]
    return {rank: dump(rank, spans, size=2).to_bytes() for rank in range(2)}


def test_dumps_are_cleared_once_they_are_written(board, tmp_path):
    output = tmp_path / "all.json"
    as_they_came = dict(reversed(dumps().items()))
    traces, notes = write(board, 1, as_they_came, output=output, folder=tmp_path)
    assert [trace.rank for trace in traces] == [0, 1]
    assert notes == []
    assert {e["pid"] for e in json.loads(output.read_text())["traceEvents"]} == {0, 1}
    assert [read(tmp_path / f"rank{r}.trace").rank for r in range(2)] == [0, 1]
    assert [board.dump_of(1, rank) for rank in range(2)] == [None, None]


def test_dumps_that_cannot_be_written_are_kept_and_fetched_later(board, tmp_path):
    nowhere = tmp_path / "no" / "all.json"
    with pytest.raises(ConfigError, match=r"cannot be written.*fetch --request 1"):
        write(board, 1, dumps(), output=nowhere, folder=tmp_path)
    output = tmp_path / "all.json"
    assert len(fetch(board, 1, output=output, folder=None)[0]) == 2
    assert output.exists()
    with pytest.raises(ConfigError, match="Nothing is left of request 1"):
        fetch(board, 1, output=output, folder=None)


def test_output_paths_are_checked_before_ranks_are_asked(tmp_path):
    check_places(tmp_path / "all.json", tmp_path)
    for output, folder in (
        (tmp_path / "no" / "all.json", None),
        (tmp_path / "all.json", tmp_path / "no"),
    ):
        with pytest.raises(ConfigError, match="cannot be written: No such file"):
            check_places(output, folder)
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_asks_does_not_wait_for_the_answers(tmp_path):
    store = HashStore()
    board = Board(store)
    board.join(2)
    output = tmp_path / "all.json"
    asked = ask(store, (3, 5), output, None, timeout_s=20)
    assert not asked.done()
    for rank, data in dumps().items():
        board.give(1, rank, data)
    assert [dump.rank for dump in asked.result(timeout=20)] == [0, 1]
    assert output.exists()


def test_an_unanswered_request_of_a_rank_raises_from_its_result():
    store = HashStore()
    Board(store).join(1)
    asked = ask(store, (3, 5), None, None, timeout_s=0.2)
    with pytest.raises(RetryLaterError, match="rank 0: it has not heard of it"):
        asked.result(timeout=20)


@pytest.mark.parametrize(
    ("steps", "more", "text"),
    [
        ((5, 3), {}, "the steps are 5 to 3"),
        ((-1,), {}, "the steps are -1 to -1"),
        ((1, 2), {"output": "/no/such/all.json"}, "cannot be written"),
        ((1, 2), {"folder": "/no/such"}, "cannot be written"),
        ((1, 2), {}, "call aikido_torch.trace.watch"),
    ],
)
def test_an_invalid_request_gives_a_clear_error(group_of_one, steps, more, text):
    with pytest.raises(ConfigError, match=text):
        trace.capture_steps(*steps, **more)
