# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Several hosts on one machine: network namespaces, shaped links, faults, traffic."""

import contextlib
import functools
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.lab import agent, network, script
from benchmarks.lab.helper import Helper
from benchmarks.lab.network import DEVICE, LabError, Link
from benchmarks.lab.rank import LATE_VARIABLE
from benchmarks.lab.ranks import RankEnd, RankRun, Start, rank_env
from benchmarks.lab.warm import Program
from benchmarks.launch import cleaning_up_on

HERE = Path(__file__).resolve().parent
FIRST_PORT = 29500  # port of the store on rank 0; each run has its own
_START_S = 20.0  # time that a busy machine may take to start a helper
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_serials = itertools.count()
# Otherwise a connection would start with metrics of a link that has changed.
_SETTINGS = "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save"


@dataclass(frozen=True)
class Traffic:
    """Bytes that a host's link has carried since it was made, and frames dropped by
    queues.
    """

    up_bytes: int
    down_bytes: int
    up_dropped: int
    down_dropped: int


class Lab:
    """Hosts 0 to N-1 behind one switch, while the `with` block lasts.

    For the main thread of one process; several labs may exist at once. The start
    removes leftovers of labs whose owners have died.

    Args:
        links: one for each host.
        tcp: the congestion control of all hosts, independent of the machine's own.
    """

    def __init__(self, links: Sequence[Link], *, tcp: str = "cubic"):
        if not 1 <= len(links) <= 200:
            raise ValueError(f"{len(links)} links; a lab has 1 to 200 hosts")
        start = network.start_of_process(os.getpid())
        if start is None:
            raise LabError("This process is not in /proc; a lab needs Linux.")
        self.name = network.Name(os.getpid(), start, next(_serials))
        self._made_with, self._links, self._tcp = tuple(links), list(links), tcp
        self._shaped: set[tuple[str, str]] = set()
        self._cut: set[int] = set()
        self._helpers: dict[int | str, Helper] = {}
        self._runs = 0
        self._leaving = contextlib.ExitStack()

    @staticmethod
    @functools.cache
    def unavailable() -> str | None:
        """Reason why no lab is possible here, as a sentence; None: it works."""
        try:
            with Lab([Link(up_mbit=100, down_mbit=100)]):
                return None
        except LabError as error:
            return f"No lab of network namespaces here: {error}"

    def __enter__(self) -> "Lab":
        self._leaving.enter_context(cleaning_up_on(*_SIGNALS))
        try:
            self._set_up()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _set_up(self) -> None:
        if not hasattr(os, "geteuid") or os.geteuid() != 0:
            raise LabError("It needs root, to make network namespaces.")
        for name in ("ip", "tc", "bridge"):
            network.tool(name)
        remove_leftovers()
        for batch in network.set_up_batches(self.name, self._made_with, tcp=self._tcp):
            batch.run()
        for host, link in enumerate(self._made_with):
            network.call(network.inside(self.name.host(host), ["sh", "-c", _SETTINGS]))
            self._shape(host, link)
            if link.needs_wire:
                self._start_wire(host, link)

    def _start_wire(self, host: int, link: Link) -> None:
        plan = {
            "host_device": DEVICE,
            "switch_device": network.port(host),
            "switch_file": str(network.FOLDER / self.name.switch),
            "seed": host,
            **_wire_settings(link),
        }
        self._helpers[network.port(host)] = self._start_helper(
            host, "cable", "wire.py", json.dumps(plan)
        )

    def _start_helper(self, host: int, what: str, file: str, *arguments: str) -> Helper:
        """Starts a file of this folder as a process of the host; waits until it is
        ready.
        """
        command = [sys.executable, "-S", "-E", str(HERE / file), *arguments]
        helper = Helper(
            network.inside(self.name.host(host), command), f"{what} of host {host}"
        )
        try:
            helper.answer(_START_S)
        except BaseException:
            helper.close()
            raise
        return helper

    def _close(self) -> None:
        """Removes everything; cannot be interrupted: a second Ctrl-C waits."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *_SIGNALS})
        try:
            for helper in self._helpers.values():
                helper.close()
            self._helpers.clear()
            mine = f"{self.name}-"
            network.remove(
                name for name in network.namespaces() if name.startswith(mine)
            )
        finally:
            self._leaving.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # ---- Links ----------------------------------------------------------------------

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(self._links)

    def address(self, host: int, *, ipv6: bool = False) -> str:
        return network.address(host, ipv6=ipv6)

    def change(self, host: int, **changes: float | None) -> None:
        """Changes fields of the host's link while everything runs.

        Queued data stays, except if a rate becomes None.
        """
        self._shape(host, replace(self._links[host], **changes))  # type: ignore[arg-type]

    def _shape(self, host: int, link: Link) -> None:
        """Sets queues as the link requires, and the delay and loss of a user-space
        cable.
        """
        if link.needs_wire and not self._made_with[host].needs_wire:
            raise LabError(
                f"Host {host} got a cable that knows neither delay nor loss. Make the "
                "lab with a little of either on its link to change them later."
            )
        ends = {
            (self.name.host(host), DEVICE): link.up_mbit,
            (self.name.switch, network.port(host)): link.down_mbit,
        }
        for (namespace, device), mbit in ends.items():
            if mbit is None and (namespace, device) not in self._shaped:
                continue
            limit = link.limit_bytes(mbit) if mbit is not None else 0
            network.call(
                network.shape_command(namespace, device, mbit, limit_bytes=limit)
            )
            if mbit is None:
                self._shaped.discard((namespace, device))
            else:
                self._shaped.add((namespace, device))
        if wire := self._helpers.get(network.port(host)):
            wire.tell(**_wire_settings(link))
        self._links[host] = link

    def cut(self, host: int) -> None:
        """Drops all frames from and to the host, without a sign to either side."""
        network.call(network.cut_command(self.name, host, is_cut=True))
        self._cut.add(host)

    def heal(self, host: int) -> None:
        network.call(network.cut_command(self.name, host, is_cut=False))
        self._cut.discard(host)

    def traffic(self, host: int) -> Traffic:
        ends = []
        for namespace, device in (
            (self.name.host(host), DEVICE),
            (self.name.switch, network.port(host)),
        ):
            show = ["-n", namespace, "-j", "-s"]
            (link,) = json.loads(
                network.call(["ip", *show, "link", "show", "dev", device])
            )
            queues = json.loads(
                network.call(["tc", *show, "qdisc", "show", "dev", device])
            )
            ends.append(
                (link["stats64"]["tx"]["bytes"], sum(q["drops"] for q in queues))
            )
        (up, up_dropped), (down, down_dropped) = ends
        return Traffic(up, down, up_dropped, down_dropped)

    # ---- Streams and measurements ---------------------------------------------------

    def goodput_mbit(self, source: int, target: int, *, seconds: float = 1.0) -> float:
        """Payload rate of one TCP stream, without its first part; blocks for
        `seconds`.
        """
        return self._ask(source, target, seconds, do="goodput", seconds=seconds)["mbit"]

    def round_trip_ms(
        self,
        source: int,
        target: int,
        *,
        count: int = 20,
        ipv6: bool = False,
        within_s: float = agent.ANSWER_S,
    ) -> float:
        """Median of `count` round trips of one byte over TCP."""
        trip = {"do": "round_trip", "count": count, "within_s": within_s}
        return self._ask(source, target, within_s, ipv6=ipv6, **trip)["ms"]

    def flow(self, source: int, target: int, *, seconds: float) -> None:
        """Cross traffic: one stream as fast as possible; returns at once."""
        self._agent(target)
        self._agent(source).tell(
            do="flow", address=self.address(target), seconds=seconds
        )

    def _ask(
        self,
        source: int,
        target: int,
        lasts_s: float,
        *,
        ipv6: bool = False,
        **command: Any,
    ) -> dict[str, Any]:
        self._agent(target)
        asked = self._agent(source)
        asked.tell(address=self.address(target, ipv6=ipv6), **command)
        try:
            return asked.answer(lasts_s + 4 * agent.ANSWER_S)
        except LabError as error:
            raise LabError(f"From host {source} to host {target}: {error}") from error

    def _agent(self, host: int) -> Helper:
        if host not in self._helpers:
            self._helpers[host] = self._start_helper(host, "agent", "agent.py")
        return self._helpers[host]

    # ---- Ranks ----------------------------------------------------------------------

    def run(
        self,
        command: Sequence[str] | Program,
        *,
        deadline_s: float,
        num_ranks: int | None = None,
        host_of: Sequence[int] | None = None,
        events: str | Iterable[script.Event] = "",
        script_from: Literal["ready", "start"] = "ready",
        check: bool = True,
        env: Mapping[str, str] | None = None,
        on_event: Callable[[int, dict[str, Any]], None] | None = None,
        on_line: Callable[[int, str], None] | None = None,
    ) -> list[RankEnd]:
        """Runs the command as ranks on the hosts and returns how each ended.

        A Program that imports torch starts faster than a command with its file.

        A rank reports results with benchmarks.launch.emit. Links that the script
        changed are restored afterwards.

        Args:
            command: the command, or a Program.
            deadline_s: seconds until the run is stopped.
            num_ranks: one on each of the first `num_ranks` hosts; None: on all. Other
                hosts may carry traffic.
            host_of: the host of each rank, instead of num_ranks.
            events: the script (script.py), as text or events.
            script_from: time 0 of the script: when all ranks have called rank.ready(),
                or when they were started.
            check: True if a rank that fails without being told to is an error; then the
                others are stopped soon after.
            env: further environment variables.
            on_event: called with the rank and each event.
            on_line: called with the rank and each other line.

        Raises:
            RanksFailedError: with the last lines of the ranks and, at the deadline, the
                Python stacks of ranks that hung.
        """
        if host_of is None:
            host_of = range(len(self._links) if num_ranks is None else num_ranks)
        num_ranks = len(host_of)
        if not host_of or not set(host_of) <= set(range(len(self._links))):
            raise ValueError(f"ranks on hosts {[*host_of]} of {len(self._links)}")
        events = script.parse(events) if isinstance(events, str) else tuple(events)
        script.check_targets(events, num_members=num_ranks, num_hosts=len(self._links))
        for event in events:  # so that no agent has to start while the script runs
            if event.to is not None:
                self._agent(event.target), self._agent(event.to)
        self._runs += 1
        starts = [
            Start(
                command=command,
                namespace=self.name.host(host_of[rank]),
                env=os.environ
                | self._rank_env(rank, host_of, events)
                | dict(env or {}),
            )
            for rank in range(num_ranks)
        ]
        links_before, cut_before = list(self._links), set(self._cut)
        run = RankRun(
            script.Timeline(events),
            act=functools.partial(self._act, links_before),
            script_from=script_from,
            on_event=on_event,
            on_line=on_line,
        )
        try:
            return run.run(starts, deadline_s=deadline_s, check=check)
        finally:
            self._undo(events, links_before, cut_before)

    def _rank_env(
        self, rank: int, host_of: Sequence[int], events: Iterable[script.Event]
    ) -> dict[str, str]:
        late = [e for e in events if e.verb == "late" and e.target == rank]
        address = (self.address(host_of[0]), FIRST_PORT + self._runs % 1000)
        return rank_env(rank, host_of, address) | {
            "AIKIDO_SOCKET_IFNAME": DEVICE,
            "GLOO_SOCKET_IFNAME": DEVICE,
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            LATE_VARIABLE: " ".join(f"{e.at_s}:{e.for_s}" for e in late),
        }

    def _act(self, links_before: Sequence[Link], step: script.Step) -> None:
        event = step.event
        match step.what:
            case "cut":
                self.cut(event.target)
            case "heal":
                self.heal(event.target)
            case "rate":
                self.change(event.target, **dict(event.rates))
            case "restore":
                self._shape(event.target, links_before[event.target])
            case "flow":
                assert event.to is not None
                assert event.for_s is not None
                self.flow(event.target, event.to, seconds=event.for_s)

    def _undo(
        self,
        events: Iterable[script.Event],
        links_before: Sequence[Link],
        cut_before: set[int],
    ) -> None:
        for host, link in enumerate(links_before):
            if self._links[host] != link:
                self._shape(host, link)
        for host in self._cut - cut_before:
            self.heal(host)
        for host in cut_before - self._cut:
            self.cut(host)
        for host in {event.target for event in events if event.verb == "flow"}:
            self._agent(host).tell(do="quiet")


def _wire_settings(link: Link) -> dict[str, float]:
    return {"delay_s": link.delay_ms / 1e3, "loss": link.loss}


def remove_leftovers() -> list[str]:
    """Removes namespaces of labs whose owners have died, and the processes in them."""
    return network.remove(network.leftovers(network.namespaces()))
