# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lab import script
from benchmarks.lab.script import Event, Timeline, parse

WHOLE = """
at 120 ms late member 2 for 300 ms
at 120 ms stop member 2 for 300 ms; at 2 s kill member 1   # for good
at 500ms cut host 0 for 1 s
at 1 s rate host 3 up 20 mbit for 2 s

at 1.5 s rate host 2 up none down 5.5mbit
at 3 s cut host 0
at 4 s heal host 0
at 5 s flow host 3 to host 4 for 800 ms
"""


def test_every_kind_of_event_is_read():
    late, stop, cut, slow, mixed, kill, cut_for_good, heal, flow = parse(WHOLE)
    assert late == Event(at_s=0.12, verb="late", target=2, for_s=0.3)
    assert stop == Event(at_s=0.12, verb="stop", target=2, for_s=0.3)
    assert cut == Event(at_s=0.5, verb="cut", target=0, for_s=1)
    assert slow == Event(
        at_s=1, verb="rate", target=3, for_s=2, rates=(("up_mbit", 20),)
    )
    assert mixed.rates == (("up_mbit", None), ("down_mbit", 5.5))
    assert kill == Event(at_s=2, verb="kill", target=1)
    assert (cut_for_good.at_s, cut_for_good.for_s) == (3, None)
    assert heal == Event(at_s=4, verb="heal", target=0)
    assert flow == Event(at_s=5, verb="flow", target=3, to=4, for_s=0.8)


def test_an_empty_script_has_no_events():
    assert parse("# nothing happens\n\n ; ") == ()


times = st.integers(0, 100_000).map(lambda ms: ms / 1e3)
lengths = st.integers(1, 100_000).map(lambda ms: ms / 1e3)
rates = st.none() | st.integers(1, 10_000).map(float)


@st.composite
def any_event(draw):
    verb = draw(st.sampled_from(script.MEMBER_VERBS + script.HOST_VERBS))
    has_end = verb in ("late", "stop", "flow") or (
        verb in ("cut", "rate") and draw(st.booleans())
    )
    changed = ()
    if verb == "rate":
        ways = draw(st.sampled_from([("up",), ("down",), ("up", "down")]))
        changed = tuple((f"{way}_mbit", draw(rates)) for way in ways)
    return Event(
        at_s=draw(times),
        verb=verb,
        target=draw(st.integers(0, 200)),
        for_s=draw(lengths) if has_end else None,
        to=draw(st.integers(0, 200)) if verb == "flow" else None,
        rates=changed,
    )


@given(any_event())
def test_the_text_of_an_event_is_read_as_that_event(event):
    (read,) = parse(str(event))
    assert read.at_s == pytest.approx(event.at_s)
    assert read.for_s == (event.for_s and pytest.approx(event.for_s))
    assert str(read) == str(event)
    assert (read.verb, read.target, read.to, read.rates) == (
        event.verb,
        event.target,
        event.to,
        event.rates,
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("stop member 2", "'at' is wanted, 'stop' found"),
        ("at 5 stop member 2 for 1 s", "'ms' or 's' is wanted, 'stop' found"),
        ("at 5 s stall member 2", "'late' or 'stop' or .* is wanted, 'stall' found"),
        ("at 5 s stop host 2 for 1 s", "'member' is wanted, 'host' found"),
        ("at 5 s stop member 2", "'for' is wanted, the end found"),
        ("at 5 s stop member 2 for 0 s", "it must last longer than 0 s"),
        ("at 5 s kill member 2 for 1 s", "the end is wanted, 'for' found"),
        ("at 5 s kill member 1.5", "member 1.5 is no whole number"),
        ("at 5 s rate host 1", "'up' or 'down' is wanted"),
        ("at 5 s rate host 1 up 20", "'mbit' is wanted"),
        ("at 5 s rate host 1 up fast", "a rate such as '20 mbit', or 'none'"),
        ("at 5 s flow host 1 for 1 s", "'to' is wanted"),
        ("at -5 s kill member 1", "a time is wanted, '-' found"),
        (
            "at 1 s cut host 0 for 2 s; at 2 s cut host 0",
            "'at 2000 ms cut host 0' begins before 'at 1000 ms cut .*' has ended",
        ),
    ],
)
def test_what_is_no_event_is_refused_with_its_line(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(text)


def test_targets_that_do_not_exist_are_refused():
    events = parse(WHOLE)
    script.check_targets(events, num_members=3, num_hosts=5)
    with pytest.raises(ValueError, match="there is no member 2; they are 0 to 1"):
        script.check_targets(events, num_members=2, num_hosts=5)
    with pytest.raises(ValueError, match=r"host 4 for .*': there is no host 4"):
        script.check_targets(events, num_members=3, num_hosts=4)


def test_an_event_that_lasts_has_a_step_for_its_end():
    timeline = Timeline(parse(WHOLE))
    steps = [(step.at_s, step.what, step.event.target) for step in timeline.due(99)]
    assert steps == [
        (0.12, "stop", 2),
        (pytest.approx(0.42), "continue", 2),
        (0.5, "cut", 0),
        (1, "rate", 3),
        (1.5, "heal", 0),
        (1.5, "rate", 2),
        (2, "kill", 1),
        (3, "restore", 3),
        (3, "cut", 0),
        (4, "heal", 0),
        (5, "flow", 3),
    ]


def test_steps_are_due_once_and_the_timeline_says_when_to_ask_again():
    timeline = Timeline(parse("at 1 s stop member 0 for 1 s"))
    assert timeline.next_s == 1
    assert timeline.due(0.999) == []
    assert [step.what for step in timeline.due(1)] == ["stop"]
    assert timeline.due(1.5) == []
    assert timeline.next_s == 2
    assert [step.what for step in timeline.due(5)] == ["continue"]
    assert timeline.next_s is None


def test_cross_traffic_repeats_for_a_seed_and_ends_in_time():
    made = script.on_off_flows(3, 4, seed=1, until_s=30, mean_on_s=0.5, mean_off_s=2)
    assert made == script.on_off_flows(
        3, 4, seed=1, until_s=30, mean_on_s=0.5, mean_off_s=2
    )
    assert made != script.on_off_flows(3, 4, seed=2, until_s=30)
    assert len(made) > 3
    assert all(event.verb == "flow" and event.to == 4 for event in made)
    for event, following in itertools.pairwise(made):
        assert event.end_s <= following.at_s
    assert made[-1].end_s <= 30
