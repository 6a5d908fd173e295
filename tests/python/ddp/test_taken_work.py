# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import time

from aikido_torch import trace
from aikido_torch._backend import backend_of, recorder_of_process, taken_on
from aikido_torch.ddp._taken_work import SECTION, TakenWork
from aikido_torch.trace.record._record import take
from aikido_torch.trace.record._spans import Kind


def last_event():
    return recorder_of_process().events(0)[-1]


def test_micro_batches_are_added_up_by_owner_and_are_events(group_of_one):
    backend = backend_of(None)
    taken = TakenWork(backend)
    assert taken_on[backend] is taken
    taken.add(3, 5, 0, 0.5)
    event = last_event()
    assert (event["kind"], event["member"], event["by"]) == ("took_over", 3, [0])
    assert (event["rank"], event["group"]) == (0, backend.group_name)
    taken.add(3, 6, 0, 0.25)
    taken.add(1, 7, 0, 1.0)
    assert taken.by_owner == {3: (2, 0.75), 1: (1, 1.0)}
    assert last_event()["number"] == event["number"] + 2


def test_a_micro_batch_is_a_span_only_while_spans_are_recorded(group_of_one):
    taken = TakenWork(backend_of(None))
    begin = time.monotonic_ns()
    taken.add(3, 5, begin, 0.5)
    trace.start()
    taken.add(2, 6, begin, 0.5)
    trace.stop()
    dump = take()
    (span,) = [s for s in dump.spans if s.kind == Kind.SECTION]
    assert dump.names[span.name] == SECTION
    assert (span.peer, span.number) == (2, 6)
    assert span.end_ns - span.begin_ns == 500_000_000
