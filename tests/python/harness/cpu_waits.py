# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Time that runnable threads waited for a CPU, as the kernel counts it.

A busy machine delays every process. This part of the delay is not the fault of the
tested program.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path


def cpu_waits(process: int) -> dict[int, float]:
    """Thread id to the seconds that it has waited for a CPU since it began.

    Only threads that take part in a call are included: the main thread, which calls,
    and the threads of aikido. A dead process that its parent has not reaped still has
    its main thread. The result is empty if the kernel does not count.
    """
    waits = {}
    for task in Path(f"/proc/{process}/task").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the thread has just ended
            name = (task / "comm").read_text()
            if int(task.name) == process or name.startswith("aikido"):
                waited_ns = int((task / "schedstat").read_text().split()[1])
                waits[int(task.name)] = waited_ns / 1e9
    return waits


def waited_between(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Sum of the seconds that the threads of `after` have waited since `before`."""
    return sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())
