# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import contextlib
import json
import zlib

import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.trace import read
from aikido_torch.trace.record._dump import (
    Clock,
    check_together,
    check_writable,
    encode,
)
from aikido_torch.trace.record._spans import Kind, pack
from harness.traces import MS, backed_up_call, dump, span


def example(rank=1, **fields):
    spans = [
        span(Kind.OPERATION, 10, 20, first_ns=12 * MS, number=3, step=7, peer=2),
        span(Kind.SECTION, 5, 9, name=2, step=7),
    ]
    return dump(rank, spans, clock=Clock(3, -4, 1e-5, 6), dropped=8, **fields)


def test_a_written_dump_is_read_unchanged(tmp_path):
    path = tmp_path / "rank1.trace"
    example().write(path)
    assert read(path) == example()
    assert read(path.read_bytes()) == example()


def test_peers_are_ranks_of_the_group_in_a_file_and_of_the_job_in_memory():
    groups = {"default": (0, 1, 2, 3), "data": (2, 3), "forward": ()}
    in_group = [
        span(Kind.OPERATION, 10, 20, peer=1, name=0),
        span(Kind.SEND, 10, 20, peer=0, name=1),
        span(Kind.RECEIVE_CHUNK, 10, 20, peer=1, name=1),
        span(Kind.OPERATION, 10, 20, peer=-1, name=1),
        span(Kind.SEND, 10, 20, peer=1, name=2),  # group with unknown members
        span(Kind.SEND, 10, 20, peer=1, name=3),  # whole job, as the group is unknown
        span(Kind.SEND, 10, 20, peer=7, name=1),  # group without such a rank
    ]
    given = dump(2, [], members=groups)
    got = read(encode(given, pack(in_group)))
    assert [s.peer for s in got.spans] == [1, 2, 3, -1, -1, 1, -1]
    assert got.members == groups
    assert read(got.to_bytes()) == got
    assert got.groups()[1:4] == [
        ("data", (2, 3)),
        ("forward", ()),
        ("backward", (0, 1, 2, 3)),
    ]


def test_a_dump_of_the_previous_version_is_read():
    assert read(with_head(version=2)) == example()


def test_the_primary_of_a_hole_is_the_rank_of_the_job_with_its_data_shard():
    (hole, _) = backed_up_call(1, (1, 3))
    assert dump(0, []).primary_of(hole) == 1
    assert dump(0, [], members={"default": (4, 6, 7, 9)}).primary_of(hole) == 6
    assert dump(0, [], members={"default": ()}).primary_of(hole) is None
    made = dump(0, [hole._replace(name=9)])
    with pytest.raises(ConfigError, match="lacks or garbles names"):
        read(made.to_bytes())


@pytest.mark.parametrize("keep", [0.6, 0.97])
def test_a_truncated_dump_gives_an_error_with_its_name(tmp_path, keep):
    data = example().to_bytes()
    path = tmp_path / "cut.trace"
    path.write_bytes(data[: round(len(data) * keep)])
    with pytest.raises(ConfigError, match=r"cut\.trace is (truncated|no trace)"):
        read(path)


def test_changed_bytes_are_detected():
    data = bytearray(example().to_bytes())
    data[-3] ^= 1
    with pytest.raises(ConfigError, match="its checksum is wrong"):
        read(bytes(data))


def test_a_changed_digit_of_the_first_line_is_detected():
    data = example().to_bytes()
    at = data.index(b'"dropped": ') + len(b'"dropped": ')
    data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    with pytest.raises(ConfigError, match="checksum of its first line is wrong"):
        read(data, "the file")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "is no trace of aikido"),
        (b"\x80\x81\n", "is no trace of aikido"),
        (b"[1]\n", "is no trace of aikido"),
        (b'{"format": "aikido-trace", "version": 9}\n', "has version 9"),
        (b'{"format": "aikido-trace", "version": 1}\n', "1 and this.* 2 and 3; read"),
        (b'{"format": "aikido-trace", "version": 2}\n', "lacks or garbles 'num_bytes'"),
        (b'{"format": "aikido-trace", "version": 3}\n', "lacks or garbles 'num_bytes'"),
    ],
)
def test_data_that_is_no_dump_gives_a_clear_error(data, text):
    with pytest.raises(ConfigError, match=text):
        read(data, "the file")


def with_head(**changes):
    """A dump with changes in its first line; None removes a field."""
    line, _, packed = example().to_bytes().partition(b"\n")
    head = json.loads(line) | changes
    head = {name: value for name, value in head.items() if value is not None}
    return json.dumps(head).encode() + b"\n" + packed


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"names": []}, "lacks or garbles names"),
        ({"names": 7}, "lacks or garbles"),
        ({"operations": [1]}, "lacks or garbles"),
        ({"rank": float("inf")}, "lacks or garbles"),
        ({"num_spans": 9}, "lacks or garbles num_spans"),
        ({"clock": [1, 2]}, "lacks or garbles"),
        ({"clock": [1, 2, "a", 4]}, "lacks or garbles clock"),
        ({"clock": [1, 2, float("nan"), 4]}, "lacks or garbles clock"),
        ({"host": None}, "lacks or garbles 'host'"),
    ],
)
def test_a_damaged_first_line_gives_an_error_with_the_name(changes, text):
    with pytest.raises(ConfigError, match=f"the file is damaged.*{text}"):
        read(with_head(**changes), "the file")


@pytest.mark.parametrize("raw", [b"no deflate", zlib.compress(b"half a span")])
def test_unreadable_spans_give_an_error_with_the_name(raw):
    data = with_head(num_bytes=len(raw), crc32=zlib.crc32(raw)).partition(b"\n")[0]
    with pytest.raises(ConfigError, match="the file is damaged: its spans cannot"):
        read(data + b"\n" + raw, "the file")


def test_any_changed_byte_of_the_first_line_is_read_or_gives_a_clear_error():
    data = example().to_bytes()
    for place in range(data.index(b"\n")):
        for byte in b'0]"x':
            changed = data[:place] + bytes([byte]) + data[place + 1 :]
            with contextlib.suppress(ConfigError):
                read(changed, "the file").aligned()


def test_a_missing_file_gives_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "none.trace")


def test_a_path_that_cannot_be_written_gives_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        example().write(tmp_path / "no" / "folder")


def test_a_path_is_checked_without_writing(tmp_path):
    old = tmp_path / "old"
    old.write_bytes(b"data")
    check_writable(old)
    assert old.read_bytes() == b"data"
    check_writable(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    for path in (tmp_path, tmp_path / "no" / "folder", old / "below"):
        with pytest.raises(ConfigError, match="cannot be written"):
            check_writable(path)


def test_times_are_aligned_to_the_clock_of_rank_0():
    clock = Clock(at_ns=10 * MS, offset_ns=-3 * MS, drift=0.01)
    raw = [span(Kind.OPERATION, 10, 110, first_ns=60 * MS), span(Kind.STOP, 10, 20)]
    first, second = dump(1, raw, clock=clock).aligned()
    assert (first.begin_ns, first.first_ns, first.end_ns) == (
        7 * MS,
        57.5 * MS,
        108 * MS,
    )
    assert second.first_ns == 0


def test_dumps_of_different_jobs_are_not_mixed():
    with pytest.raises(ConfigError, match="of different jobs: rank 0 is of 'a job'"):
        check_together([example(0), example(1, job="another")])


def test_two_dumps_of_one_rank_are_refused():
    with pytest.raises(ConfigError, match="Rank 1 is there twice"):
        check_together([example(0), example(1), example(1)])


def test_missing_ranks_and_spans_are_reported():
    others = [dump(0, []), dump(1, [], clock=None), dump(3, [], dropped=5)]
    assert check_together(others) == [
        "rank 2 of 4 is missing: nothing is known of what it did.",
        "rank 1 did not know the clock of rank 0: its times may be off against those "
        "of the others.",
        "rank 3 had no room for 5 spans: trace fewer steps.",
    ]


def test_an_empty_list_of_dumps_gives_a_clear_error():
    with pytest.raises(ConfigError, match="no trace to look at"):
        check_together([])
