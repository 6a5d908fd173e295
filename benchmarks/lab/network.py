# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Namespaces, cables and queues: the commands for `ip`, `bridge` and `tc`.

Functions that return commands are pure; only `call` runs them. All devices and
addresses are inside namespaces, so the machine's own network does not change and labs
do not see each other.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path("/var/run/netns")  # folder where `ip netns` keeps names
SWITCH = "switch"
BRIDGE = "br0"
DEVICE = "eth0"  # device of every host
SUBNET, SUBNET_IPV6 = "10.77.0.0/24", "fd77::/64"
# A segment of 64 KiB with its headers must fit, otherwise tbf splits it in software.
LEAST_BURST_BYTES = 96 << 10
_CALL_LIMIT_S = 20.0
_NETWORK = 0x4000_0000  # CLONE_NEWNET; os.setns() is new in Python 3.12
_libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """The lab cannot do the request; the text gives the reason and, if known, a
    remedy.
    """


@dataclass(frozen=True, kw_only=True)
class Link:
    """The link of one host, seen from the host. A rate of None is unlimited."""

    up_mbit: float | None = None
    down_mbit: float | None = None
    # Longest wait in each direction's queue at its rate, unless bytes are given. No
    # queue is shorter than a burst, because tbf would drop whole segments.
    queue_ms: float = 50.0
    queue_bytes: int | None = None
    # In user space (wire.py), each way: limited to the speed of one Python process.
    delay_ms: float = 0.0
    loss: float = 0.0

    def __post_init__(self) -> None:
        for name in ("up_mbit", "down_mbit"):
            rate = getattr(self, name)
            if rate is not None and not 0.1 <= rate <= 100_000:
                raise ValueError(
                    f"{name} is {rate}; it must be between 0.1 and 100000 Mbit/s, or "
                    "None for a link that is not shaped"
                )
        if self.queue_ms <= 0:
            raise ValueError(f"queue_ms is {self.queue_ms}; it must be above 0")
        if self.queue_bytes is not None and self.queue_bytes < LEAST_BURST_BYTES:
            raise ValueError(
                f"queue_bytes is {self.queue_bytes}; tbf needs {LEAST_BURST_BYTES} or "
                "more to let a whole segment through"
            )
        if self.delay_ms < 0 or not 0 <= self.loss < 1:
            raise ValueError(
                f"delay_ms is {self.delay_ms} and loss {self.loss}; a delay is not "
                "negative and a loss a share of 0 to below 1"
            )

    @property
    def needs_wire(self) -> bool:
        return self.delay_ms > 0 or self.loss > 0

    def limit_bytes(self, mbit: float) -> int:
        """Length of the queue of a rate."""
        if self.queue_bytes is not None:
            return self.queue_bytes
        return max(LEAST_BURST_BYTES, round(mbit * 125 * self.queue_ms))


@dataclass(frozen=True)
class Name:
    """Name of a lab, which identifies its owner; the start time detects a reused
    process id.
    """

    pid: int
    start: int  # start of the owner, in clock ticks since boot
    serial: int  # number among the labs of that owner

    def __str__(self) -> str:
        return f"aikidolab-{self.pid}-{self.start}-{self.serial}"

    @property
    def switch(self) -> str:
        return f"{self}-{SWITCH}"

    def host(self, host: int) -> str:
        return f"{self}-h{host}"

    @classmethod
    def of_namespace(cls, namespace: str) -> "Name | None":
        """The lab that a namespace belongs to; None if it belongs to no lab."""
        match = re.fullmatch(
            rf"aikidolab-(\d+)-(\d+)-(\d+)-(?:{SWITCH}|h\d+)", namespace
        )
        return cls(*map(int, match.groups())) if match else None


def start_of_process(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def namespaces() -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(os.listdir(FOLDER))
    return []


def leftovers(
    names: Iterable[str],
    start_of: Callable[[int], int | None] = start_of_process,
) -> list[str]:
    """Namespaces of labs whose owner has died."""
    return [
        name
        for name in names
        if (lab := Name.of_namespace(name)) and start_of(lab.pid) != lab.start
    ]


# ---- commands --------------------------------------------------------------------


def tool(name: str) -> str:
    """Full path of a tool, because an ordinary user's PATH often lacks sbin."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    found = shutil.which(name, path=path)
    if found is None:
        raise LabError(f"The command '{name}' is missing; it comes with iproute2.")
    return found


def call(command: Sequence[str], *, lines: Sequence[str] = ()) -> str:
    """Runs a command to its end and returns its output; `lines` are its input.

    Raises LabError with the command and its error output.
    """
    try:
        done = subprocess.run(
            [tool(command[0]), *command[1:]],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=_CALL_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"'{' '.join(command)}' did not run: {error}.") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise LabError(f"'{' '.join(command)}' failed: {said}")
    return done.stdout


def inside(namespace: str, command: Sequence[str]) -> list[str]:
    """The command as a process of that namespace, with the same process id."""
    return [tool("ip"), "netns", "exec", namespace, *command]


def enter(namespace: str) -> None:
    """Moves this process, which must have one thread, there. Raises OSError."""
    with open(FOLDER / namespace) as file:
        if _libc.setns(file.fileno(), _NETWORK) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)


@dataclass
class Batch:
    """Lines for one call of `ip -batch`, in a namespace or outside of all."""

    namespace: str | None
    lines: list[str] = field(default_factory=list)

    def run(self) -> None:
        where = ["-n", self.namespace] if self.namespace else []
        call(["ip", *where, "-batch", "-"], lines=self.lines)


def set_up_batches(name: Name, links: Sequence[Link], *, tcp: str) -> list[Batch]:
    """Commands that make the switch, the hosts and their cables, without shaping."""
    switch = Batch(
        name.switch,
        [
            "link set lo up",
            f"link add {BRIDGE} type bridge stp_state 0 forward_delay 0 "
            "mcast_snooping 0",
            f"link set {BRIDGE} up",
        ],
    )
    outside = Batch(None, [f"netns add {name.switch}"])
    hosts = []
    for i, link in enumerate(links):
        host = name.host(i)
        outside.lines.append(f"netns add {host}")
        inner = Batch(host, ["link set lo up"])
        if link.needs_wire:  # wire.py is the cable
            inner.lines.append(f"tuntap add {DEVICE} mode tap")
            switch.lines.append(f"tuntap add {port(i)} mode tap")
        else:
            outside.lines.append(
                f"link add {DEVICE} netns {host} type veth "
                f"peer name {port(i)} netns {name.switch}"
            )
        inner.lines += [
            f"addr add {address(i)}/24 dev {DEVICE} noprefixroute",
            # nodad: usable at once, without a second of duplicate address detection.
            f"addr add {address(i, ipv6=True)}/64 dev {DEVICE} nodad noprefixroute",
            f"link set {DEVICE} up",
            # With the route, because the setting of a namespace accepts only algorithms
            # that the machine allows to ordinary users.
            f"route add {SUBNET} dev {DEVICE} src {address(i)} congctl {tcp}",
            f"route add {SUBNET_IPV6} dev {DEVICE} congctl {tcp}",
        ]
        switch.lines += [f"link set {port(i)} master {BRIDGE} up"]
        hosts.append(inner)
    return [outside, switch, *hosts]


def port(host: int) -> str:
    """Port of the switch at the other end of the host's cable."""
    return f"h{host}"


def address(host: int, *, ipv6: bool = False) -> str:
    return f"fd77::{host + 1:x}" if ipv6 else f"10.77.0.{host + 1}"


def shape_command(
    namespace: str, device: str, mbit: float | None, *, limit_bytes: int
) -> list[str]:
    """Limits the rate out of a device. A changed rate keeps queued data."""
    where = ["dev", device, "root"]
    if mbit is None:
        return ["tc", "-n", namespace, "qdisc", "del", *where]
    # At high rates the bytes of one millisecond: timers are not finer under load.
    burst = max(LEAST_BURST_BYTES, round(mbit * 125))
    return [
        *("tc", "-n", namespace, "qdisc", "replace", *where, "tbf"),
        *("rate", f"{round(mbit * 1e6)}bit", "burst", str(burst)),
        *("limit", str(max(limit_bytes, burst))),
    ]


def cut_command(name: Name, host: int, *, is_cut: bool) -> list[str]:
    """Makes the switch drop or pass all frames of a port; the host cannot notice it."""
    state = "0" if is_cut else "3"  # disabled, forwarding
    return [
        "bridge",
        "-n",
        name.switch,
        "link",
        "set",
        "dev",
        port(host),
        "state",
        state,
    ]


# ---- removal -----------------------------------------------------------------------


def remove(names: Iterable[str]) -> list[str]:
    """Kills the processes in those namespaces and deletes these; returns the deleted
    ones.

    A namespace that another process deletes meanwhile is no error.
    """
    removed = []
    for name in names:
        with contextlib.suppress(LabError):
            for pid in call(["ip", "netns", "pids", name]).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        try:
            call(["ip", "netns", "del", name])
            removed.append(name)
        except LabError:
            if name in namespaces():
                raise
    return removed
