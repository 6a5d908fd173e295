# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Events of torch.profiler in the same file as aikido's traces, by one clock.

The profiler (Kineto) writes microseconds of the wall clock, counted from
`baseTimeNanoseconds`. A dump knows the difference between the wall clock and the clock
of its spans, and the relation of the latter to the clock of rank 0.
"""

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aikido_torch.errors import ConfigError
from aikido_torch.trace.record._dump import Clock, Dump

__all__ = ["Profile", "profiler_events", "read_profile"]

# Process ids of profiles begin here, above those of all ranks.
_FIRST_PROCESS = 1_000_000
_PROCESSES = 1000  # process ids reserved for one rank

_GZIP = b"\x1f\x8b"  # first bytes of a compressed file

_Event = dict[str, Any]


class Profile:
    """Trace of torch.profiler on one rank.

    Attributes:
        rank: rank of the profile; None if the file does not name it.
        base_ns: wall clock time from which its times count.
        events: events in the format of Chrome's traces.
        name: name of its file, for errors.
    """

    def __init__(
        self, rank: int | None, base_ns: int, events: list[_Event], name: str
    ) -> None:
        self.rank, self.base_ns, self.events, self.name = rank, base_ns, events, name


def read_profile(path: str | Path) -> Profile:
    """Reads a file of `torch.profiler.profile.export_chrome_trace`, also a compressed
    one (.gz).

    Raises:
        ConfigError: the file cannot be read, or has another format.
    """
    hint = "give a file that torch.profiler's export_chrome_trace has written"
    try:
        content = Path(path).read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        document = json.loads(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(
            f"{path} is not completely compressed ({error}); {hint}."
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}; {hint}."
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON ({error}); {hint}.") from error
    events = document.get("traceEvents") if isinstance(document, dict) else None
    base = document.get("baseTimeNanoseconds") if events is not None else None
    is_list = isinstance(events, list) and all(isinstance(e, dict) for e in events)
    if events is None or not is_list or not isinstance(base, int):
        raise ConfigError(
            f"{path} has no traceEvents with a baseTimeNanoseconds, so nobody knows "
            f"when they were; {hint}, of torch 2.4 or later."
        )
    job = document.get("distributedInfo")
    rank = job.get("rank") if isinstance(job, dict) else None
    return Profile(rank if isinstance(rank, int) else None, base, events, str(path))


def profiler_events(
    dumps: Iterable[Dump], profiles: Iterable[Profile], zero_ns: int
) -> list[_Event]:
    """The events of profiles by the clock of rank 0, counted from `zero_ns`.

    A profile without a rank belongs to rank 0 if there is only one dump.

    Raises:
        ConfigError: a profile's rank is unknown, has no dump, or is there twice, or its
            dump does not know the wall clock.
    """
    known = {dump.rank: dump for dump in dumps}
    found: list[_Event] = []
    seen: set[int] = set()
    for profile in profiles:
        rank = profile.rank
        if rank is None and len(known) == 1:
            rank = next(iter(known))
        if rank is None:
            raise ConfigError(
                f"{profile.name} does not say which rank it is of; profile after "
                "init_process_group, or write it as RANK=FILE."
            )
        if rank not in known:
            raise ConfigError(
                f"{profile.name} is of rank {rank}, and there are traces of ranks "
                f"{', '.join(map(str, sorted(known)))}; give the trace of rank {rank} "
                "too."
            )
        if rank in seen:
            raise ConfigError(f"Rank {rank} has two profiles; give one of each rank.")
        seen.add(rank)
        found += _moved(profile, known[rank], zero_ns)
    return found


def _moved(profile: Profile, dump: Dump, zero_ns: int) -> list[_Event]:
    if dump.wall_ns is None:
        raise ConfigError(
            f"The trace of rank {dump.rank} is of an older version and does not know "
            f"the wall clock, so {profile.name} cannot be placed beside it; record it "
            "again."
        )
    clock = dump.clock or Clock()
    processes: dict[Any, int] = {}
    moved = []
    for event in profile.events:
        pid = event.get("pid")
        number = (
            _FIRST_PROCESS
            + dump.rank * _PROCESSES
            + processes.setdefault(pid, len(processes))
        )
        new = event | {"pid": number}
        if isinstance(ts := event.get("ts"), int | float) and event.get("ph") != "M":
            own_ns = profile.base_ns + round(ts * 1e3) - dump.wall_ns
            new["ts"] = (clock.of_rank_0(own_ns) - zero_ns) / 1e3
        # Ids of arrows are made unique, because profiles of other ranks have the same.
        if "id" in event:
            new["id"] = f"profiler {dump.rank} {event['id']}"
        moved.append(new)
    named = {e["pid"] for e in moved if e.get("name") == "process_name"}
    for event in moved:
        if event.get("name") == "process_name":
            old = (event.get("args") or {}).get("name", "")
            event["args"] = {"name": f"rank {dump.rank}, torch.profiler: {old}"}
        if event.get("name") == "process_sort_index":
            event["args"] = {"sort_index": event["pid"]}
    first = _FIRST_PROCESS + dump.rank * _PROCESSES
    for number in {first + i for i in processes.values()} - named:
        moved.append(
            {"ph": "M", "pid": number, "tid": 0, "name": "process_name"}
            | {"args": {"name": f"rank {dump.rank}, torch.profiler"}}
        )
    return moved
