# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Gauges of an elastic job for Prometheus, from the status in the store."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from aikido_torch.elastic._stages import RELIABLE, TRANSIENT
from aikido_torch.elastic._status import Status
from aikido_torch.errors import AikidoError, UnsupportedError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["StatusCollector", "serve_metrics"]


class StatusCollector:
    """Collector that reads the status of a job at each request.

    Args:
        job: name of the job.
        read: reads the status; None: the job has not written one yet.
    """

    def __init__(self, job: str, read: Callable[[], Status | None]) -> None:
        self._job, self._read = job, read

    def describe(self) -> list[Any]:
        """Nothing: registration must not read the store."""
        return []

    def collect(self) -> "Iterator[Metric]":
        """Gauges of the job. `aikido_elastic_up` is 0 if the store does not answer."""
        from prometheus_client.core import GaugeMetricFamily

        def gauge(name: str, text: str, *values: tuple[str, float]) -> "Metric":
            labels = ["job", "role"] if values[0][0] else ["job"]
            made = GaugeMetricFamily(f"aikido_elastic_{name}", text, labels=labels)
            for role, value in values:
                made.add_metric([self._job, role] if role else [self._job], value)
            return made

        try:
            status = self._read()
        except AikidoError:
            status = None
        yield gauge("up", "1: the job has a status", ("", float(status is not None)))
        if status is None:
            return
        yield gauge(
            "members",
            "members of the job",
            *((role, status.number_of(role)) for role in (RELIABLE, TRANSIENT)),
        )
        yield gauge("stage", "stage of the job, 1 to 3", ("", status.stage))
        yield gauge("step", "committed steps", ("", status.step))
        yield gauge(
            "steps_lost",
            "failed attempts and rolled back steps",
            ("", status.steps_lost),
        )
        yield gauge(
            "stall_seconds", "time outside of committed steps", ("", status.stall_s)
        )
        yield gauge(
            "goodput_ratio", "part of the time in committed steps", ("", status.goodput)
        )
        yield gauge(
            "status_timestamp_seconds", "time of the status", ("", status.written_s)
        )


def serve_metrics(
    job: str, read: Callable[[], Status | None], *, host: str, port: int
) -> tuple[Any, Any]:
    """Serves the gauges at http://host:port/metrics from a thread of its own.

    Returns:
        The server and its thread.

    Raises:
        UnsupportedError: the package prometheus_client is not installed, or the port is
            in use.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise UnsupportedError(
            "elastic metrics: the package prometheus_client is not installed. Run: "
            "pip install prometheus_client, or install aikido-torch[metrics]."
        ) from error
    registry = CollectorRegistry()
    registry.register(StatusCollector(job, read))
    try:
        return start_http_server(port, addr=host, registry=registry)
    except (OSError, OverflowError) as error:
        raise UnsupportedError(
            f"elastic metrics: {host}:{port} cannot be listened on: {error}. Give "
            "another port."
        ) from None
