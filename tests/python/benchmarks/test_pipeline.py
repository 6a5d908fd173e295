# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from benchmarks import pipeline


@pytest.mark.parametrize("cost_model", ["paper", "published_code"])
def test_processor_time_is_judged_by_the_limit(cost_model):
    case = pipeline.PlanCase("VGG16, 4", "vgg16", [4], [1e9], 5.0)
    result = pipeline.measure(case, cost_model, repeats=1)
    assert result.case == f"VGG16, 4, {cost_model}"
    assert 0 < result.value < result.reference == 5.0
    assert result.holds


def test_every_case_has_its_profile_and_a_bandwidth_for_each_level():
    for case in pipeline.CASES:
        assert (pipeline.DATA / f"{case.profile}.txt").is_file()
        assert len(case.machines) == len(case.bandwidth)


def test_making_a_schedule_is_judged_by_the_limit():
    case = pipeline.ScheduleCase("gpipe", {"stages": 2, "micro_batches": 4}, 5.0)
    result = pipeline.measure_schedule(case, repeats=1)
    assert result.case == "gpipe, stages 2, micro_batches 4"
    assert 0 < result.value < result.reference == 5.0
    assert result.holds
