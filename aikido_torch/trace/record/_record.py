# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Recording on this rank by hand, and conversion of recorded spans into a dump."""

import os
import socket
import threading
import time
import uuid
import warnings
import weakref
from pathlib import Path
from typing import Protocol

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from aikido_torch import _C
from aikido_torch._backend import backend_of, members_of_groups, recorder_of_process
from aikido_torch.errors import AikidoError, ConfigError
from aikido_torch.trace.record._dump import Clock, Dump, encode, write_file
from aikido_torch.trace.record._spans import unpack
from aikido_torch.trace.record._trace_store import address_of

__all__ = [
    "address",
    "job_of",
    "save",
    "start",
    "stop",
    "take",
    "take_free",
    "tell_of_start",
]


# By process id, because a forked child is a rank of another job.
_jobs: dict[int, str] = {}
# Spans that could not be written, and number of dropped spans before, by process id.
_left: dict[int, tuple[bytes, int]] = {}
# Process ids that record by hand now, and those whose spans were not taken yet. Other
# recorders in the same process (`take_free`) must not take these spans.
_recording: set[int] = set()
_held: set[int] = set()
_lock = threading.Lock()


class _Watching(Protocol):
    def on_armed(self) -> None: ...


_watching: "weakref.WeakSet[_Watching]" = weakref.WeakSet()


def tell_of_start(watch: _Watching) -> None:
    """Registers `watch`, weakly, to be called by `start`."""
    _watching.add(watch)


def start(*, group: dist.ProcessGroup | None = None) -> None:
    """Records all calls, transfers and steps of this rank from now on, until `stop`.

    Args:
        group: an aikido group; None is the default group. All groups are recorded.

    Raises:
        ConfigError: there is no aikido group.
    """
    backend_of(group)
    job_of()
    with _lock:
        _recording.add(os.getpid())
        _held.add(os.getpid())
        recorder_of_process().arm()
    for watch in list(_watching):
        watch.on_armed()


def stop() -> None:
    """Stops the recording. Its spans remain available to `take` and `save`."""
    with _lock:
        recorder_of_process().disarm()
        _recording.discard(os.getpid())


def take(*, group: dist.ProcessGroup | None = None) -> Dump:
    """Takes all spans that were recorded since the last call.

    Args:
        group: group whose rank 0 has the reference clock; None is the default group.
    """
    with _lock:
        raw, dump = _taken(group)
        _release()
    dump.spans = dump.in_job(unpack(raw))
    return dump


def take_free(group: dist.ProcessGroup | None = None) -> bytes | None:
    """Takes the spans as the content of a file. It holds the GIL for a short time only.

    Returns:
        None, and takes nothing, if the spans were recorded by hand, because they belong
        to the caller of `start`.
    """
    with _lock:
        if os.getpid() in _held:
            return None
        raw, dump = _taken(group)
    return encode(dump, raw)


def save(path: str | Path, *, group: dist.ProcessGroup | None = None) -> bool:
    """Takes all recorded spans and writes them to a file of this rank.

    A path that cannot be written gives a warning, so that no training ends for a trace.

    Args:
        path: a different one on each rank.
        group: as for `take`.

    Returns:
        True if the file was written. Otherwise the next `save` or `take` has the spans.

    Raises:
        ConfigError: there is no aikido group.
    """
    backend_of(group)
    try:
        with _lock:
            raw, dump = _taken(group)
            try:
                write_file(path, encode(dump, raw))
            except ConfigError:  # for example a full disk
                _left[os.getpid()] = raw, dump.dropped
                raise
            _release()
    except ConfigError as error:
        warnings.warn(f"trace.save: {error}", stacklevel=2)
        return False
    return True


def _release() -> None:
    if os.getpid() not in _recording:
        _held.discard(os.getpid())


def _taken(group: dist.ProcessGroup | None) -> tuple[bytes, Dump]:
    backend = backend_of(group)
    # The clock comes first, because it waits for the progress thread. That thread
    # records a call a moment after the caller has received its end.
    clock = _clock(backend)
    raw, dropped, names = recorder_of_process().take()
    left, dropped_before = _left.pop(os.getpid(), (b"", 0))
    known = members_of_groups()
    rank, size = backend.place
    own = known.get(backend.options.group_name, ())
    if group is not None and group != dist.group.WORLD and rank < len(own):
        rank, size = own[rank], dist.get_world_size()
    return left + raw, Dump(
        rank=rank,
        size=size,
        job=job_of(),
        names=names,
        # The members of a group that has ended may be unknown.
        members={name: known.get(name, ()) for name in names},
        operations=_C.operation_names(),
        dropped=dropped_before + dropped,
        clock=clock,
        host=f"{socket.gethostname()} (process {os.getpid()})",
        wall_ns=time.time_ns() - time.monotonic_ns(),
    )


def _clock(backend: _C.AikidoBackend) -> Clock | None:
    try:
        line = backend.clock_of_rank_0()
    except AikidoError:  # the group has ended, but its spans are still useful
        return None
    return None if line is None else Clock(*line)


def address() -> str | None:
    """Address of this job's store, for `python -m aikido_torch.trace arm --store`.

    None if the store exists only inside one process.
    """
    return address_of(_get_default_store())


def job_of() -> str:
    """Name of the job, on which all ranks agree through its store.

    Requested when recording begins, because the store may be gone later.
    """
    if (known := _jobs.get(os.getpid())) is not None:
        return known
    try:
        store = _get_default_store()
        name = store.compare_set("aikido_trace_job", "", uuid.uuid4().hex)
    # The store has gone, or there is no default group.
    except (RuntimeError, ValueError):
        return "unknown"
    _jobs[os.getpid()] = bytes(name).decode()
    return _jobs[os.getpid()]
