# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Each call of torch.distributed once, for tensors of any device and strides."""

import torch
import torch.distributed as dist


def all_calls(rank, size, place):
    """Results of each collective, with tensors made by `place`."""

    def filled(number, count=6):
        return place(torch.arange(count, dtype=torch.float32) * (number + 1) + rank)

    def empty(count=6):
        return place(torch.full((count,), -1.0))

    out = []
    tensor = filled(0)
    dist.all_reduce(tensor)
    out.append(tensor)
    tensor = filled(1)
    dist.reduce(tensor, dst=1, op=dist.ReduceOp.MAX)
    out.append(tensor)
    tensor = filled(2)
    dist.broadcast(tensor, src=size - 1)
    out.append(tensor)
    gathered = [empty() for _ in range(size)]
    dist.all_gather(gathered, filled(3))
    out += gathered
    gathered = [empty() for _ in range(size)]
    dist.gather(filled(4), gathered if rank == 0 else None, dst=0)
    out += gathered
    tensor = empty()
    dist.scatter(tensor, [filled(r) for r in range(size)] if rank == 1 else None, src=1)
    out.append(tensor)
    tensor = empty()
    dist.reduce_scatter(tensor, [filled(r) for r in range(size)])
    out.append(tensor)
    gathered = [empty() for _ in range(size)]
    dist.all_to_all(gathered, [filled(r) for r in range(size)])
    out += gathered
    if rank == 0:
        dist.send(filled(7), 1)
    elif rank == 1:
        tensor = empty()
        dist.recv(tensor, 0)
        out.append(tensor)
    dist.barrier()
    return out


def flat_calls(size, rank, place):
    """The same for calls that take only contiguous tensors."""

    def filled(count):
        return place(torch.arange(count, dtype=torch.float32) + 10 * rank)

    whole = place(torch.full((4 * size,), -1.0))
    dist.all_gather_into_tensor(whole, filled(4))
    part = place(torch.full((4,), -1.0))
    dist.reduce_scatter_tensor(part, filled(4 * size))
    moved = place(torch.full((4 * size,), -1.0))
    dist.all_to_all_single(moved, filled(4 * size))
    return [whole, part, moved]
