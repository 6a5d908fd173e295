# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Requests to all ranks for a trace of given steps, and output of the traces."""

import atexit
import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from torch.distributed.distributed_c10d import Store, _get_default_store

from aikido_torch._backend import backend_of
from aikido_torch.errors import ConfigError
from aikido_torch.trace.export._chrome import write_chrome
from aikido_torch.trace.record._dump import (
    Dump,
    check_together,
    check_writable,
    read,
    write_file,
)
from aikido_torch.trace.record._trace_store import Board, collect, own_connection

__all__ = ["ask", "capture_steps", "check_places", "fetch", "write"]


def capture_steps(
    first: int,
    last: int | None = None,
    *,
    output: str | Path | None = None,
    folder: str | Path | None = None,
    timeout_s: float = 600.0,
) -> "Future[list[Dump]]":
    """Traces given steps on all ranks, requested by any one of them.

    All ranks must have called `watch`. The call returns at once, and a thread of this
    rank waits for the traces: do not wait for the result before this rank has done
    these steps itself. The step before is traced too, because verdicts on the first
    step need its end. Problems of the traces, such as a missing rank, are warnings.

    Args:
        first: first step to trace. It should begin more than a second from now;
            otherwise a rank may read the request too late and begin later.
        last: last step to trace; None is the first.
        output: file for ui.perfetto.dev; None writes none.
        folder: folder for the trace of each rank, `rank0.trace` and so on; None writes
            none.
        timeout_s: seconds until all ranks must have done the steps.

    Returns:
        A future with the traces by rank, after they were received and written. If no
        trace arrives, it has a RetryLaterError.

    Raises:
        ConfigError: there is no aikido group, no rank has called `watch`, a file cannot
            be written, or the steps are invalid.
    """
    backend_of(None)
    last = first if last is None else last
    if not 0 <= first <= last:
        raise ConfigError(
            f"capture_steps: the steps are {first} to {last}; give the first and the "
            "last, such as 100 and 105."
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
    """Does the work of `capture_steps` for any store.

    The thread has its own connection to the store.
    """
    board = Board(own_connection(store))
    board.num_ranks()  # raises if no rank listens
    result: Future[list[Dump]] = Future()
    ended = threading.Event()

    def run() -> None:
        try:
            found, notes, number = collect(
                board, *steps, timeout_s=timeout_s, ended=ended
            )
            traces, more = write(board, number, found, output=output, folder=folder)
            for note in notes + more:
                warnings.warn(f"trace.capture_steps: {note}", stacklevel=1)
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
    """Raises ConfigError if a path cannot be written, before ranks trace in vain."""
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
    """Writes the traces, and then removes them from the board.

    Args:
        board: board of the job.
        number: number of the request.
        found: traces by rank, as bytes.
        output: file for all traces together; None writes none.
        folder: folder for the trace of each rank; None writes none.

    Returns:
        The traces by rank, and sentences about their problems.

    Raises:
        ConfigError: a trace cannot be written or read. Then all stay on the board.
    """
    try:
        # Sorted by rank, because the order of arrival is random.
        in_order = sorted(found.items())
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
    """Writes the traces that an earlier request has left on the board.

    Raises:
        ConfigError: nothing is left of it, or as for `write`.
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
