# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Hosts of the ranks and message times between them, for the choice of algorithms.

The algorithm "two_level" needs the hosts; "auto" needs both.
"""

import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

from aikido_torch import _C, _tags

__all__ = ["find_hosts", "link_of", "measure", "pairs_of"]

_TAG = _tags.LINKS.tag(0)
# The two larger sizes wait for the receiver. Their difference does not contain that
# wait.
SMALL, MIDDLE, LARGE = 8, 128 << 10, 1 << 20
_REPEATS = {SMALL: 15, MIDDLE: 5, LARGE: 5}


def link_of(
    one_way_s: dict[int, float], all_reduce_s: float, size: int
) -> tuple[float, float, float]:
    """Alpha, beta and the sender's time per message, by the cost formula of direct.

    Args:
        one_way_s: seconds of messages of SMALL, MIDDLE and LARGE bytes.
        all_reduce_s: seconds of a direct all_reduce of SMALL bytes in a group of
            `size`.
    """
    alpha = one_way_s[SMALL]
    beta = max(0.0, (one_way_s[LARGE] - one_way_s[MIDDLE]) / (LARGE - MIDDLE))
    if size == 2:
        return alpha, beta, 0.0
    message = (all_reduce_s / 2 - alpha) / (size - 2)
    return alpha, beta, min(max(0.0, message), alpha)


def find_hosts(backend: _C.AikidoBackend, timeout: timedelta) -> list[int]:
    """Finds the ranks that share a host, and gives the result to the backend.

    Ranks with the same address share a host. All ranks call this at the same point.

    Returns:
        The host of each rank. Hosts are numbered in the order of their first ranks.
    """
    rank, size = backend.place
    told = torch.zeros(size, dtype=torch.int64)
    told[rank] = int.from_bytes(hashlib.sha256(backend.host.encode()).digest()[:7])
    _all_reduce(backend, told, timeout)
    numbers: dict[int, int] = {}
    hosts = [numbers.setdefault(address, len(numbers)) for address in told.tolist()]
    backend.set_hosts(hosts)
    return hosts


def pairs_of(hosts: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """A pair of ranks on different hosts, and a pair of ranks on one host.

    If one of the pairs does not exist, the other pair is returned twice. Requires: at
    least two ranks.
    """
    remote = next(((0, r) for r, host in enumerate(hosts) if host != hosts[0]), None)
    local = None
    first_on: dict[int, int] = {}
    for r, host in enumerate(hosts):
        if host in first_on:
            local = first_on[host], r
            break
        first_on[host] = r
    one = remote or local
    if one is None:
        raise ValueError(f"{len(hosts)} ranks are no pair")
    return one, local or one


def measure(
    backend: _C.AikidoBackend, hosts: Sequence[int], timeout: timedelta
) -> None:
    """Measures message times and gives them to the backend.

    All ranks call this at the same point. All use the figures of one rank of each pair,
    so that they choose the same algorithms.

    Args:
        hosts: of each rank.
    """
    rank, size = backend.place
    if size == 1:
        return
    remote, local = pairs_of(hosts)
    one_way_s = {
        pair: {n: _one_way(backend, pair, n, timeout) for n in _REPEATS}
        for pair in dict.fromkeys((remote, local))
        if rank in pair
    }
    small = torch.zeros(SMALL // 8, dtype=torch.float64)
    all_reduce_s = _median(
        _REPEATS[SMALL], lambda: _all_reduce(backend, small, timeout)
    )
    said = torch.zeros(2, 3, dtype=torch.float64)
    for row, pair in enumerate((remote, local)):
        if rank == pair[0]:
            found = link_of(one_way_s[pair], all_reduce_s, size)
            said[row] = torch.tensor(found, dtype=said.dtype)
    _all_reduce(backend, said, timeout)
    (alpha, beta, message), (local_alpha, local_beta, _) = said.tolist()
    backend.set_link(
        _C.LinkCost(alpha_s=alpha, beta_s=beta),
        message,
        _C.LinkCost(alpha_s=local_alpha, beta_s=local_beta),
    )


def _one_way(
    backend: _C.AikidoBackend,
    pair: tuple[int, int],
    num_bytes: int,
    timeout: timedelta,
) -> float:
    """Half of the time of a message and its answer between two ranks."""
    tensor = torch.zeros(num_bytes, dtype=torch.uint8)
    rank, _ = backend.place
    other = sum(pair) - rank

    def send() -> None:
        backend.send_message(tensor, other, _TAG, None, timeout).wait()

    def receive() -> None:
        backend.receive_message(tensor, other, _TAG).wait()

    first, second = (send, receive) if rank == pair[0] else (receive, send)

    def there_and_back() -> None:
        first()
        second()

    return _median(_REPEATS[num_bytes], there_and_back) / 2


def _all_reduce(
    backend: _C.AikidoBackend, tensor: torch.Tensor, timeout: timedelta
) -> None:
    strict = _C.PolicyOptions.wait_all(rebalance=False)
    op = dist.ReduceOp(dist.ReduceOp.SUM)
    backend.all_reduce(tensor, op, strict, None, timeout).wait()


def _median(repeats: int, run: Callable[[], None]) -> float:
    """Median in seconds; the first run does not count."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
