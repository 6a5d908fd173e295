# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
import torch.distributed as dist

from aikido_torch import trace
from aikido_torch.errors import ConfigError
from aikido_torch.trace.record import _record
from aikido_torch.trace.record._record import take_free
from aikido_torch.trace.record._spans import Kind


def test_without_a_group_there_is_nothing_to_record():
    with pytest.raises(ConfigError, match=r"init_process_group\('aikido'\)"):
        trace.start()


def test_calls_are_recorded_between_start_and_stop(group_of_one, tmp_path):
    _record.take()
    dist.all_reduce(torch.ones(3))
    trace.start()
    dist.all_reduce(torch.ones(8))
    dist.broadcast(torch.ones(2), src=0)
    trace.stop()
    dist.all_reduce(torch.ones(3))
    path = tmp_path / "rank0.trace"
    trace.save(path)
    dump = trace.read(path)
    calls = [s for s in dump.spans if s.kind == Kind.OPERATION]
    named = [(dump.operations[s.detail], s.bytes) for s in calls]
    assert named == [("all_reduce", 32), ("broadcast", 8)]
    assert all(s.end_ns >= s.begin_ns > 0 for s in calls)
    assert (dump.rank, dump.size) == (0, 1)
    assert dump.clock is not None
    assert dump.clock.offset_ns == 0
    assert _record.take().spans == []


def test_the_profiler_of_torch_shows_calls_by_name(group_of_one):
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profiler:
        dist.all_reduce(torch.ones(8))
        dist.broadcast(torch.ones(2), src=0)
    names = {event.key for event in profiler.key_averages()}
    assert {"aikido:all_reduce", "aikido:broadcast"} <= names


def test_spans_recorded_by_hand_are_given_to_no_other_caller(group_of_one, tmp_path):
    _record.take()
    assert take_free() is not None
    trace.start()
    dist.all_reduce(torch.ones(8))
    assert take_free() is None
    assert len(_record.take().spans) > 0
    assert take_free() is None  # the recording continues
    trace.stop()
    assert take_free() is None
    trace.save(tmp_path / "rank0.trace")
    assert take_free() is not None


def recorded():
    _record.take()
    trace.start()
    dist.all_reduce(torch.ones(8))
    trace.stop()


def test_a_missing_folder_gives_a_warning_and_no_span_is_lost(group_of_one, tmp_path):
    recorded()
    with pytest.warns(match="cannot be written"):
        assert not trace.save(tmp_path / "no" / "rank0.trace")
    assert trace.save(tmp_path / "rank0.trace")
    kinds = [s.kind for s in trace.read(tmp_path / "rank0.trace").spans]
    assert kinds.count(Kind.OPERATION) == 1


def test_spans_that_a_full_disk_refused_are_written_the_next_time(
    group_of_one, tmp_path, monkeypatch
):
    recorded()

    def is_full(path, data):
        raise ConfigError(f"{path} cannot be written: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("aikido_torch.trace.record._record.write_file", is_full)
        with pytest.warns(match="No space left"):
            assert not trace.save(tmp_path / "rank0.trace")
    dist.all_reduce(torch.ones(8))
    kinds = [s.kind for s in _record.take().spans]
    assert kinds.count(Kind.OPERATION) == 1
    assert _record.take().spans == []
