# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import re
import sys
from typing import ClassVar
from urllib.request import urlopen

import pytest
import torch
import torch.distributed as dist

from aikido_torch._backend import backend_of
from aikido_torch.ddp._taken_work import TakenWork
from aikido_torch.errors import ConfigError, UnsupportedError
from aikido_torch.straggler._progress import Progress
from aikido_torch.trace.export import _metrics
from aikido_torch.trace.export._metrics import serve
from aikido_torch.trace.record._log import event_names


@pytest.fixture
def metrics(group_of_one):
    pytest.importorskip("prometheus_client")
    served = serve(0)
    yield served
    served.close()


def read(metrics):
    with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_counters_grow_with_the_calls(metrics):
    before = read(metrics)
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    after = read(metrics)
    key = 'aikido_operations_total{rank="0"}'
    assert float(after[key]) - float(before[key]) == 3
    assert after['aikido_operations_failed_total{rank="0"}'] == "0.0"
    assert after['aikido_group_size{rank="0"}'] == "1.0"
    assert after['aikido_member{rank="0"}'] == "1.0"
    assert after['aikido_clock_offset_seconds{rank="0"}'] == "0.0"


def test_names_have_the_units_and_suffixes_of_opentelemetry(metrics):
    for name in (key.partition("{")[0] for key in read(metrics)):
        assert re.fullmatch(r"aikido_[a-z]+(_[a-z0-9]+)*", name), name
        assert not re.search(r"_(us|ms|ns|mb|kb|per_s)(_|$)", name), name


def test_time_spent_sending_is_counted_in_seconds(group_of_one, monkeypatch):
    class Counting:
        place, standing, group_name = (0, 2), "member", "default"
        counters = dict.fromkeys(backend_of(None).counters, 7) | {
            "queued_us": 1_500_000, "paused_us": 20, "wire_us": 3_000_000,
        }  # fmt: skip

        def clock_of_rank_0(self):
            return None

    pytest.importorskip("prometheus_client")
    served = serve(0)
    monkeypatch.setattr(_metrics, "backend_of", lambda _: Counting())
    seen = read(served)
    served.close()
    wanted = {
        "send_queued_time_seconds_total": 1.5,
        "send_paused_time_seconds_total": 2e-5,
        "send_wire_time_seconds_total": 3.0,
        "send_preemptions_total": 7.0,
        "send_rate_bytes_per_second": 7.0,
    }
    for name, value in wanted.items():
        assert float(seen[f'aikido_{name}{{rank="0"}}']) == value


def test_progress_comes_from_the_last_minute_of_the_model(metrics):
    class Shares:
        last = None

        def gain_of(self, counters):
            return 0.25 if counters["replayed_operations"] == 0 else None

    shares = Shares()
    _metrics.progress_on[backend_of(None)] = shares
    assert not [key for key in read(metrics) if "_per_second" in key and "step" in key]
    shares.last = Progress(steps_per_second=8.0, shares=(1.0, 0.25, 1.0, 0.75))
    seen = read(metrics)
    labels = f'group="{backend_of(None).group_name}",rank="0"'
    assert seen[f"aikido_steps_per_second{{{labels}}}"] == "8.0"
    assert seen[f"aikido_progress_full_steps_per_second{{{labels}}}"] == "6.0"
    assert seen[f"aikido_skipping_gain_ratio{{{labels}}}"] == "0.25"
    by_rank = [
        seen[f'aikido_contribution_ratio{{contributor="{r}",{labels}}}']
        for r in range(4)
    ]
    assert by_rank == ["1.0", "0.25", "1.0", "0.75"]


def test_micro_batches_that_were_taken_over_are_counted_by_owner(metrics):
    assert not [key for key in read(metrics) if "micro_batches" in key]
    taken = TakenWork(backend_of(None))
    taken.add(2, 7, 0, 0.5)
    taken.add(2, 8, 0, 0.25)
    taken.add(1, 9, 0, 2.0)
    seen = read(metrics)
    for owner, count, seconds in ((1, "1.0", "2.0"), (2, "2.0", "0.75")):
        labels = f'group="{backend_of(None).group_name}",owner="{owner}",rank="0"'
        name = "aikido_micro_batches_taken"
        assert seen[f"{name}_total{{{labels}}}"] == count
        assert seen[f"{name}_time_seconds_total{{{labels}}}"] == seconds
    key = 'aikido_member_events_total{cause="took_over",event="takeover",rank="0"}'
    assert float(seen[key]) >= 3


def test_each_event_of_a_member_is_counted_once(group_of_one):
    def event(number, kind, group="default"):
        return {"number": number, "kind": kind, "group": group}

    class Journal:
        past: ClassVar[list] = [event(1, "late"), event(2, "lost"), event(3, "late")]

        def events(self, after):
            return [each for each in self.past if each["number"] > after]

    journal = Journal()
    collector = _metrics._Collector(None, journal)
    assert collector._events_of("default")["late"] == 2
    # Events 1 to 3 have left the journal and still count.
    journal.past = [event(4, "stood_in"), event(5, "silent"), event(6, "late", "other")]
    counted = collector._events_of("default")
    assert counted == dict.fromkeys(event_names, 0) | {
        "late": 2, "lost": 1, "stood_in": 1, "silent": 1,
    }  # fmt: skip
    assert collector._events_of("default") == counted


def test_events_of_members_have_the_same_names_as_in_the_log(metrics):
    seen = read(metrics)
    assert seen['aikido_member_events_total{cause="lost",event="death",rank="0"}'] == (
        "0.0"
    )
    key = 'aikido_member_events_total{cause="stood_in",event="takeover",rank="0"}'
    assert seen[key] == "0.0"


def test_a_port_in_use_gives_a_warning_and_the_first_endpoint_continues(metrics):
    with pytest.warns(match=r"cannot be listened on: Address already in use"):
        second = serve(metrics.port)
    assert second.port is None
    second.close()
    assert read(metrics)


@pytest.mark.parametrize("port", [-1, 70_000])
def test_an_invalid_port_gives_a_clear_error(group_of_one, port):
    pytest.importorskip("prometheus_client")
    with pytest.raises(ConfigError, match="give one from 1 to 65535"):
        serve(port)


def test_the_endpoint_outlives_its_group(metrics):
    dist.destroy_process_group()
    assert isinstance(read(metrics), dict)


def test_without_the_package_the_error_says_what_to_install(group_of_one, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UnsupportedError, match=r"aikido-torch\[metrics\]"):
        serve(0)
