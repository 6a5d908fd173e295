# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runner of a program of this folder as ranks on this machine."""

import os
import signal
import socket
from collections.abc import Callable

from benchmarks.lab import Program
from benchmarks.lab.ranks import RankRun, Start, rank_env
from benchmarks.lab.script import Timeline
from benchmarks.launch import FOLDER, cleaning_up_on

HOST = "127.0.0.1"


def run_ranks(
    script: str,
    argument: str,
    *,
    num_ranks: int,
    limit_s: float,
    on_event: Callable[[dict], None],
) -> None:
    """Runs `script` on `num_ranks` ranks to its end, with the variables of torchrun.

    For the main thread. Raises RanksFailedError; leaves no process behind.
    """
    program = Program(FOLDER / script, (argument,))
    run = RankRun(
        Timeline(()),
        act=lambda step: None,
        script_from="start",
        on_event=lambda rank, event: on_event(event),
    )
    with cleaning_up_on(signal.SIGTERM), socket.socket() as kept:
        # Reserves the port, on which rank 0 may still listen because of SO_REUSEADDR.
        # Its store listens on all addresses, so the port must be free on each of them.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("", 0))
        address = (HOST, kept.getsockname()[1])
        starts = [
            Start(
                command=program,
                env=os.environ | rank_env(rank, [0] * num_ranks, address),
            )
            for rank in range(num_ranks)
        ]
        run.run(starts, deadline_s=limit_s, check=True)
