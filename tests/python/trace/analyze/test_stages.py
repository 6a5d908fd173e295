# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.trace.analyze._stages import label_of, pipeline_of, stage_works
from aikido_torch.trace.record._spans import Kind
from harness.traces import dump, span
from harness.traces import staged_rank as staged


def test_names_of_sections_are_read_back():
    assert label_of("forward stage 1 micro-batch 3") == ("forward", 1, 3)
    assert label_of("step stage 0") == ("step", 0, -1)
    assert label_of("forward") is None


def test_a_step_of_a_rank_is_split_into_stages_and_parts():
    (first, second) = stage_works(staged(0, stage=0, forward=3, backward=6)).values()
    assert first.stages[0] == pytest.approx(
        {"forward": 0.006, "backward": 0.012, "optimizer": 0.001}
    )
    assert first.num_micro_batches == {0: 2}
    assert (first.length_s, first.before_s) == pytest.approx((0.05, 0.0))
    assert second.before_s == pytest.approx(0.01)


def test_a_stop_is_no_work():
    ours = staged(0, stage=0, forward=3, backward=6)
    ours.spans.append(span(Kind.STOP, 1, 2))
    assert stage_works(ours)[0].stages[0]["forward"] == pytest.approx(0.005)


def test_the_slowest_stage_the_imbalance_and_the_bubbles_are_found():
    ranks = [staged(0, stage=0, forward=3, backward=6)]
    ranks += [staged(1, stage=1, forward=5, backward=10)]
    found = pipeline_of(ranks)
    assert [s.stage for s in found.stages] == [0, 1]
    assert found.stages[1].ranks == (1,)
    assert found.stages[1].forward_ms == pytest.approx(5)
    assert found.stages[1].backward_ms == pytest.approx(10)
    assert found.slowest == 1
    assert found.imbalance == pytest.approx(15 / 12 - 1)
    assert found.stages[0].bubble == pytest.approx(1 - 19 / 50)
    assert found.bubble == pytest.approx(1 - (19 + 31) / 100)


def test_replicas_share_the_micro_batches_of_a_stage():
    ranks = [staged(r, stage=min(r, 1), forward=4, backward=4) for r in range(3)]
    found = pipeline_of(ranks)
    assert (found.slowest, found.stages[1].ranks) == (0, (1, 2))
    assert found.imbalance == pytest.approx(8 / 6 - 1)


def test_a_job_without_a_pipeline_has_no_stages():
    assert pipeline_of([dump(0, [span(Kind.SECTION, 1, 2, name=1, step=0)])]) is None
