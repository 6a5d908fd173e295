# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Starts N real ranks, one process each, and collects their return values.

```python
def program(rank, size):
    tensor = torch.ones(3) * rank
    dist.all_reduce(tensor)
    return tensor.tolist()


assert run_ranks(4, program) == [[6.0] * 3] * 4
```
"""

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import pickle
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import set_debug_level_from_env

from aikido_torch.options import Options

__all__ = ["RanksFailedError", "run_ranks"]

# The parent of all forked ranks imports those of these modules that we have imported.
_PRELOAD = (
    "aikido_torch",
    "numpy",
    "pytest",
    "torch.nn.parallel",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.distributed.algorithms.join",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
)
# Below the ports that Linux gives to outgoing connections.
_LISTEN_PORTS = range(20_000, 32_000)
# Seconds that the other ranks have to report after the first failure.
_GRACE_S = 3.0


class RanksFailedError(RuntimeError):
    """Some ranks raised, died or did not end in time.

    Attributes:
        failures: traceback by rank; a sentence for a rank that left no traceback.
    """

    def __init__(self, failures: dict[int, str]) -> None:
        self.failures = failures
        texts = [f"---- rank {rank}: {text}" for rank, text in failures.items()]
        super().__init__(
            f"ranks {', '.join(map(str, failures))} failed\n" + "\n".join(texts)
        )


@dataclass(frozen=True)
class _Setup:
    """What a rank needs to make its process group."""

    backend: str | None
    init_method: str
    options: Options | None
    group_timeout: timedelta
    env: Mapping[str, str]
    stack_file: str


@dataclass
class _Rank:
    """The parent's record of a rank."""

    process: ForkServerProcess
    pipe: Connection
    stack_file: Path
    value: Any = None
    failure: str | None = None
    has_ended: bool = field(default=False)


def run_ranks(
    size: int,
    program: Callable[..., Any],
    *args: object,
    backend: str | None = "aikido",
    options: Options | None = None,
    group_timeout: float = 30.0,
    rendezvous: Literal["file", "tcp"] = "file",
    env: Mapping[str, str] | None = None,
    deadline: float = 60.0,
    may_die: Collection[int] = (),
) -> list[Any]:
    """Runs `program(rank, size, *args)` in `size` processes and returns their results.

    The default group exists when the program starts and is destroyed after it, unless
    the program has done so itself.

    Args:
        size: number of ranks.
        program: a function that can be imported by name, as `multiprocessing` needs.
        args: further arguments of `program`.
        backend: backend of the default group; None makes no group.
        options: options of the aikido group.
        group_timeout: time-out of the default group, in seconds.
        rendezvous: "file" uses a file store, so no rank is special; "tcp" uses a store
            that rank 0 serves.
        env: variables to set in the ranks.
        deadline: seconds after which all ranks that still run are killed.
        may_die: ranks whose failure or death is part of the test; their value is None.

    Returns:
        The return value of the program on each rank.

    Raises:
        RanksFailedError: a rank failed, or still ran at the deadline. The text has the
            tracebacks and the stacks.
    """
    with tempfile.TemporaryDirectory(prefix="aikido-ranks-") as folder:
        setup = _Setup(
            backend=backend,
            init_method=_init_method(rendezvous, folder),
            options=options,
            group_timeout=timedelta(seconds=group_timeout),
            env=dict(env or {}),
            stack_file=f"{folder}/stack-",
        )
        ranks = [_start(rank, size, setup, program, args) for rank in range(size)]
        try:
            _collect(ranks, deadline, set(may_die))
        finally:
            for rank in ranks:
                rank.process.kill()
                rank.process.join()
                rank.pipe.close()
    failures = {
        i: rank.failure
        for i, rank in enumerate(ranks)
        if rank.failure is not None and i not in may_die
    }
    if failures:
        raise RanksFailedError(failures)
    return [rank.value for rank in ranks]


def _init_method(rendezvous: str, folder: str) -> str:
    if rendezvous == "file":
        return f"file://{folder}/store"
    return f"tcp://127.0.0.1:{_free_port()}"


def _free_port() -> int:
    """A port that is free on all addresses, outside of the ports of connections."""
    for port in random.SystemRandom().sample(_LISTEN_PORTS, len(_LISTEN_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise OSError(f"no port of {_LISTEN_PORTS} is free")


def _start(
    rank: int,
    size: int,
    setup: _Setup,
    program: Callable[..., Any],
    args: tuple[object, ...],
) -> _Rank:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in _PRELOAD if name in sys.modules])
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(
        target=_main, args=(rank, size, setup, program, args, sending), daemon=True
    )
    process.start()
    sending.close()
    return _Rank(process, receiving, Path(f"{setup.stack_file}{rank}"))


def _main(
    rank: int,
    size: int,
    setup: _Setup,
    program: Callable[..., Any],
    args: tuple[object, ...],
    pipe: Connection,
) -> None:
    """Main function of the process of one rank."""
    os.environ.update(setup.env)
    set_debug_level_from_env()  # torch read the old value before the fork
    # On SIGUSR1 the rank writes its stacks, which show where it hangs.
    stack_file = open(f"{setup.stack_file}{rank}", "w")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=stack_file)
    torch.set_num_threads(1)
    try:
        if setup.backend is not None:
            dist.init_process_group(
                setup.backend,
                init_method=setup.init_method,
                rank=rank,
                world_size=size,
                timeout=setup.group_timeout,
                pg_options=setup.options,
            )
        value = program(rank, size, *args)
        if setup.backend is not None and dist.is_initialized():
            dist.destroy_process_group()
        # As bytes: the pipe would put tensors into shared memory, which ends with this
        # process.
        pipe.send_bytes(pickle.dumps((value, None)))
    except BaseException:
        pipe.send_bytes(pickle.dumps((None, traceback.format_exc())))
        raise SystemExit(1) from None


def _collect(ranks: list[_Rank], deadline: float, may_die: set[int]) -> None:
    """Fills in values and failures until all ranks have ended or the time is over."""
    end = time.monotonic() + deadline
    why = f"still ran after the deadline of {deadline:g} s"
    while running := [rank for rank in ranks if not rank.has_ended]:
        left = end - time.monotonic()
        ready = multiprocessing.connection.wait(
            [rank.pipe for rank in running], timeout=max(0.0, left)
        )
        if not ready:
            _give_up(running, why)
            return
        for i, rank in enumerate(ranks):
            if rank.pipe not in ready:
                continue
            _read(rank)
            grace_end = time.monotonic() + _GRACE_S
            if rank.failure is not None and i not in may_die and grace_end < end:
                end = grace_end
                why = f"still ran {_GRACE_S:g} s after rank {i} had failed"


def _read(rank: _Rank) -> None:
    rank.has_ended = True
    try:
        rank.value, rank.failure = pickle.loads(rank.pipe.recv_bytes())
    except EOFError:
        rank.process.join()
        rank.failure = f"ended without a word, exit code {rank.process.exitcode}"


def _give_up(running: list[_Rank], why: str) -> None:
    for rank in running:
        if rank.process.pid is not None:
            os.kill(rank.process.pid, signal.SIGUSR1)
    time.sleep(0.5)
    for rank in running:
        stack = rank.stack_file.read_text() if rank.stack_file.exists() else ""
        rank.failure = f"{why}; it was in\n{stack}"
