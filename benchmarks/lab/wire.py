# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A cable with delay and loss, in user space: carries frames between two tap devices.

Started by lab.py in the host's namespace with the path of this file and one JSON object
(see main). Standard input takes {"delay_s": ..., "loss": ...} to change them. It ends
with its input.

Many kernels have no netem; this needs only /dev/net/tun. Limits: a frame has 1500 bytes
and costs about 10 us of one core, so a cable carries some hundred Mbit/s at most and
uses a core. A delay is exact up to the scheduling time of this process.
"""

import collections
import contextlib
import ctypes
import fcntl
import json
import os
import random
import selectors
import struct
import sys
import time
from collections.abc import Callable

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
_FRAME_BYTES = 1 << 16
_FRAMES_AT_ONCE = 32  # frames from one side before the other side has its turn
# Limit of frames in transfer, enough for a delay of a second at 800 Mbit/s; further
# frames are dropped.
_MOST_FRAMES = 1 << 16


class Direction:
    """Frames in transfer in one direction; given the time, it returns those that
    arrive.
    """

    def __init__(self, delay_s: float, loss: float, draw: Callable[[], float]):
        self.delay_s, self.loss = delay_s, loss
        self._draw = draw
        self._frames: collections.deque[tuple[float, bytes]] = collections.deque()

    def push(self, frame: bytes, now: float) -> None:
        if self.loss and self._draw() < self.loss:
            return
        if len(self._frames) < _MOST_FRAMES:
            self._frames.append((now + self.delay_s, frame))

    @property
    def next(self) -> float | None:
        """Time when the next frame arrives. Frames stay in order if the delay
        shrinks.
        """
        return self._frames[0][0] if self._frames else None

    def arrived(self, now: float) -> list[bytes]:
        frames = []
        while self._frames and self._frames[0][0] <= now:
            frames.append(self._frames.popleft()[1])
        return frames


def open_tap(device: str) -> int:
    """Opens a tap device of this thread's namespace."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI)
    fcntl.ioctl(tap, TUNSETIFF, request)
    return tap


def enter(namespace_file: str) -> None:
    file = os.open(namespace_file, os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(file, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns to {namespace_file} failed")
    os.close(file)


def carry(taps: tuple[int, int], directions: tuple[Direction, Direction]) -> None:
    """Runs until standard input ends. taps[0] feeds directions[0], which ends at
    taps[1].
    """
    selector = selectors.SelectSelector()  # epoll waits in whole milliseconds
    for side in (0, 1):
        selector.register(taps[side], selectors.EVENT_READ, side)
    selector.register(0, selectors.EVENT_READ, None)
    while True:
        due = [d.next for d in directions if d.next is not None]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        for key, _ in selector.select(wait):
            if key.data is None:
                line = sys.stdin.readline()
                if not line:
                    return
                for direction in directions:
                    vars(direction).update(json.loads(line))
                continue
            for _ in range(_FRAMES_AT_ONCE):
                try:
                    frame = os.read(key.fd, _FRAME_BYTES)
                except BlockingIOError:
                    break
                directions[key.data].push(frame, time.monotonic())
        now = time.monotonic()
        for side, direction in enumerate(directions):
            for frame in direction.arrived(now):
                # The device is down: the frame is lost.
                with contextlib.suppress(OSError):
                    os.write(taps[1 - side], frame)


def main() -> None:
    plan = json.loads(sys.argv[1])
    host_tap = open_tap(plan["host_device"])
    enter(plan["switch_file"])
    taps = (host_tap, open_tap(plan["switch_device"]))
    draw = random.Random(plan["seed"]).random
    directions = (
        Direction(plan["delay_s"], plan["loss"], draw),
        Direction(plan["delay_s"], plan["loss"], draw),
    )
    print(json.dumps({"ready": True}), flush=True)
    carry(taps, directions)


if __name__ == "__main__":
    main()
