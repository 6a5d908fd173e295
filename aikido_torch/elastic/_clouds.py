# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Eviction notices in the metadata services of AWS, Google Cloud and Azure.

- AWS: `PUT /latest/api/token`, then `GET /latest/meta-data/spot/instance-action`. It
  gives 404 without a notice, else an action and its time.
- Google Cloud: `GET /computeMetadata/v1/instance/preempted` gives TRUE or FALSE.
- Azure: `GET /metadata/scheduledevents` gives events and the names of their machines.

Headers are those of the documentation of each cloud. A server that hangs, or gives
something else, gets a sentence in `SourceError`.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aikido_torch.elastic._notices import Found, Source, SourceError
from aikido_torch.errors import ConfigError

__all__ = ["Aws", "Azure", "GoogleCloud", "cloud_here", "source_of"]

_LIMIT_S = 2.0
_LARGEST_ANSWER = 64 * 1024
_TOKEN_TTL_S = 21600
# Notices are minutes ahead. A later time is a wrong time or a wrong clock.
_LONGEST_WARNING_S = 86400.0
_AWS_ACTIONS = ("terminate", "stop", "hibernate")
# Events that end the processes of a machine. A freeze is a pause of seconds.
_AZURE_EVENTS = ("Preempt", "Terminate", "Redeploy", "Reboot")
_GOOGLE_WARNING_S = 30.0


@dataclass(frozen=True)
class Answer:
    """Answer of a metadata service.

    Attributes:
        status: HTTP status.
        headers: values by name in lower case.
        body: text, at most 64 KiB.
    """

    status: int
    headers: Mapping[str, str]
    body: str


class Metadata:
    """Metadata service that is asked without a proxy, and within a limit.

    Args:
        url: begin of the address, such as "http://169.254.169.254".
        limit_s: seconds for one whole answer.
    """

    def __init__(self, url: str, limit_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigError(
                f"elastic: the metadata service is {url!r}; give http://host[:port]."
            )
        self.url, self._limit_s = url, limit_s
        self._host, self._port = parts.hostname, parts.port or 80

    def ask(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        """Asks once.

        Raises:
            SourceError: no answer within the limit, or no valid one.
        """
        connection = http.client.HTTPConnection(
            self._host, self._port, timeout=self._limit_s
        )
        # The time-out of a socket starts anew with each byte; this timer does not.
        is_late = threading.Event()
        timer = threading.Timer(self._limit_s, _end, (connection, is_late))
        timer.daemon = True
        timer.start()
        try:
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            body = response.read(_LARGEST_ANSWER + 1)
            answer = Answer(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                body.decode(errors="replace"),
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            if is_late.is_set() or isinstance(error, TimeoutError):
                raise SourceError(
                    f"{self.url} has not answered within {self._limit_s:g} s"
                ) from None
            what = str(error) or type(error).__name__
            raise SourceError(f"{self.url} gives no valid answer: {what}") from None
        finally:
            timer.cancel()
            connection.close()
        if is_late.is_set():
            raise SourceError(f"{self.url} has not answered within {self._limit_s:g} s")
        if len(body) > _LARGEST_ANSWER:
            raise SourceError(
                f"the answer of {self.url} to {path} has more than {_LARGEST_ANSWER} "
                "bytes"
            )
        return answer


class Aws:
    """Spot interruptions of AWS, by version 2 of its metadata service (IMDSv2)."""

    def __init__(
        self,
        url: str = "http://169.254.169.254",
        *,
        limit_s: float = _LIMIT_S,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = "AWS"
        self._server = Metadata(url, limit_s)
        self._wall_clock = wall_clock
        self._token = ""

    def poll(self) -> Found | None:
        """A notice if the instance has an action: terminate, stop or hibernate."""
        path = "/latest/meta-data/spot/instance-action"
        answer = None
        for _ in range(2):  # a token that has expired is renewed once
            if not self._token:
                self._token = self._new_token()
            answer = self._server.ask(
                "GET", path, {"X-aws-ec2-metadata-token": self._token}
            )
            if answer.status != HTTPStatus.UNAUTHORIZED:
                break
            self._token = ""
        assert answer is not None
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        _check_status(self._server, path, answer)
        fields = _json_of(self._server, path, answer)
        action, when = fields.get("action"), fields.get("time")
        if action not in _AWS_ACTIONS:
            raise SourceError(
                f"the answer of {self._server.url} to {path} has the action "
                f"{action!r:.80}; expected one of {', '.join(_AWS_ACTIONS)}"
            )
        try:
            moment = datetime.fromisoformat(str(when))
        except ValueError:
            raise _wrong_time(self._server, when) from None
        seconds = _seconds_until(self._server, moment, self._wall_clock())
        return Found(f"it will {action} this machine at {when}", seconds)

    def _new_token(self) -> str:
        path = "/latest/api/token"
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
        answer = self._server.ask("PUT", path, headers)
        _check_status(self._server, path, answer)
        token = answer.body.strip()
        if not token or not token.isascii() or not token.isprintable():
            raise SourceError(f"{self._server.url} gives no valid token at {path}")
        return token


class GoogleCloud:
    """Preemptions of Google Cloud; a machine has about 30 s after them."""

    def __init__(
        self,
        url: str = "http://metadata.google.internal",
        *,
        limit_s: float = _LIMIT_S,
    ) -> None:
        self.name = "Google Cloud"
        self._server = Metadata(url, limit_s)

    def poll(self) -> Found | None:
        """A notice if the machine is preempted."""
        path = "/computeMetadata/v1/instance/preempted"
        answer = self._server.ask("GET", path, {"Metadata-Flavor": "Google"})
        _check_status(self._server, path, answer)
        if answer.headers.get("metadata-flavor") != "Google":
            raise SourceError(
                f"the answer of {self._server.url} has no header Metadata-Flavor: "
                "Google, so that another server answers there"
            )
        text = answer.body.strip().upper()
        if text not in ("TRUE", "FALSE"):
            raise SourceError(
                f"the answer of {self._server.url} to {path} is {text!r:.80}; expected "
                "TRUE or FALSE"
            )
        if text == "FALSE":
            return None
        return Found("it preempts this machine", _GOOGLE_WARNING_S)


class Azure:
    """Scheduled events of Azure that end the processes of this machine."""

    def __init__(
        self,
        url: str = "http://169.254.169.254",
        *,
        limit_s: float = _LIMIT_S,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = "Azure"
        self._server = Metadata(url, limit_s)
        self._wall_clock = wall_clock
        self._machine = ""

    def poll(self) -> Found | None:
        """A notice if an event names this machine.

        The events of all machines of a scale set come in one answer.
        """
        machine = self._name_of_machine()
        path = "/metadata/scheduledevents?api-version=2020-07-01"
        fields = self._ask(path)
        events = fields.get("Events")
        if not isinstance(events, list):
            raise SourceError(
                f"the answer of {self._server.url} to {path} has no list of Events"
            )
        found = [
            self._found(event)
            for event in events
            if isinstance(event, dict)
            and event.get("EventType") in _AZURE_EVENTS
            and machine in (event.get("Resources") or ())
        ]
        return min(found, key=lambda f: f.warning_s, default=None)

    def _found(self, event: Mapping[str, Any]) -> Found:
        what, when = event["EventType"], event.get("NotBefore")
        reason = f"it announces {what} for this machine"
        if not when:  # the event has begun
            return Found(reason, 0.0)
        try:
            moment = parsedate_to_datetime(str(when))
        except ValueError:
            raise _wrong_time(self._server, when) from None
        seconds = _seconds_until(self._server, moment, self._wall_clock())
        return Found(f"{reason} at {when}", seconds)

    def _name_of_machine(self) -> str:
        if not self._machine:
            path = "/metadata/instance/compute?api-version=2021-02-01"
            name = self._ask(path).get("name")
            if not isinstance(name, str) or not name:
                raise SourceError(
                    f"the answer of {self._server.url} to {path} has no name of this "
                    "machine"
                )
            self._machine = name
        return self._machine

    def _ask(self, path: str) -> Mapping[str, Any]:
        answer = self._server.ask("GET", path, {"Metadata": "true"})
        _check_status(self._server, path, answer)
        return _json_of(self._server, path, answer)


_CLOUDS: dict[str, Callable[[], Source]] = {
    "aws": Aws,
    "google": GoogleCloud,
    "azure": Azure,
}
_VENDORS = {
    "Amazon EC2": "aws",
    "Google": "google",
    "Microsoft Corporation": "azure",
}


def source_of(cloud: str) -> Source:
    """Source of the notices of a cloud: "aws", "google" or "azure".

    Raises:
        ConfigError: the cloud has another name.
    """
    if cloud not in _CLOUDS:
        raise ConfigError(
            f"elastic: the cloud is {cloud!r}; it takes one of "
            f"{', '.join(map(repr, _CLOUDS))}."
        )
    return _CLOUDS[cloud]()


def cloud_here(
    vendor_file: str = "/sys/class/dmi/id/sys_vendor",
) -> str | None:
    """Cloud of this machine by the vendor in its firmware; None: no known one."""
    try:
        vendor = Path(vendor_file).read_text(errors="replace").strip()
    except OSError:
        return None
    return _VENDORS.get(vendor)


def _end(connection: http.client.HTTPConnection, is_late: threading.Event) -> None:
    is_late.set()
    sock = connection.sock
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended already
            return


def _check_status(server: Metadata, path: str, answer: Answer) -> None:
    if answer.status != HTTPStatus.OK:
        raise SourceError(
            f"{server.url} answers {path} with status {answer.status}; expected 200"
        )


def _json_of(server: Metadata, path: str, answer: Answer) -> Mapping[str, Any]:
    try:
        fields = json.loads(answer.body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise SourceError(
            f"the answer of {server.url} to {path} is not a JSON object: "
            f"{answer.body!r:.80}"
        )
    return fields


def _wrong_time(server: Metadata, when: object) -> SourceError:
    return SourceError(f"{server.url} names the time {when!r:.80}, which is no time")


def _seconds_until(server: Metadata, moment: datetime, now_s: float) -> float:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = moment.timestamp() - now_s
    if seconds > _LONGEST_WARNING_S:
        raise SourceError(
            f"{server.url} names an eviction at {moment.isoformat()}, which is "
            f"{seconds:.0f} s ahead of the clock of this machine; at most "
            f"{_LONGEST_WARNING_S:.0f} s are a notice"
        )
    return max(0.0, seconds)
