# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from aikido_torch import _C
from aikido_torch.pipeline.runtime._tell import Teller
from aikido_torch.trace.record._spans import unpack


def taken(recorder):
    raw, _, names = recorder.take()
    return [(names[s.name], s.step) for s in unpack(raw)]


def test_instructions_are_recorded_with_stage_micro_batch_and_step():
    recorder = _C.Recorder()
    recorder.arm()
    teller = Teller(recorder)
    for _ in range(2):
        with teller.run():
            teller.end("forward", 1, 3, teller.begin())
            teller.end("step", 1, -1, teller.begin())
    first = recorder.step - 2
    assert sorted(taken(recorder)) == sorted(
        (name, step)
        for step in (first, first + 1)
        for name in ("forward stage 1 micro-batch 3", "step stage 1", "pipeline run")
    )


def test_the_times_of_a_plan_are_recorded_with_each_run():
    recorder = _C.Recorder()
    teller = Teller(recorder, {2: 0.0035})
    with teller.run():
        recorder.arm()
    with teller.run():
        pass
    names = [name for name, _ in taken(recorder)]
    assert sorted(names) == ["pipeline run", "planned stage 2: 3500000 ns"]


def test_while_disarmed_steps_are_counted_and_not_recorded():
    recorder = _C.Recorder()
    teller = Teller(recorder)
    before = recorder.step
    with teller.run():
        begun = teller.begin()
        recorder.arm()
        teller.end("forward", 0, 0, begun)
    assert taken(recorder) == []
    assert recorder.step == before + 1


def test_a_step_that_other_code_has_counted_counts_once():
    recorder = _C.Recorder()
    before = recorder.step
    with Teller(recorder).run():
        recorder.next_step()
    assert recorder.step == before + 1


def test_without_a_recorder_nothing_happens():
    with Teller().run():
        Teller().end("forward", 0, 0, Teller().begin())
