# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""How long threads that could have run waited for a CPU, as the kernel counts it.

A busy machine makes everybody late; this is the part of it that no program can help.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path


def cpu_waits(process: int) -> dict[int, float]:
    """Seconds since each thread began, of those that take part in a call.

    They are the first one, which calls, and those of aikido. A process that has died
    and is not reaped yet still has its first. Empty where the kernel does not count.
    """
    waits = {}
    for task in Path(f"/proc/{process}/task").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            name = (task / "comm").read_text()
            if int(task.name) == process or name.startswith("aikido"):
                waited_ns = int((task / "schedstat").read_text().split()[1])
                waits[int(task.name)] = waited_ns / 1e9
    return waits


def waited_between(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Seconds that those of `after` have waited since `before`, all together."""
    return sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())
