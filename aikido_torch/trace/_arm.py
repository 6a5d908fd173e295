# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""From what ranks have left on the board to files."""

from collections.abc import Mapping
from pathlib import Path

from aikido_torch.errors import ConfigError
from aikido_torch.trace._chrome import write_chrome
from aikido_torch.trace._dump import Dump, check_writable, read, write_file
from aikido_torch.trace._store import Board

__all__ = ["check_places", "fetch", "write"]


def check_places(output: Path, folder: Path | None) -> None:
    """Raises ConfigError if one of them cannot be written: ranks were in vain then."""
    check_writable(output)
    if folder is not None:
        check_writable(_file_of(folder, 0))


def write(
    board: Board,
    number: int,
    found: Mapping[int, bytes],
    *,
    output: Path,
    folder: Path | None,
) -> tuple[list[Dump], list[str]]:
    """Writes what was found, and clears it from the board once all of it is written.

    Args:
        board: of the job.
        number: of the request.
        found: dumps by rank.
        output: for the traces as one.
        folder: for the dump of each rank; None writes none.

    Returns:
        The traces, and what is to be known of them.

    Raises:
        ConfigError: it cannot be written or read; then it stays on the board.
    """
    try:
        traces = [read(data, f"the dump of rank {r}") for r, data in found.items()]
        if folder is not None:
            for rank, data in found.items():
                write_file(_file_of(folder, rank), data)
        notes = write_chrome(output, traces)
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
