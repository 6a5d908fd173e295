# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
import threading
import time

import pytest

from benchmarks.straggler_cases.meeting import Host, Meeting

WITHIN_S = 20


@pytest.fixture
def host(tmp_path):
    """A host with three connected ranks, which records all messages."""
    heard = []

    def on_met(key, values):
        heard.append((key, values))
        return 0.0

    def on_told(rank, message):
        heard.append((rank, message))

    host = Host(str(tmp_path), 3, on_met=on_met, on_told=on_told)
    ranks = [Meeting(str(tmp_path), rank, within_s=WITHIN_S) for rank in range(3)]
    yield host, ranks, heard
    host.close()


def together(*calls):
    """Runs each call on a thread of its own; returns their results, or the errors
    raised.
    """
    found = [None] * len(calls)

    def run(i):
        try:
            found[i] = calls[i]()
        except (SystemExit, OSError) as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)
    return found


def test_all_get_what_all_brought_and_the_host_hears_it_once(host):
    _, ranks, heard = host
    found = together(
        *(
            lambda r=r, i=i: r.meet("block", 4, value=i * 10)
            for i, r in enumerate(ranks)
        )
    )
    assert found == [{0: 0, 1: 10, 2: 20}] * 3
    assert heard == [(["block", 4], {0: 0, 1: 10, 2: 20})]


def test_all_go_on_at_the_moment_that_the_host_gives(tmp_path):
    later = time.monotonic() + 0.3
    host = Host(str(tmp_path), 2, on_met=lambda key, values: later, on_told=print)
    ranks = [Meeting(str(tmp_path), rank, within_s=WITHIN_S) for rank in range(2)]

    def come(rank):
        rank.meet("step", 0)
        return time.monotonic()

    found = together(*(lambda r=r: come(r) for r in ranks))
    host.close()
    assert min(found) >= later


def test_a_rank_that_is_gone_is_not_waited_for(host):
    _, ranks, heard = host
    ranks[1].tell(reached=7)
    together(*(lambda r=r: r.meet("block", 0) for r in ranks))
    assert (1, {"reached": 7}) in heard
    ranks[1]._lines.close()
    ranks[1]._connection.close()
    found = together(*(lambda r=ranks[i]: r.meet("end", 0) for i in (0, 2)))
    assert found == [{0: None, 2: None}] * 2


def test_ranks_at_different_places_are_an_error_and_nobody_waits_for_ever(host):
    meeting, ranks, _ = host
    found = together(
        *(lambda r=r, i=i: r.meet("block", i // 2) for i, r in enumerate(ranks))
    )
    assert "do not meet at the same place" in str(meeting.error)
    assert all(isinstance(error, SystemExit | OSError) for error in found)


def test_what_is_due_is_done_then_unless_it_is_forgotten(tmp_path):
    done = []

    def on_met(key, values):
        now = time.monotonic()
        if key[0] == "end":
            host.forget()
            return now + 0.3
        host.at(now + 0.05, lambda: done.append("soon"))
        host.at(now + 0.2, lambda: done.append("later"))
        return now + 0.1

    host = Host(str(tmp_path), 1, on_met=on_met, on_told=print)
    rank = Meeting(str(tmp_path), 0, within_s=WITHIN_S)
    rank.meet("block", 0)
    rank.meet("end", 0)
    host.close()
    assert done == ["soon"]


def test_what_is_due_at_once_is_not_forgotten_by_what_was_read_with_it(tmp_path):
    done = []

    def on_met(key, values):
        host.forget()
        return time.monotonic()

    def on_told(rank, message):
        host.at(time.monotonic(), lambda: done.append(message["reached"]))

    host = Host(str(tmp_path), 1, on_met=on_met, on_told=on_told)
    rank = Meeting(str(tmp_path), 0, within_s=WITHIN_S)
    end = {"meet": ["end", 0], "value": None}
    lines = [{"reached": 4}, end]
    rank._connection.sendall(
        "".join(json.dumps(line) + "\n" for line in lines).encode()
    )
    assert rank._lines.readline()
    host.close()
    assert done == [4]
