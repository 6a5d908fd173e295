# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Asks all ranks for a trace of named steps, and writes what they give."""

import atexit
import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from torch.distributed.distributed_c10d import Store, _get_default_store

from aikido_torch._backend import backend_of
from aikido_torch.errors import ConfigError
from aikido_torch.trace._chrome import write_chrome
from aikido_torch.trace._dump import (
    Dump,
    check_together,
    check_writable,
    read,
    write_file,
)
from aikido_torch.trace._store import Board, collect, own_connection

__all__ = ["arm", "ask", "check_places", "fetch", "write"]


def arm(
    first: int,
    last: int | None = None,
    *,
    output: str | Path | None = None,
    folder: str | Path | None = None,
    timeout_s: float = 600.0,
) -> "Future[list[Dump]]":
    """Traces named steps on all ranks, at the word of any one of them.

    All have called `watch`. It returns at once, and a thread of this rank waits for the
    others: do not wait for the result before this rank has done these steps itself.
    The step before is traced too: verdicts on the first need to know its end. What is
    to be known of the traces, such as a rank that is missing, are warnings.

    Args:
        first: step to be traced; one that comes later than in a second, or a rank may
            hear of it too late and begins later.
        last: step to be traced; None is the first.
        output: file for ui.perfetto.dev; None writes none.
        folder: for the dump of each rank, `rank0.trace` and so on; None writes none.
        timeout_s: for all ranks to be through.

    Returns:
        The traces, by rank, once they are there and written; or the error, a
        RetryLaterError where no trace came.

    Raises:
        ConfigError: there is no aikido group, nobody has called `watch`, a file cannot
            be written, or these are no steps.
    """
    backend_of(None)
    last = first if last is None else last
    if not 0 <= first <= last:
        raise ConfigError(
            f"arm: the steps are {first} to {last}; give the first and the last, such "
            "as 100 and 105."
        )
    places = [None if place is None else Path(place) for place in (output, folder)]
    check_places(*places)
    return ask(_get_default_store(), (first, last), *places, timeout_s=timeout_s)


def ask(
    store: Store,
    steps: tuple[int, int],
    output: Path | None,
    folder: Path | None,
    *,
    timeout_s: float,
) -> "Future[list[Dump]]":
    """The same for any store; the thread has its own connection to it."""
    board = Board(own_connection(store))
    board.num_ranks()  # whether anybody listens
    result: Future[list[Dump]] = Future()
    ended = threading.Event()

    def run() -> None:
        try:
            found, notes, number = collect(
                board, *steps, timeout_s=timeout_s, ended=ended
            )
            traces, more = write(board, number, found, output=output, folder=folder)
            for note in notes + more:
                warnings.warn(f"trace.arm: {note}", stacklevel=1)
            result.set_result(traces)
        except Exception as error:
            result.set_exception(error)
        finally:
            atexit.unregister(end)

    thread = threading.Thread(target=run, name="aikido-arm", daemon=True)

    def end() -> None:
        ended.set()
        thread.join(timeout=2.0)

    atexit.register(end)
    thread.start()
    return result


def check_places(output: Path | None, folder: Path | None) -> None:
    """Raises ConfigError if one of them cannot be written: ranks were in vain then."""
    if output is not None:
        check_writable(output)
    if folder is not None:
        check_writable(_file_of(folder, 0))


def write(
    board: Board,
    number: int,
    found: Mapping[int, bytes],
    *,
    output: Path | None,
    folder: Path | None,
) -> tuple[list[Dump], list[str]]:
    """Writes what was found, and clears it from the board once all of it is written.

    Args:
        board: of the job.
        number: of the request.
        found: dumps by rank.
        output: for the traces as one; None writes none.
        folder: for the dump of each rank; None writes none.

    Returns:
        The traces, by rank, and what is to be known of them.

    Raises:
        ConfigError: it cannot be written or read; then it stays on the board.
    """
    try:
        in_order = sorted(found.items())  # not as they have come
        traces = [read(data, f"the dump of rank {rank}") for rank, data in in_order]
        if folder is not None:
            for rank, data in found.items():
                write_file(_file_of(folder, rank), data)
        notes = (
            check_together(traces) if output is None else write_chrome(output, traces)
        )
    except ConfigError as error:
        raise ConfigError(
            f"{error} The traces stay with the job: get them by "
            f"'python -m aikido_torch.trace fetch --request {number}'."
        ) from error
    for rank in found:
        board.clear(number, rank)
    return traces, notes


def fetch(
    board: Board, number: int, *, output: Path, folder: Path | None
) -> tuple[list[Dump], list[str]]:
    """The same with what a former request has left.

    Raises:
        ConfigError: nothing of it is there, or as for `write`.
    """
    check_places(output, folder)
    ranks = range(board.num_ranks())
    given = {rank: board.dump_of(number, rank) for rank in ranks}
    found = {rank: data for rank, data in given.items() if data is not None}
    if not found:
        raise ConfigError(
            f"Nothing is left of request {number}: it was written and cleared, or it "
            "never was; ask for steps with 'arm'."
        )
    return write(board, number, found, output=output, folder=folder)


def _file_of(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.trace"
