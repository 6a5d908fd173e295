# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Counters of this rank for Prometheus, over HTTP.

Counters cost nothing extra: each is read only during a request. Names follow the rules
of OpenTelemetry for Prometheus: "aikido.send.wire_time" in seconds is
`aikido_send_wire_time_seconds_total`, with the unit as a suffix if there is one. Units
are seconds and bytes.
"""

import threading
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from aikido_torch import _C
from aikido_torch._backend import (
    backend_of,
    progress_on,
    recorder_of_process,
    taken_on,
    with_bucket_backends,
)
from aikido_torch.errors import AikidoError, ConfigError, UnsupportedError
from aikido_torch.trace.record._log import event_names, is_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["Metrics", "serve"]

# By counter of the backend: name and help text. They belong to the group.
_COUNTERS = {
    "operations": ("aikido_operations", "collectives that were called"),
    "partial_operations": (
        "aikido_operations_skippable",
        "collectives with a policy that may skip ranks",
    ),
    "skipped_own": (
        "aikido_operations_skipped",
        "collectives that ended without this rank's contribution",
    ),
    "failures": ("aikido_operations_failed", "collectives that failed"),
    "stale_frames": ("aikido_frames_stale", "frames for calls that were over"),
    "cancelled_bytes": (
        "aikido_cancelled_bytes",
        "bytes that were not sent because they would have been too late",
    ),
    "given_bytes": (
        "aikido_given_bytes",
        "bytes contributed as a backup in place of other ranks",
    ),
    "inner_operations": (
        "aikido_operations_inner",
        "collectives that used the inner NCCL backend",
    ),
    "ipc_operations": (
        "aikido_operations_ipc",
        "all_reduces in the memory of a GPU shared by all ranks",
    ),
    "chunks": ("aikido_send_chunks", "chunks that this process sent, in all groups"),
    "preemptions": (
        "aikido_send_preemptions",
        "chunks sent between two chunks of a less urgent message",
    ),
    "inversions": (
        "aikido_send_inversions",
        "chunks sent although a more urgent chunk was ready",
    ),
    "overdue_chunks": (
        "aikido_send_chunks_overdue",
        "chunks sent before more urgent ones because they had waited too long",
    ),
    "queued_us": (
        "aikido_send_queued_time_seconds",
        "time of messages from the call to their first chunk",
    ),
    "paused_us": (
        "aikido_send_paused_time_seconds",
        "time of messages between two chunks, while other chunks were sent",
    ),
    "wire_us": (
        "aikido_send_wire_time_seconds",
        "time of messages from the first chunk to the last, without pauses",
    ),
}
# Counters of the group; all others belong to the process.
_OF_GROUP = (
    "operations",
    "partial_operations",
    "skipped_own",
    "failures",
    "stale_frames",
    "cancelled_bytes",
    "given_bytes",
    "inner_operations",
    "ipc_operations",
)
_GAUGES = {
    "credit_bytes": (
        "aikido_send_credit_bytes",
        "limit of bytes in flight; 0: no limit",
    ),
    "uplink_bytes_per_s": (
        "aikido_send_rate_bytes_per_second",
        "rate of the uplink, which determines the limit in flight; 0: unknown",
    ),
}
# Gauges of the model that is reduced on `group`, over the last minute, as known to this
# rank.
_PROGRESS = {
    "steps": ("aikido_steps_per_second", "optimizer steps, in the last minute"),
    "progress": (
        "aikido_progress_full_steps_per_second",
        "steps times the share of all contributions that is in the results",
    ),
    "share": (
        "aikido_contribution_ratio",
        "share of a rank's contributions that is in the results, in the last minute",
    ),
    "gain": (
        "aikido_skipping_gain_ratio",
        "estimated progress divided by that of WaitAll, minus 1, since the start",
    ),
}
# Counters of the micro-batches that this rank takes over, by their owner.
_TAKEN = (
    ("aikido_micro_batches_taken", "micro-batches that this rank took over"),
    ("aikido_micro_batches_taken_time_seconds", "time of their computation"),
)
_DEFAULT_PORT = 9464  # port of OpenTelemetry's exporters for Prometheus
_LAST_PORT = 65535


def serve(
    port: int = _DEFAULT_PORT,
    *,
    host: str = "127.0.0.1",
    group: dist.ProcessGroup | None = None,
) -> "Metrics":
    """Serves http://host:port/metrics from a thread of its own.

    A port that is in use or not allowed gives a warning, so that no training ends for
    it.

    Args:
        port: a different one for each rank of a machine; 0 takes a free port.
        host: "0.0.0.0" for all interfaces.
        group: group whose counters are served; None is the default group.

    Returns:
        A handle that ends it, and knows the port.

    Raises:
        ConfigError: there is no aikido group, or the port is invalid.
        UnsupportedError: the package prometheus_client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise UnsupportedError(
            "serve: the package prometheus_client is not installed. Run: "
            "pip install prometheus_client, or install aikido-torch[metrics]."
        ) from error
    backend_of(group)
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(
            f"serve: the port is {port}; give one from 1 to {_LAST_PORT}, another one "
            "for each rank of a machine, or 0."
        )
    registry = CollectorRegistry()
    registry.register(_Collector(group, recorder_of_process()))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        warnings.warn(
            f"trace.serve: {host}:{port} cannot be listened on: {error.strerror}; "
            "nobody answers there. Give another port for each rank of a machine, or 0.",
            stacklevel=2,
        )
        return Metrics(None, None)
    return Metrics(server, thread)


class Metrics:
    """Handle of `serve`.

    Attributes:
        port: the port in use; None if no port could be used.
    """

    def __init__(self, server: Any, thread: Any) -> None:
        self._server, self._thread = server, thread
        self.port: int | None = server and server.server_address[1]

    def close(self) -> None:
        """Stops serving. Idempotent."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def _progress(backends: Collection[_C.AikidoBackend], rank: int) -> "Iterator[Metric]":
    """Gauges of the models on these groups; none in the first ten seconds of a
    training.
    """
    from prometheus_client.core import GaugeMetricFamily

    labels = ["rank", "group"]
    steps = GaugeMetricFamily(*_PROGRESS["steps"], labels=labels)
    progress = GaugeMetricFamily(*_PROGRESS["progress"], labels=labels)
    shares = GaugeMetricFamily(*_PROGRESS["share"], labels=[*labels, "contributor"])
    gains = GaugeMetricFamily(*_PROGRESS["gain"], labels=labels)
    for backend in backends:
        known = progress_on.get(backend)
        if known is None or (last := known.last) is None:
            continue
        values = [str(rank), backend.group_name]
        if (gain := known.gain_of(backend.counters)) is not None:
            gains.add_metric(values, gain)
        steps.add_metric(values, last.steps_per_second)
        progress.add_metric(values, last.full_steps_per_second)
        for contributor, share in enumerate(last.shares):
            shares.add_metric([*values, str(contributor)], share)
    yield from (steps, progress, shares, gains)


def _taken(backends: Collection[_C.AikidoBackend], rank: int) -> "Iterator[Metric]":
    """Counters of the micro-batches that were taken over from each rank."""
    from prometheus_client.core import CounterMetricFamily

    labels = ["rank", "group", "owner"]
    count, seconds = (
        CounterMetricFamily(name, text, labels=labels) for name, text in _TAKEN
    )
    for backend in backends:
        taken = taken_on.get(backend)
        by_owner = {} if taken is None else dict(taken.by_owner)
        for owner, (number, time_s) in by_owner.items():
            values = [str(rank), backend.group_name, str(owner)]
            count.add_metric(values, number)
            seconds.add_metric(values, time_s)
    yield from (count, seconds)


class _Collector:
    """Collector that reads the counters of a group while the group exists."""

    def __init__(self, group: dist.ProcessGroup | None, recorder: _C.Recorder) -> None:
        self._group = group
        self._recorder = recorder
        # Concurrent requests must not count an event twice.
        self._lock = threading.Lock()
        self._last = 0  # number of the last counted event
        self._kinds: Counter[str] = Counter()

    def describe(self) -> list[Any]:
        # Registration must not read any counter.
        return []

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        try:
            backend = backend_of(self._group)
        except ConfigError:  # the group was destroyed
            return
        rank, size = backend.place
        labels, values = ["rank"], [str(rank)]

        def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
            made = GaugeMetricFamily(name, text, labels=labels)
            made.add_metric(values, value)
            return made

        # Calls that may skip are made in the bucket groups.
        backends = with_bucket_backends(backend)
        counters = dict(backend.counters)
        for each in backends[1:]:
            for key, value in dict(each.counters).items():
                if key in _OF_GROUP:
                    counters[key] = int(str(counters[key])) + int(str(value))
        for key, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=labels)
            value = float(str(counters[key]))
            counter.add_metric(values, value / 1e6 if key.endswith("_us") else value)
            yield counter
        for key, (name, text) in _GAUGES.items():
            yield gauge(name, text, float(str(counters[key])))
        events = CounterMetricFamily(
            "aikido_member_events",
            "events of members of the group, named as in log lines",
            labels=[*labels, "event", "cause"],
        )
        names = [each.group_name for each in backends]
        for kind, number in self._events_of(backend.group_name, names).items():
            events.add_metric([*values, event_names[kind], kind], number)
        yield events
        yield gauge("aikido_group_size", "ranks of the group", size)
        yield gauge(
            "aikido_step",
            "number of the training step, as counted by watch",
            self._recorder.step,
        )
        is_member = float(all(each.standing == "member" for each in backends))
        yield gauge(
            "aikido_member", "1: this rank takes part in calls that may skip", is_member
        )
        yield gauge(
            "aikido_trace_armed",
            "1: a trace is being recorded",
            self._recorder.is_armed,
        )
        yield from _progress(backends, rank)
        yield from _taken(backends, rank)
        try:
            clock = backend.clock_of_rank_0()
        except AikidoError:  # the group has ended
            return
        if clock is not None:
            text = "clock of rank 0 minus clock of this rank"
            yield gauge("aikido_clock_offset_seconds", text, clock[1] / 1e9)
            yield gauge(
                "aikido_clock_error_seconds",
                "error of the clock offset",
                clock[3] / 1e9,
            )

    def _events_of(self, group: str, names: Collection[str] = ()) -> dict[str, int]:
        """Number of events by kind until now; the event log keeps only the last
        4096.
        """
        with self._lock:
            for event in self._recorder.events(self._last):
                self._last = event["number"]
                if is_of(event, group, names):
                    self._kinds[event["kind"]] += 1
            return {kind: self._kinds[kind] for kind in event_names}
