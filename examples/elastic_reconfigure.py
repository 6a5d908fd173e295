# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Survives the death of a rank without a restart.

The program starts its four ranks itself: torchrun ends all ranks when one dies. Rank 3
kills itself in step 20. The others connect again with `reconfigure`, and train on.

Run: python examples/elastic_reconfigure.py

Expected output:

    step 20: 3 of 4 ranks are left
    done: 40 steps, 3 ranks, equal parameters: True
"""

import multiprocessing
import os
import signal
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch.errors import PeerLostError

RANKS, STEPS = 4, 40


# begin: loop
def train(rank: int, store: dist.Store) -> None:
    weight, step, uuid = torch.zeros(8), 0, 1
    handles = handles_of(range(RANKS), rank, store)
    aikido_torch.reconfigure(uuid, handles)  # the order of the handles is the ranks
    while step < STEPS:
        if rank == 3 and step == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        gradient = torch.full((8,), 1.0 + step)
        try:
            dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
        except PeerLostError as error:  # a rank died: repeat this step without it
            handles = [h for i, h in enumerate(handles) if i != error.rank]
            uuid += 1
            aikido_torch.reconfigure(uuid, handles)
            if dist.get_rank() == 0:
                print(f"step {step}: {len(handles)} of {RANKS} ranks are left")
            continue
        weight -= 0.1 * gradient
        step += 1
    # end: loop
    others = [torch.empty_like(weight) for _ in handles]
    dist.all_gather(others, weight)
    if dist.get_rank() == 0:
        is_equal = all(torch.equal(weight, other) for other in others)
        print(f"done: {step} steps, {len(handles)} ranks, equal parameters: {is_equal}")
    dist.destroy_process_group()


def handles_of(ranks: range, rank: int, store: dist.Store) -> list[str]:
    """The handles of all ranks, in their order; each rank writes its own."""
    store.set(f"handle/{rank}", aikido_torch.reconfigure_handle())
    return [store.get(f"handle/{other}").decode() for other in ranks]


def main(rank: int, folder: str) -> None:
    store, limit = dist.HashStore(), timedelta(seconds=30)  # begins as a group of one
    dist.init_process_group("aikido", store=store, rank=0, world_size=1, timeout=limit)
    train(rank, dist.FileStore(f"{folder}/store", RANKS))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["aikido_torch"])  # imports torch once for all
        ranks = [context.Process(target=main, args=(i, folder)) for i in range(RANKS)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
