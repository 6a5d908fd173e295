# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decisions and output of the demo; tests/python/multiproc/test_demo.py runs it."""

import io

import pytest
import typer
from rich.console import Console

from benchmarks import demo
from benchmarks.demo import Mode, Straggler
from benchmarks.lab import Lab

VALUES = {
    "data": "digits.npz",
    "steps": 200,
    "seed": 0,
    "delay_ms": 150.0,
    "late_share": 1 / 3,
    "mbit": 200.0,
    "slow_mbit": 20.0,
}


def console():
    return Console(file=io.StringIO(), width=200)


@pytest.mark.parametrize(
    ("asked", "reason", "chosen"),
    [
        (None, None, Straggler.UPLINK),
        (None, "It needs root.", Straggler.SLEEP),
        (Straggler.SLEEP, None, Straggler.SLEEP),
        (Straggler.UPLINK, None, Straggler.UPLINK),
    ],
)
def test_the_uplink_is_slow_where_that_is_possible(monkeypatch, asked, reason, chosen):
    monkeypatch.setattr(Lab, "unavailable", staticmethod(lambda: reason))
    shown = console()
    assert demo.choose(asked, shown) is chosen
    text = shown.file.getvalue()
    why = "It needs root. So the late rank sleeps instead of having a slow uplink.\n"
    assert text == (why if reason else "")


def test_a_slow_uplink_that_cannot_be_had_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr(Lab, "unavailable", staticmethod(lambda: "It needs root."))
    with pytest.raises(
        typer.BadParameter, match=r"--straggler uplink: It needs root\."
    ):
        demo.choose(Straggler.UPLINK, console())


def test_a_plan_has_what_its_straggler_takes_and_says_so():
    slow = demo.plan_for(Mode.SKIP, Straggler.UPLINK, **VALUES)
    assert (slow.delay_ms, slow.late_share, slow.slow_mbit) == (0, 0, 20)
    assert demo.describe(slow) == (
        "4 ranks, 200 steps; links of 200 Mbit/s; the uplink of rank 3 has 20 Mbit/s "
        "from step 60 to 120"
    )
    sleeps = demo.plan_for(Mode.WAIT_ALL, Straggler.SLEEP, **VALUES)
    assert (sleeps.mode, sleeps.mbit, sleeps.slow_mbit) == ("wait_all", None, None)
    assert demo.describe(sleeps) == (
        "4 ranks, 200 steps; rank 3 is 150 ms late in 33% of its steps"
    )


class _Lab:
    """A lab with links that can be changed, and one run with these events of rank 0."""

    def __init__(self, plan, events):
        self.links = [demo.Link(up_mbit=plan.mbit)] * plan.num_ranks
        self.events, self.changes = events, []

    def change(self, host, *, up_mbit):
        self.links[host] = demo.Link(up_mbit=up_mbit)
        self.changes.append((host, up_mbit))

    def run(self, command, *, num_ranks, deadline_s, on_event):
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            on_event(0, event)


def steps(*numbers):
    return [{"step": number} for number in numbers]


def test_the_uplink_changes_with_the_step_and_is_well_again_whatever_happens():
    plan = demo.plan_for(Mode.SKIP, Straggler.UPLINK, **VALUES)
    lab, seen = _Lab(plan, steps(5, 55, 60, 80, 119, 121, 200)), []
    demo.run_in_lab(lab, plan, seen.append)
    assert lab.changes == [(3, 20), (3, 200), (3, 200)]
    assert seen[3] == {"uplink_mbit": 20}
    lab = _Lab(plan, [*steps(70), ValueError("lost")])
    with pytest.raises(ValueError, match="lost"):
        demo.run_in_lab(lab, plan, seen.append)
    assert lab.links[3].up_mbit == 200


def row(**more):
    return {
        "seconds": 10.0,
        "steps_per_second": 20.0,
        "share": 0.8,
        "samples_per_second": 2048.0,
        "seconds_to_target": None,
        "accuracy": 0.9,
        "skipped": [0, 0, 0, 7],
        "stood_in_for": [0, 0, 0, 0],
        "hashes_equal": True,
        "taken": [0, 0, 0, 0],
    } | more


def test_a_run_tells_its_steps_its_links_and_its_figures():
    plan = demo.plan_for(Mode.SKIP, Straggler.UPLINK, **VALUES)
    curve = [
        {"step": step, "seconds": step / 10, "accuracy": step / 200}
        for step in range(5, 201, 5)
    ]

    def run(plan, on_event):
        for event in [*steps(50, 60), {"uplink_mbit": 20.0}, *steps(100, 150)]:
            on_event(event)
        on_event({"result": row(curve=curve, shares=[1.0, 1.0, 1.0, 0.2])})

    shown = console()
    found = demo.run_mode(shown, plan, run)
    assert found == row(
        seconds_to_target=19.0,
        accuracy=1.0,
        share=pytest.approx(0.8),
        samples_per_second=pytest.approx(20 * 3.2 * 32),
        slow_steps_per_second=pytest.approx(10.0),
    )
    assert shown.file.getvalue().splitlines() == [
        "    skip: starting the ranks",
        "    skip: step 50 of 200",
        "    skip: uplink at 20 Mbit/s",
        "    skip: step 100 of 200",
        "    skip: step 150 of 200",
        "    skip: step 200 of 200",
    ]


def test_the_table_shows_share_and_progress_beside_the_steps():
    shown = console()
    rows = {"gloo": row(share=1.0, samples_per_second=999.6), "skip": row()}
    shown.print(demo.comparison(rows, 0.95))
    lines = [line.split("│")[1:-1] for line in shown.file.getvalue().splitlines()]
    cells = {
        line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines if line
    }
    assert cells["steps per second"] == ["20.0", "20.0"]
    assert cells["share of contributions"] == ["100.0%", "80.0%"]
    assert cells["progress, in samples per second"] == ["1,000", "2,048"]


def test_the_table_has_a_row_for_the_slow_steps_only_where_there_were_some():
    def table(**more):
        shown = console()
        shown.print(demo.comparison({"gloo": row(**more), "skip": row(**more)}, 0.95))
        return shown.file.getvalue()

    assert demo.SLOW_ROW not in table()
    assert demo.SLOW_ROW in table(slow_steps_per_second=5.5)
    assert "5.50" in table(slow_steps_per_second=5.5)
