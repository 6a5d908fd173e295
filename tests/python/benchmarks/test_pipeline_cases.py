# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Evaluation of observed runs by the cases; pipelines do not run here."""

import itertools
import json

import pytest
import torch

from aikido_torch import pipeline
from aikido_torch.pipeline.plan import _profile
from benchmarks.pipeline_cases import layers, plan, records, runs, slow_link, throughput
from benchmarks.pipeline_cases.layers import Spec
from benchmarks.pipeline_cases.plan import Plan, Run
from benchmarks.pipeline_cases.records import Record
from benchmarks.straggler_cases.case import CaseError, Context

BANDWIDTH = 3e6


def profile_of(specs, **_):
    """The profile if layers take exactly their given times."""
    return _profile.chain(
        forward_ms=[spec.forward_ms for spec in specs],
        backward_ms=[spec.backward_ms for spec in specs],
        activation_bytes=[spec.output_bytes for spec in specs],
        parameter_bytes=[spec.weight_bytes for spec in specs],
    )


def context():
    return Context(
        is_full=False,
        seed=0,
        on_progress=lambda share: None,
        on_record=lambda record: None,
    )


def test_what_a_layer_returns_keeps_and_gives_back_is_as_it_says():
    spec = Spec(forward_ms=0, backward_ms=0, output_bytes=800, weight_bytes=40)
    model = layers.model_of([spec, spec])
    layers.completions.clear()
    x = layers.sample().requires_grad_()
    output = model(x)
    assert output.numel() * output.element_size() == spec.output_bytes
    assert model[0].weight.numel() * 4 == spec.weight_bytes
    output.sum().backward()
    assert len(layers.completions) == 1  # of the first layer only

    def alone(x, first, second):
        for weight in (first, second):
            mean = x.mean(dim=1, keepdim=True) + weight[0]
            x = mean.expand(-1, spec.width)
        return x.sum()

    given = layers.sample(), torch.zeros(10), torch.zeros(10)
    for wanted, own in zip(
        torch.func.grad(alone, argnums=(0, 1, 2))(*given),
        (x.grad, model[0].weight.grad, model[1].weight.grad),
        strict=True,
    ):
        torch.testing.assert_close(own, wanted)


def test_a_plan_travels_to_its_ranks():
    run = Run(
        name="a", stages=[[0], [1]], schedule={"replicas": [2, 1]}, links={1: 5.0}
    )
    sent = Plan(layers={"m": [vars(Spec(forward_ms=1, backward_ms=2, output_bytes=4))]},
                runs=[("m", run)])  # fmt: skip
    assert plan.from_json(plan.to_json(sent)) == sent
    assert plan.num_ranks(sent.runs) == 3


@pytest.mark.parametrize(
    ("specs", "text"),
    [(throughput.VGG_LIKE, "3-1"), (throughput.RESNET_LIKE, "4")],
)
def test_the_models_are_what_they_are_called(specs, text):
    chosen, candidates = throughput.candidates_of(profile_of(specs), BANDWIDTH)
    assert chosen.text == text
    assert [one.name for one in candidates[:2]] == ["data parallel", "straight"]
    assert candidates[0].replicas == [4]
    assert candidates[1].replicas == [1] * 4
    best = min(candidates, key=lambda one: one.predicted_ms)
    assert "-".join(map(str, best.replicas)) == text
    for one in candidates:
        planned = one.run(profile_of(specs), BANDWIDTH, 48)
        made = pipeline.schedule(stages=len(planned.stages), **planned.schedule)
        assert sorted(itertools.chain(*planned.stages)) == list(range(len(specs)))
        held = made.validate().ranks
        first = made.stages[0]
        assert planned.in_flight == sum(held[rank].activations for rank in first)


def record_of(run, period_s, *, count=48, busy=1.0):
    """A record in which each rank computed for the share `busy` of each of its
    turns.
    """
    record = Record(run)
    replicas = run.schedule["replicas"]
    rank = 0
    for stage, number in enumerate(replicas):
        for replica in range(number):
            ends = [period_s * (b + 1) for b in range(replica, count, number)]
            record.by_rank[rank] = {
                "completions": ends if stage == 0 else [],
                "spans": [(e - period_s * number * busy, e) for e in ends],
            }
            rank += 1
    return record


def test_a_period_is_that_of_the_full_pipeline():
    run = Run(
        name="a",
        stages=[[0], [1]],
        schedule={"replicas": [3, 1]},
        in_flight=6,
    )
    record = record_of(run, 0.1, busy=0.97)
    steady = record.steady()
    assert steady.period_ms == pytest.approx(100)
    assert steady.count % 3 == 0
    assert record.idle_share(steady) == pytest.approx(0.03, abs=0.005)
    # Completions before and after the full time change nothing.
    done = record.by_rank[0]["completions"]
    done[0] -= 5
    done[-1] += 5
    assert record.steady().period_ms == pytest.approx(100)
    short = record_of(run, 0.1, count=12)
    with pytest.raises(CaseError, match="'a' has 12 micro-batches and 6 in flight"):
        short.steady()


def test_full_links_are_what_a_straight_plan_waits_for():
    profile = profile_of(throughput.FULL_LINKS)
    _, candidates = throughput.candidates_of(profile, BANDWIDTH)
    (straight,) = (one for one in candidates if one.name == "straight")
    times = throughput.planned_times(profile, straight, BANDWIDTH)
    assert straight.predicted_ms == pytest.approx(1e3 * max(times.links))
    assert max(times.links) > 3 * (times.forward[0] + times.backward[0])


class NoLab:
    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return None

    def __exit__(self, *_):
        pass


def measured(monkeypatch, case, periods, busy=0.97):
    """The verdicts if plans have these periods, by name."""
    monkeypatch.setattr(runs, "make_lab", NoLab)
    monkeypatch.setattr(runs, "profile_of", profile_of)
    monkeypatch.setattr(runs, "bandwidth_of", lambda lab: BANDWIDTH)
    monkeypatch.setattr(
        runs,
        "run",
        lambda lab, models, planned, *_, **__: [
            record_of(run, periods[run.name] / 1e3, busy=busy) for _, run in planned
        ],
    )
    return [row.verdict for row in case.measure(case, context())]


def test_periods_are_judged_by_the_prediction_in_both_directions(monkeypatch):
    vgg, resnet, full = throughput.CASES
    good = {"data parallel": 318, "straight": 153, "3-1": 103}
    assert measured(monkeypatch, vgg, good) == ["holds"] * 5
    fast = good | {"straight": 135}
    assert measured(monkeypatch, vgg, fast)[:3] == ["holds", "missed", "holds"]
    slow = good | {"3-1": 160}
    assert measured(monkeypatch, vgg, slow)[2:4] == ["missed", "missed"]
    assert measured(monkeypatch, vgg, good, busy=0.9)[4] == "missed"
    good = {"data parallel": 104, "straight": 165}
    assert measured(monkeypatch, resnet, good) == ["holds"] * 3
    assert measured(monkeypatch, full, {"straight": 151}) == ["holds"]
    assert measured(monkeypatch, full, {"straight": 178}) == ["missed"]


def test_adapting_is_judged_by_the_speed_of_the_fixed_schedule(monkeypatch):
    def seen(planned):
        found = []
        for _, run in planned:
            step_s = 4.0 if run.adapt else 5.0
            ends = [step_s * (n + 1) for n in range(6)]
            record = Record(run)
            record.by_rank[0] = {"begin": 0.0, "ends": ends, "adapted": ["deeper"]}
            found.append(record)
        return found

    monkeypatch.setattr(runs, "make_lab", NoLab)
    monkeypatch.setattr(
        runs, "run", lambda lab, models, planned, *_, **__: seen(planned)
    )
    (case,) = slow_link.CASES
    rows = case.measure(case, context())
    assert [row.verdict for row in rows] == ["holds"] * 3
    assert rows[0].result.ratio == pytest.approx(1.25)
    assert "deeper" in rows[0].note


def test_the_slow_link_can_keep_up_with_the_stages():
    """Otherwise the link would limit the gain."""
    slow = 0.95 * slow_link.MBIT / slow_link.SLOWER * 1e6 / 8
    stage_s = (slow_link.FORWARD_MS + slow_link.BACKWARD_MS) / 1e3
    assert slow_link.OUTPUT_BYTES / slow < stage_s
    for schedule, host in slow_link.PLACES:
        run = slow_link.run_of(schedule, host, 3, adapts=True)
        made = pipeline.schedule(stages=len(run.stages), **run.schedule)
        assert made.validate().ranks[0].activations <= slow_link.MOST
        json.dumps(vars(run))


def test_seconds_of_spans_within_a_time():
    assert records._within([(0, 2), (3, 5), (9, 10)], 1, 4) == 2
