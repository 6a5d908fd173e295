# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A group of three in use, and a fourth process that attacks its ports."""

import contextlib
import os
import resource
import socket
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist

from aikido_torch import _backend
from aikido_torch.testing import run_ranks

ATTACKER = 3
HANDSHAKE_MS = 400
FLOOD = 1000
# Begin of a greeting of version 21; token, rank 1 of 3 and a text must follow.
GREETING = b"AIKIDO" + (21).to_bytes(2, "little") + (60).to_bytes(4, "little")
TEXTS = {
    "a request": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 20,
    "zeros": bytes(100_000),
    "a frame": b"AK\17\11" + bytes(60),
    "another version": b"AIKIDO\12\0" + bytes(52),
    "an unknown token": GREETING + bytes(32) + b"\1\0\0\0\3\0\0\0" + bytes(8),
    "too long": GREETING[:8] + b"\377" * 4 + bytes(100),
    "half a greeting": GREETING + bytes(10),
    "nothing": b"",
}


def reduce(repeats):
    """Median seconds of an allreduce; all results must be right."""
    times = []
    for _ in range(repeats):
        tensor = torch.full((20_000,), dist.get_rank() + 1.0)
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - start)
        assert tensor.unique().tolist() == [6.0]
    return statistics.median(times)


def allow_descriptors(count):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, most), most))


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)
    return path.read_text()


def publish(path, text=""):
    """Writes a file so that a waiting reader finds the complete text."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def attack(addresses):
    """Returns the number of connections to each port."""
    allow_descriptors(4096)
    connections = []

    def connect(address):
        connections.append(socket.create_connection(address, timeout=20))
        return connections[-1]

    for text in TEXTS.values():
        for address in addresses:
            # The group may cut the connection before all data is sent.
            with contextlib.suppress(ConnectionError):
                connect(address).sendall(text)
    slow = [connect(address) for address in addresses for _ in range(10)]
    for i in range(10):
        with contextlib.suppress(ConnectionError):
            for stranger in slow:
                stranger.sendall(GREETING[i : i + 1])
        time.sleep(HANDSHAKE_MS / 5000)
    for address in addresses:
        for _ in range(FLOOD):
            connect(address)
    for connection in connections:
        connection.close()
    for address in addresses:
        for _ in range(FLOOD):
            socket.create_connection(address, timeout=20).close()
    return len(TEXTS) + 10 + 2 * FLOOD


def defend(rank, folder):
    dist.init_process_group(
        "aikido", init_method=f"file://{folder}/store", rank=rank, world_size=3
    )
    reduce(50)
    alone = reduce(200)
    descriptors = len(os.listdir("/proc/self/fd"))
    (runtime,) = _backend._runtimes.values()
    publish(folder / f"address-{rank}", runtime.address)
    attacked, peak = [], 0
    is_over = torch.zeros(1)
    while is_over.item() == 0:  # all ranks agree on the end
        attacked.append(reduce(20))
        peak = max(peak, len(os.listdir("/proc/self/fd")))
        is_over.fill_(float((folder / "over").exists()))
        dist.all_reduce(is_over, op=dist.ReduceOp.MIN)
    expected = int((folder / "over").read_text())
    deadline = time.monotonic() + 10
    while runtime.num_strangers < expected and time.monotonic() < deadline:
        time.sleep(0.01)
    seen = {
        "strangers": runtime.num_strangers,
        "expected": expected,
        "alone_ms": alone * 1e3,
        "attacked_ms": statistics.median(attacked) * 1e3,
        "peak": peak - descriptors,
        "left": len(os.listdir("/proc/self/fd")) - descriptors,
    }
    reduce(1)
    dist.destroy_process_group()
    return seen


def besiege(rank, size, name):
    folder = Path(name)
    if rank != ATTACKER:
        return defend(rank, folder)
    addresses = []
    for target in range(3):
        host, port = wait_for(folder / f"address-{target}").split()
        addresses.append((host, int(port)))
    publish(folder / "over", str(attack(addresses)))
    return None


def test_a_group_works_while_a_foreign_process_attacks_its_ports(tmp_path):
    env = {"AIKIDO_TRANSPORT_HANDSHAKE_TIMEOUT_MS": str(HANDSHAKE_MS)}
    *members, _ = run_ranks(4, besiege, str(tmp_path), backend=None, env=env)
    for seen in members:
        print(seen)
        assert seen["strangers"] == seen["expected"]
        # The last 256 connections that have sent nothing, and one in accept().
        assert seen["peak"] <= 257
        assert seen["left"] == 0
        # The attacker uses processor time too.
        assert seen["attacked_ms"] < 4 * seen["alone_ms"] + 10
