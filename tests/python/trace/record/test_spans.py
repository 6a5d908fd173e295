# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch import _C
from aikido_torch.trace.record._spans import SPAN_BYTES, Kind, Span, pack, unpack


def test_packed_spans_are_unpacked_unchanged():
    first = Span(*range(1, 16))
    second = Span(*range(21, 36))._replace(step=-1, peer=-1)
    raw = pack([first, second])
    assert len(raw) == 2 * SPAN_BYTES
    assert unpack(raw) == [first, second]


def test_a_span_of_the_recorder_is_read_field_by_field():
    recorder = _C.Recorder(16)
    name = recorder.name("forward")
    recorder.section(name=name, begin_ns=5, end_ns=9, step=3)
    raw, dropped, names = recorder.take()
    (span,) = unpack(raw)
    assert (span.kind, span.begin_ns, span.end_ns, span.step) == (Kind.SECTION, 5, 9, 3)
    assert names[span.name] == "forward"
    assert dropped == 0


def test_a_full_recorder_counts_the_dropped_spans():
    recorder = _C.Recorder(2)
    for step in range(5):
        recorder.section(0, 1, 2, step)
    raw, dropped, _ = recorder.take()
    assert [span.step for span in unpack(raw)] == [0, 1]
    assert dropped == 3


@pytest.mark.parametrize(
    ("step", "armed"), [(1, False), (2, True), (4, True), (5, False)]
)
def test_only_the_requested_steps_are_recorded(step, armed):
    recorder = _C.Recorder(2)
    recorder.arm_steps(2, 4)
    recorder.set_step(step)
    assert recorder.is_armed is armed
