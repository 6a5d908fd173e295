# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch import pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan import _profile, _schedule

NAMES = ["gpipe", "1f1b", "1f1b_async", "interleaved_1f1b", "zero_bubble"]


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_is_data_and_is_parsed_from_its_text(name):
    made = pipeline.schedule(name, stages=2, micro_batches=4)
    assert (made.name, made.micro_batches, made.stages) == (name, 4, [[0], [1]])
    assert made.weights == ("stash" if name == "1f1b_async" else "flush")
    assert repr(made) == f"<Schedule {name}, 2 stages, 4 micro-batches>"
    read = _schedule.Schedule.parse(made.text())
    assert read.text() == made.text()
    assert [[it.text() for it in rank] for rank in read.ranks] == [
        [it.text() for it in rank] for rank in made.ranks
    ]
    made.validate()


def test_an_instruction_has_its_kind_place_and_peer():
    first, send, *_, step = pipeline.schedule("1f1b", stages=2, micro_batches=2).ranks[
        0
    ]
    assert repr(first) == "<Instruction F0.0@0>"
    assert (first.kind, first.stage, first.micro_batch) == ("forward", 0, 0)
    assert (first.version, first.peer) == (0, None)
    assert (send.kind, send.version, send.peer) == ("send_activation", None, 1)
    assert (step.kind, step.micro_batch, step.version) == ("step", None, 1)


def test_validation_reports_held_activations_and_the_age_of_weights():
    made = pipeline.schedule("1f1b_async", stages=4, micro_batches=12)
    validation = made.validate(max_activations=4)
    assert [rank.activations for rank in validation.ranks] == [4, 3, 2, 1]
    assert [rank.versions for rank in validation.ranks] == [4, 3, 2, 1]
    assert [rank.inputs for rank in validation.ranks] == [0, 0, 0, 0]
    assert [lags[:5] for lags in validation.lags] == [
        [0, 1, 2, 3, 3],
        [0, 1, 2, 2, 2],
        [0, 1, 1, 1, 1],
        [0, 0, 0, 0, 0],
    ]


def test_an_invalid_schedule_is_refused_with_rank_and_instruction():
    made = pipeline.schedule("1f1b", stages=2, micro_batches=2)
    with pytest.raises(ConfigError, match=r"^rank 0, instruction 2 \(F0\.1@0\): ") as e:
        made.validate(max_activations=1)
    assert e.value.rank == 0
    broken = made.text().replace("step1@1", "step1@2")
    with pytest.raises(ConfigError, match=r"^rank 1, instruction 8 \(step1@2\): the"):
        _schedule.Schedule.parse(broken).validate()
    with pytest.raises(ConfigError, match=r"^rank 1, instruction 8 \(step1@2\): the"):
        _schedule.Schedule.parse(broken).simulate()
    with pytest.raises(ConfigError, match=r'^line 6: "F0\.0" is no instruction'):
        _schedule.Schedule.parse(made.text().replace("F0.0@0", "F0.0"))


def test_options_change_the_schedule():
    two = pipeline.schedule(
        "1f1b_async",
        stages=2,
        micro_batches=12,
        replicas=[2, 1],
        weights="2bw",
        micro_batches_per_step=6,
        warmups=[2, 0],
        recompute=True,
    )
    assert two.weights == "2bw"
    assert two.stages == [[0, 1], [2]]
    kinds = [it.kind for it in two.ranks[0]]
    assert kinds.count("recompute") == kinds.count("forward") == 6
    assert kinds.count("reduce") == kinds.count("step") == 2
    assert two.validate().lags == [[0, 1], [0, 1]]
    looped = pipeline.schedule(
        "interleaved_1f1b", stages=4, micro_batches=4, stages_per_rank=2
    )
    assert looped.stages == [[0], [1], [0], [1]]


def test_a_plan_determines_stages_and_replicas():
    profile = _profile.chain(
        forward_ms=[3, 1],
        backward_ms=[6, 2],
        activation_bytes=[1, 1],
        parameter_bytes=[0, 9e9],
    )
    plan = pipeline.partition(profile, machines=4, bandwidth=1e9)
    assert plan.text == "3-1"
    made = pipeline.schedule("1f1b_async", stages=plan, micro_batches=48)
    assert made.stages == [[0, 1, 2], [3]]
    simulation = made.simulate(forward=[3, 1], backward=[6, 2])
    assert simulation.period == pytest.approx(3.0)
    straight = pipeline.partition(profile, machines=2, bandwidth=1e9, straight=True)
    pipeline.schedule("zero_bubble", stages=straight, micro_batches=4).validate()


def test_a_simulation_has_times_bubbles_and_spans():
    made = pipeline.schedule("1f1b", stages=4, micro_batches=8)
    simulation = made.simulate()
    assert simulation.makespan == 33
    assert simulation.busy == [24] * 4
    assert simulation.bubbles == pytest.approx([3 / 11] * 4)
    assert simulation.period is None
    first = simulation.spans[0]
    assert (first.rank, first.instruction, first.begin, first.end) == (0, 0, 0, 1)


def test_times_of_a_simulation():
    made = pipeline.schedule("zero_bubble", stages=2, micro_batches=4)
    assert made.simulate(forward=2).makespan == 2 * made.simulate().makespan
    assert made.simulate(backward=5).busy == [24, 24]
    assert made.simulate(backward=5, input_gradient=1).busy == [24, 24]
    assert made.simulate(input_gradient=1, weight_gradient=3).busy == [20, 20]
    assert made.simulate(step=[1, 2]).busy == [13, 14]
    assert made.simulate(slowdown={1: 2}).busy == [12, 24]
    assert made.simulate(slowdown=[2, 1]).busy == [24, 12]
    assert made.simulate(links=1).makespan > made.simulate().makespan
    again = pipeline.schedule("gpipe", stages=1, micro_batches=2, recompute=True)
    assert again.simulate().busy == [8]
    assert again.simulate(recompute=3).busy == [12]
    both = pipeline.schedule("gpipe", stages=1, replicas=[2], micro_batches=2)
    assert both.simulate(reduce=4).makespan == 7
    for options, sentence in (
        ({"forward": [1]}, "forward has 1 times; it takes one for each of 2 stages"),
        ({"links": [1, 1]}, "links has 2 times; it takes one for each of 1 links"),
        ({"slowdown": {2: 2}}, "slowdown names rank 2; the schedule has 2 ranks"),
        ({"slowdown": [1]}, "there are slow-downs of 1 ranks"),
        ({"forward": -1}, "forward has -1; it takes finite times"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            made.simulate(**options)


def test_a_grid_has_a_row_for_each_rank():
    made = pipeline.schedule("gpipe", stages=2, micro_batches=2)
    assert made.grid() == (
        "rank 0  F0 F1 .  .  .  B0 B0 B1 B1\nrank 1  .  F0 F1 B0 B0 B1 B1 .  .\n"
    )
    slow = made.simulate(slowdown={1: 2})
    assert made.grid(slow, slot=2, max_slots=3) == (
        "rank 0  F1 .  . ...\nrank 1  F0 F1 B0 ...\n"
    )
    with pytest.raises(ConfigError, match="max_slots is 0; it takes 1 or more"):
        made.grid(max_slots=0)
    with pytest.raises(ConfigError, match="slot is 0; it takes a time above 0"):
        made.grid(slot=0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "dual"}, '"dual" is no schedule; there are gpipe'),
        ({"stages": 0}, "stages is 0; it takes 1 to 4096"),
        ({"stages": 2.5}, "stages has 2.5; it takes whole numbers"),
        ({"micro_batches": True}, "micro_batches has True; it takes whole numbers"),
        ({"micro_batches": 0}, "micro_batches is 0; it takes 1 or more"),
        ({"micro_batches": 2**40}, "it takes whole numbers"),
        ({"replicas": [1]}, "replicas has 1 numbers and stages is 2"),
        ({"replicas": [1, 5]}, "stage 1 has 5 replicas and there are 4 micro_batches"),
        ({"replicas": [1, 1.5]}, "replicas has 1.5; it takes whole numbers"),
        ({"weights": "new"}, '"new" is no policy for weights; there are flush'),
        ({"weights": "stash"}, "weights is stash, but 1f1b flushes"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(options, sentence):
    wanted = {"name": "1f1b", "stages": 2, "micro_batches": 4} | options
    with pytest.raises(ConfigError, match=sentence):
        pipeline.schedule(wanted.pop("name"), **wanted)
