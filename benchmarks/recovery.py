# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Time until the other ranks learn that a rank was killed, and until they go on.

One rank kills itself (SIGKILL) during its allreduces. Time runs from there to the error
of the last survivor, and to the last survivor's next result: with aikido after
`reconfigure`, with Gloo after a new `init_process_group`. Gloo ranks that do not
exchange data with the dead rank in that call learn of the death by their time-out only
(here 2 s; 30 minutes by default).
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import torch
import torch.distributed as dist
import typer
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1]))

import aikido_torch
from aikido_torch.testing import run_ranks
from benchmarks import common

# All processes of a machine have the same clock.
now_s = time.monotonic

GLOO_TIMEOUT = timedelta(seconds=2)


def lose_one(
    rank: int, size: int, backend: str, folder: str, victim: int, calls: int
) -> dict[str, float] | None:
    """One death; the times that a survivor measured, by the machine's clock."""
    dist.init_process_group(
        backend,
        store=dist.FileStore(f"{folder}/first", size),
        rank=rank,
        world_size=size,
        timeout=GLOO_TIMEOUT if backend == "gloo" else timedelta(seconds=30),
        **({"enable_reconfigure": True} if backend == "aikido" else {}),
    )
    handles = [""] * size
    if backend == "aikido":
        store = dist.FileStore(f"{folder}/handles", size)
        store.set(f"{rank}", aikido_torch.reconfigure_handle())
        handles = [store.get(f"{r}").decode() for r in range(size)]
        aikido_torch.reconfigure(1, handles)
    tensor = torch.ones(16 * 1024)
    for _ in range(calls):
        dist.all_reduce(tensor.fill_(1.0))
    if rank == victim:
        Path(folder, "killed_at").write_text(repr(now_s()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            dist.all_reduce(tensor.fill_(1.0))
    except RuntimeError:
        known_at = now_s()
    survivors = [r for r in range(size) if r != victim]
    if backend == "aikido":
        aikido_torch.reconfigure(2, [handles[r] for r in survivors])
    else:
        dist.destroy_process_group()
        dist.init_process_group(
            backend,
            store=dist.FileStore(f"{folder}/second", size - 1),
            rank=survivors.index(rank),
            world_size=size - 1,
        )
    dist.all_reduce(tensor.fill_(1.0))
    again_at = now_s()
    if tensor[0].item() != size - 1:
        raise RuntimeError(f"the survivors' sum is {tensor[0].item()}, not {size - 1}")
    killed_at = float(Path(folder, "killed_at").read_text())
    return {"known": known_at - killed_at, "again": again_at - killed_at}


def main(
    ranks: Annotated[int, typer.Option(min=3, help="Number of ranks.")] = 4,
    deaths: Annotated[int, typer.Option(min=1, help="Deaths per backend.")] = 10,
    json: common.JsonPath = None,
) -> None:
    """Kills one rank, several times, with aikido and with Gloo."""
    if not hasattr(dist.ProcessGroup, "supports_reconfigure"):
        raise SystemExit(
            "torch 2.14 or newer is needed: older ones cannot reconfigure."
        )
    seen: dict[tuple[str, str], list[float]] = {}
    for i in track(
        range(deaths), description="deaths", disable=not sys.stderr.isatty()
    ):
        for backend in ("aikido", "gloo"):
            with tempfile.TemporaryDirectory() as folder:
                victim = i % ranks
                ended = run_ranks(
                    ranks,
                    lose_one,
                    backend,
                    folder,
                    victim,
                    20 + 7 * i,
                    backend=None,
                    may_die={victim},
                    env={"TORCH_FR_BUFFER_SIZE": "0"},
                )
            survivors = [e for e in ended if e is not None]
            for what in ("known", "again"):
                worst = max(e[what] for e in survivors) * 1e3
                seen.setdefault((backend, what), []).append(worst)
    results = [
        common.Result.judge(
            f"kill -9 to {text}, last survivor, {name} of {deaths}",
            unit="ms",
            value=pick(seen["aikido", what]),
            reference=pick(seen["gloo", what]),
            bar=None,
        )
        for what, text in (("known", "its error"), ("again", "its next result"))
        for name, pick in (("median", statistics.median), ("worst", max))
    ]
    common.report(results, json)


if __name__ == "__main__":
    typer.run(main)
