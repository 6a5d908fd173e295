# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What a message between ranks takes, measured for collectives_algorithm="auto"."""

import statistics
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from aikido_torch import _C

__all__ = ["link_of", "measure"]

_TAG = 0
# Both larger ones wait for their receiver: what that takes is in neither difference.
SMALL, MIDDLE, LARGE = 8, 128 << 10, 1 << 20
_REPEATS = {SMALL: 15, MIDDLE: 5, LARGE: 5}


def link_of(
    one_way_s: dict[int, float], all_reduce_s: float, size: int
) -> tuple[float, float, float]:
    """Alpha, beta and what a sender is busy with a message, by the formula of direct.

    Args:
        one_way_s: of messages of SMALL, MIDDLE and LARGE bytes.
        all_reduce_s: of a direct all_reduce of SMALL bytes in a group of `size`.
    """
    alpha = one_way_s[SMALL]
    beta = max(0.0, (one_way_s[LARGE] - one_way_s[MIDDLE]) / (LARGE - MIDDLE))
    if size == 2:
        return alpha, beta, 0.0
    message = (all_reduce_s / 2 - alpha) / (size - 2)
    return alpha, beta, min(max(0.0, message), alpha)


def measure(backend: _C.AikidoBackend, timeout: timedelta) -> None:
    """Tells the backend what ranks 0 and 1 find; all ranks call it at the same place.

    What rank 0 says counts on all of them, so that they choose alike.
    """
    rank, size = backend.place
    if size == 1:
        return
    one_way_s = {n: _one_way(backend, n, timeout) for n in _REPEATS} if rank < 2 else {}
    small = torch.zeros(SMALL // 8, dtype=torch.float64)
    all_reduce_s = _median(
        _REPEATS[SMALL], lambda: _all_reduce(backend, small, timeout)
    )
    said = torch.zeros(3, dtype=torch.float64)
    if rank == 0:
        said = torch.tensor(link_of(one_way_s, all_reduce_s, size), dtype=said.dtype)
    _all_reduce(backend, said, timeout)
    alpha, beta, message = said.tolist()
    backend.set_link(_C.LinkCost(alpha_s=alpha, beta_s=beta), message)


def _one_way(backend: _C.AikidoBackend, num_bytes: int, timeout: timedelta) -> float:
    """Half of what a message takes there and back, between ranks 0 and 1."""
    tensor = torch.zeros(num_bytes, dtype=torch.uint8)
    rank, _ = backend.place
    other = 1 - rank

    def send() -> None:
        backend.send_message(tensor, other, _TAG, None, timeout).wait()

    def receive() -> None:
        backend.receive_message(tensor, other, _TAG).wait()

    first, second = (send, receive) if rank == 0 else (receive, send)

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
    """Seconds; the first run is not counted."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
