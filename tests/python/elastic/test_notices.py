# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import os
import signal
import threading

import pytest

from aikido_torch.elastic._notices import (
    FileSource,
    Found,
    Notice,
    SourceError,
    Watcher,
    evicted_members,
    objection,
)
from aikido_torch.errors import ConfigError


class Scripted:
    """Source whose polls have the given results, and then None."""

    name = "scripted"

    def __init__(self, *results):
        self._results = list(results)
        self.is_over = threading.Event()

    def poll(self):
        if not self._results:
            self.is_over.set()
            return None
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def watch():
    made = []

    def make(*sources, **options):
        options = {"signals": (), "clock": lambda: 100.0, "poll_s": 0.01} | options
        made.append(Watcher(sources, **options))
        return made[-1]

    yield make
    for watcher in made:
        watcher.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_a_notice_and_close_restores_its_handler(watch, number):
    before = signal.getsignal(number)
    watcher = watch(signals=[number], signal_warning_s=20)
    os.kill(os.getpid(), number)
    notice = watcher.notice
    assert notice == Notice(number.name, "this process received it", 100.0, 20)
    assert notice.remaining_s(105.0) == 15
    assert notice.remaining_s(200.0) == 0
    watcher.close()
    assert signal.getsignal(number) == before


def test_signals_outside_of_the_main_thread_are_refused(watch):
    found = []

    def make():
        try:
            watch(signals=[signal.SIGUSR1])
        except ConfigError as error:
            found.append(str(error))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert "need a call from the main thread" in found[0]


def test_the_earliest_eviction_counts(watch):
    watcher = watch()
    assert watcher.notice is None
    watcher.add("AWS", "terminate", 120)
    watcher.add("SIGTERM", "received", 30)
    watcher.add("SIGTERM", "received again", 5)
    assert watcher.notice.source == "SIGTERM"
    assert watcher.notice.warning_s == 30


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 30), ("12.5\n", 12.5), ("soon", 30), ("-1", 30), ("nan", 30), ("inf", 30)],
)
def test_a_file_is_a_notice(tmp_path, text, seconds):
    source = FileSource(tmp_path / "evict", warning_s=30)
    assert source.poll() is None
    (tmp_path / "evict").write_text(text)
    assert source.poll() == Found("the file exists", seconds)


def test_a_file_that_cannot_be_read_gets_a_sentence(tmp_path):
    with pytest.raises(SourceError, match="cannot be read: Is a directory"):
        FileSource(tmp_path).poll()


def test_the_thread_polls_until_it_finds_a_notice(watch):
    source = Scripted(None, Found("a test", 60))
    watcher = watch(source)
    assert source.is_over.wait(10)
    assert watcher.notice == Notice("scripted", "a test", 100.0, 60)


def test_a_problem_is_told_once_until_it_changes(watch):
    told = []
    first, second = SourceError("it hangs"), SourceError("it lies")
    source = Scripted(first, first, second, second, None, first)
    watcher = watch(source, on_problem=told.append)
    assert source.is_over.wait(10)
    begin = "elastic: eviction notices of scripted may be missed: "
    assert told == [
        begin + "it hangs.",
        begin + "it lies.",
        begin + "it hangs.",
    ]
    assert watcher.notice is None


def test_a_problem_that_is_over_is_not_a_problem(watch):
    watcher = watch()
    watcher._sources = (Scripted(SourceError("it hangs"), None),)
    watcher.poll()
    assert len(watcher.problems) == 1
    watcher.poll()
    assert watcher.problems == ()


def test_a_notice_to_a_member_of_a_host_counts_for_the_host():
    hosts = {"a": "h1", "b": "h2", "c": "h1", "d": "", "e": ""}
    assert evicted_members(["c"], hosts) == ("a", "c")
    assert evicted_members(["d"], hosts) == ("d",)
    assert evicted_members([], hosts) == ()
    assert evicted_members(["gone"], hosts) == ()


def test_a_notice_to_a_reliable_member_gets_a_sentence():
    roles = {"a": "reliable", "b": "reliable", "c": "transient"}
    assert objection(["c"], roles) is None
    assert "1 of 2 reliable members stay" in objection(["b", "c"], roles)
    text = objection(["a", "b"], roles)
    assert "all 2 reliable members have an eviction notice: a, b" in text
    assert "Save a checkpoint now" in text
