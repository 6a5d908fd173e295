# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Recorded spans of one rank, in memory and as a file."""

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aikido_torch.errors import ConfigError
from aikido_torch.trace.record._spans import SPAN_BYTES, Kind, Span, pack, unpack

__all__ = [
    "Clock",
    "Dump",
    "check_together",
    "check_writable",
    "encode",
    "read",
    "write_file",
]

_FORMAT = "aikido-trace"
# The file has a line of JSON, then the compressed spans in their memory layout
# (csrc/trace/span.h).
_VERSION = 3
# Files of version 2 have no holes, and no number of data shards in calls.
_READABLE = (2, _VERSION)
# Kinds of spans with a name of their dump.
_NAMED = (Kind.OPERATION, Kind.RECEIVE_CHUNK, Kind.SECTION, Kind.HOLE)


@dataclass(frozen=True)
class Clock:
    """Linear relation between the clock of a rank and the clock of rank 0.

    Attributes:
        at_ns: reference time by the clock of the rank.
        offset_ns: clock of rank 0 minus that of the rank at this time.
        drift: nanoseconds that the clock of rank 0 gains per nanosecond.
        error_ns: half of the shortest round trip of the measurement.
    """

    at_ns: int = 0
    offset_ns: int = 0
    drift: float = 0.0
    error_ns: int = 0

    def of_rank_0(self, ns: int) -> int:
        """Converts a time of this rank to the time of rank 0, in ns."""
        return ns + self.offset_ns + round(self.drift * (ns - self.at_ns))


@dataclass
class Dump:
    """Recorded spans of one rank.

    Attributes:
        rank: rank of the recorder; here and in spans, ranks are those of the job.
        size: number of ranks of the job.
        job: name of the job, equal on all its ranks.
        names: names of groups and sections, by Span.name.
        members: members of each group by its name, in the order of their ranks there;
            empty if unknown. A group without an entry has the ranks of the job.
        operations: names of collectives, by Span.detail of an operation.
        spans: the spans, in no particular order.
        dropped: number of spans for which there was no room.
        clock: relation to the clock of rank 0; None if unknown.
        host: host of the rank.
        wall_ns: the wall clock (time.time_ns) minus the clock of the spans; None in
            dumps of older versions.
    """

    rank: int
    size: int
    job: str
    names: Sequence[str] = ()
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    operations: dict[int, str] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    dropped: int = 0
    clock: Clock | None = None
    host: str = ""
    wall_ns: int | None = None

    def aligned(self) -> list[Span]:
        """The spans by the clock of rank 0; unchanged if that is unknown."""
        if self.clock is None:
            return self.spans
        of_rank_0 = self.clock.of_rank_0
        return [
            span._replace(
                begin_ns=of_rank_0(span.begin_ns),
                first_ns=of_rank_0(span.first_ns) if span.first_ns else 0,
                end_ns=of_rank_0(span.end_ns),
            )
            for span in self.spans
        ]

    def groups(self) -> list[tuple[str, tuple[int, ...]]]:
        """By Span.name of a group's span: name and members of the group."""
        everybody = tuple(range(self.size))
        return [(name, self.members.get(name, everybody)) for name in self.names]

    def primary_of(self, hole: Span) -> int | None:
        """The primary whose data shard a hole belongs to; None if the members are
        unknown.
        """
        members = self.groups()[hole.name][1]
        return members[hole.shard] if hole.shard < len(members) else None

    def in_job(self, spans: list[Span]) -> list[Span]:
        """Converts peers from ranks of their group, as recorded, to ranks of the job.

        A peer becomes -1 if the members are unknown. That of a section is recorded as a
        rank of the job.
        """
        return self._renumbered(spans, lambda group: dict(enumerate(group)))

    def to_bytes(self) -> bytes:
        """The content of a file."""
        spans = self._renumbered(
            self.spans, lambda group: {rank: i for i, rank in enumerate(group)}
        )
        return encode(self, pack(spans))

    def _renumbered(
        self, spans: list[Span], table_of: Callable[[tuple[int, ...]], dict[int, int]]
    ) -> list[Span]:
        groups = [self.members.get(name) for name in self.names]
        tables = {
            number: table_of(group)
            for number, group in enumerate(groups)
            if group is not None and (not group or group != tuple(range(len(group))))
        }
        if not tables:
            return spans
        return [
            span._replace(peer=tables[span.name].get(span.peer, -1))
            if span.peer >= 0 and span.name in tables and span.kind != Kind.SECTION
            else span
            for span in spans
        ]

    def write(self, path: str | Path) -> None:
        """Writes the dump to a file.

        Raises:
            ConfigError: the file cannot be written.
        """
        write_file(path, self.to_bytes())


def encode(dump: Dump, raw: bytes) -> bytes:
    """The content of a file with the attributes of `dump` and the spans in `raw`."""
    packed = zlib.compress(raw, 1)
    clock = dump.clock
    head = {
        "format": _FORMAT,
        "version": _VERSION,
        "rank": dump.rank,
        "size": dump.size,
        "job": dump.job,
        "host": dump.host,
        "names": list(dump.names),
        "members": {name: list(ranks) for name, ranks in dump.members.items()},
        "operations": {str(kind): name for kind, name in dump.operations.items()},
        "dropped": dump.dropped,
        "wall_ns": dump.wall_ns,
        "clock": None
        if clock is None
        else [clock.at_ns, clock.offset_ns, clock.drift, clock.error_ns],
        "num_spans": len(raw) // SPAN_BYTES,
        "num_bytes": len(packed),
        "crc32": zlib.crc32(packed),
    }
    head["head_crc32"] = _crc32_of(head)
    return json.dumps(head).encode() + b"\n" + packed


def read(source: str | Path | bytes, name: str = "") -> Dump:
    """Reads a file of `Dump.write`.

    Args:
        source: a file, or the content of a file.
        name: name for errors; "" is the file.

    Raises:
        ConfigError: the file does not exist, has another format, or is truncated.
    """
    name = name or (str(source) if not isinstance(source, bytes) else "this dump")
    if isinstance(source, bytes):
        data = source
    else:
        try:
            data = Path(source).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{name} cannot be read: {error.strerror}; give a file that "
                "aikido_torch.trace.save or the command arm has written."
            ) from error
    line, _, packed = data.partition(b"\n")
    try:
        head = json.loads(line)
        is_ours = head["format"] == _FORMAT
    except (ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise ConfigError(
            f"{name} is no trace of aikido; give a file that aikido_torch.trace.save "
            "or the command arm has written."
        )
    if head.get("version") not in _READABLE:
        raise ConfigError(
            f"{name} has version {head.get('version')} and this aikido reads versions "
            f"{' and '.join(map(str, _READABLE))}; read it with the aikido that wrote "
            "it."
        )
    try:
        made = _decoded(head, packed, name)
    except (zlib.error, struct.error) as error:
        raise ConfigError(
            f"{name} is damaged: its spans cannot be read ({error}); write it again."
        ) from error
    except (
        AttributeError,
        IndexError,
        KeyError,
        OverflowError,
        TypeError,
        ValueError,
    ) as error:
        raise ConfigError(
            f"{name} is damaged: its first line lacks or garbles {error}; write it "
            "again."
        ) from error
    told = head.pop("head_crc32", None)  # earlier versions wrote none
    if told is not None and head["version"] == _VERSION and told != _crc32_of(head):
        raise ConfigError(
            f"{name} is damaged: the checksum of its first line is wrong; copy it "
            "again."
        )
    return made


def _crc32_of(head: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(head).encode())


def _decoded(head: dict[str, Any], packed: bytes, name: str) -> Dump:
    if len(packed) != head["num_bytes"]:
        raise ConfigError(
            f"{name} is truncated: {len(packed)} of {head['num_bytes']} bytes of spans "
            "are there; write or copy it again."
        )
    if zlib.crc32(packed) != head["crc32"]:
        raise ConfigError(f"{name} is damaged: its checksum is wrong; copy it again.")
    raw = zlib.decompress(packed)
    spans = unpack(raw)
    if len(spans) != head["num_spans"]:
        raise ValueError("num_spans")
    clock = head["clock"]
    names = [str(text) for text in head["names"]]
    if any(s.name >= len(names) for s in spans if s.kind in _NAMED):
        raise IndexError("names")
    dump = Dump(
        rank=int(head["rank"]),
        size=int(head["size"]),
        job=str(head["job"]),
        host=str(head["host"]),
        names=names,
        members={
            str(name): tuple(int(rank) for rank in ranks)
            for name, ranks in dict(head["members"]).items()
        },
        operations={int(kind): str(n) for kind, n in head["operations"].items()},
        dropped=int(head["dropped"]),
        clock=None if clock is None else _clock(*clock),
        wall_ns=None if head.get("wall_ns") is None else int(head["wall_ns"]),
    )
    dump.spans = dump.in_job(spans)
    return dump


def _clock(at_ns: object, offset_ns: object, drift: object, error_ns: object) -> Clock:
    whole = [value for value in (at_ns, offset_ns, error_ns) if type(value) is int]
    if len(whole) != 3 or not isinstance(drift, int | float) or not abs(drift) < 1:
        raise ValueError("clock")
    return Clock(whole[0], whole[1], float(drift), whole[2])


def write_file(path: str | Path, data: bytes) -> None:
    """Writes a file; raises ConfigError with the reason if that is impossible."""
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise _unwritable(path, error) from error


def check_writable(path: str | Path) -> None:
    """Raises the error that `write_file` would raise, without changing the file."""
    path = Path(path)
    try:
        is_new = not path.exists()
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str | Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} cannot be written: {error.strerror}; give a file in a folder that "
        "exists and may be written to."
    )


def check_together(dumps: Iterable[Dump]) -> list[str]:
    """Sentences about problems of dumps that are evaluated together.

    Raises:
        ConfigError: there are none, they belong to several jobs, or a rank is there
            twice.
    """
    dumps = list(dumps)
    if not dumps:
        raise ConfigError("There is no trace to look at; give at least one.")
    first = dumps[0]
    seen: set[int] = set()
    for dump in dumps:
        if dump.job != first.job:
            raise ConfigError(
                f"The dumps are of different jobs: rank {first.rank} is of "
                f"{first.job!r} and rank {dump.rank} of {dump.job!r}; give those of "
                "one job."
            )
        if dump.rank in seen:
            raise ConfigError(f"Rank {dump.rank} is there twice; give each rank once.")
        seen.add(dump.rank)
    notes = []
    missing = [str(rank) for rank in range(first.size) if rank not in seen]
    if missing:
        several = len(missing) > 1
        notes.append(
            f"rank{'s' if several else ''} {', '.join(missing)} of {first.size}"
            f" {'are' if several else 'is'} missing: nothing is known of what"
            f" {'they' if several else 'it'} did."
        )
    for dump in dumps:
        if dump.clock is None:
            notes.append(
                f"rank {dump.rank} did not know the clock of rank 0: its times may be "
                "off against those of the others."
            )
        if dump.dropped:
            notes.append(
                f"rank {dump.rank} had no room for {dump.dropped} spans: trace fewer "
                "steps."
            )
    return notes
