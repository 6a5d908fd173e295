# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Instructions of a healthy training step with and without `register(check="warn")`.

The training is that of checks.py, with a smaller model. Callgrind counts all threads of
each rank in 96 steps, which have one digest. The ranks are forked from one process that
has imported torch, because that import takes a minute under callgrind. Waiting takes
instructions too, so two runs without checks differ by about 0.1 %.
"""

import ctypes
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import typer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common, programs, torch_library
from benchmarks.instructions import NotCountedError

STEPS = 96  # 12 looks of the audit, and one digest
WARM_UP = 24
BAR = 1.005
SOURCE = Path(__file__).with_name("callgrind_window.cpp")
CHECKS = ("off", "warn")


def build_window() -> Path:
    """Compiles the two functions that switch callgrind on and off."""
    return torch_library.build("callgrind_window", [SOURCE])


def counts_of(folder: Path) -> dict[tuple[str, int], int]:
    """Instructions by check and rank, of the files that callgrind has written.

    The line "summary" misses threads that have ended, such as those of digests. The
    line "totals" is the sum of all costs in the file.
    """
    found = {}
    for path in folder.glob("counts.*"):
        text = path.read_text(errors="replace")
        name = re.search(r"^desc: Trigger: Client Request: (\w+) (\d+)$", text, re.M)
        total = re.search(r"^totals: (\d+)", text, re.M)
        if name is not None and total is not None and name[1] in CHECKS:
            found[name[1], int(name[2])] = int(total[1])
    return found


def train(rank: int, size: int, meeting: str, window: ctypes.CDLL, sizes: list[int]):
    """One rank: a training with each check, counted after its first steps."""
    import torch
    import torch.distributed as dist

    from benchmarks.checks import Training

    torch.set_num_threads(1)
    dist.init_process_group(
        "aikido", init_method=f"file://{meeting}", rank=rank, world_size=size
    )
    # Work that a process does once falls into the first few steps.
    for name, check, steps in (("first", "off", 8), *((c, c, STEPS) for c in CHECKS)):
        training = Training(*sizes, check)
        training.run(WARM_UP)
        dist.barrier()
        gc.freeze()  # a collection over all objects of torch is no part of a step
        window.start()
        training.run(steps)
        window.stop(f"{name} {rank}".encode())
        gc.unfreeze()
        training.handle.close()
        del training
        gc.collect()  # the next model is to be the only one
    dist.destroy_process_group()


def fork_ranks(arguments: list[str]) -> int:
    """Under callgrind: trains on ranks that are forked from this process."""
    import torch._dynamo  # noqa: F401  the optimizers import it

    import aikido_torch  # noqa: F401

    library, folder, *numbers = arguments
    size, *sizes = map(int, numbers)
    window = ctypes.CDLL(library)
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                train(rank, size, f"{folder}/meeting", window, sizes)
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        pids.append(pid)
    return max(os.waitpid(pid, 0)[1] for pid in pids)


def count(size: int, width: int, layers: int) -> dict[tuple[str, int], int]:
    """Instructions in STEPS steps, by check and rank."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NotCountedError("There is no valgrind here.")
    library = build_window()
    with tempfile.TemporaryDirectory(prefix="aikido-counts-") as folder:
        command = [valgrind, "--tool=callgrind", "--instr-atstart=no"]
        # Else a thread that looks for messages keeps the others from running.
        command += ["--fair-sched=yes", f"--callgrind-out-file={folder}/counts.%p"]
        command += [sys.executable, __file__, "--ranks-of", str(library), folder]
        done = subprocess.run(
            [*command, str(size), str(width), str(layers)],
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        counts = counts_of(Path(folder))
    if done.returncode != 0 or len(counts) != len(CHECKS) * size:
        raise NotCountedError(f"The training failed:\n{done.stderr[-4000:]}")
    return counts


def judged(counts: dict[tuple[str, int], int], title: str) -> list[common.Result]:
    """A row for each rank."""
    ranks = sorted({rank for _, rank in counts})
    return [
        common.Result.judge(
            f"healthy step with checks, {title}, rank {rank}",
            unit="instructions",
            value=counts["warn", rank] / STEPS,
            reference=counts["off", rank] / STEPS,
            bar=BAR,
        )
        for rank in ranks
    ]


def main(
    ranks: int = 2, width: int = 256, layers: int = 4, json_file: common.JsonPath = None
) -> None:
    """Counts the instructions of a healthy step with checks; takes some minutes."""
    try:
        counts = count(ranks, width, layers)
    except (NotCountedError, programs.BuildError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    common.report(judged(counts, f"{layers} layers of {width}"), json_file)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ranks-of"]:
        raise SystemExit(fork_ranks(sys.argv[2:]))
    typer.run(main)
