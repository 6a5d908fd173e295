# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Evaluation of observed trainings and forward passes by the cases."""

import pytest

from aikido_torch import ordering
from benchmarks.ordering_cases import conv, ddp, ddp_plan, ddp_runs, forward
from benchmarks.ordering_cases.ddp_plan import Training
from benchmarks.ordering_cases.ddp_runs import Record
from benchmarks.straggler_cases.case import CaseError


@pytest.mark.parametrize("shares", [ddp.VGG_SHARES, ddp.EMBEDDING_SHARES])
def test_models_have_the_time_and_bytes_that_they_are_to_have(shares):
    layers = ddp.model_of(shares, compute_ms=300, total_bytes=10**6)
    assert ddp_plan.compute_s(layers) == pytest.approx(0.3, rel=0.02)
    assert sum(size for _, _, size in layers) == pytest.approx(10**6, rel=0.02)
    assert all(b == 2 * f for f, b, _ in layers)


def test_communication_takes_what_its_bytes_take_twice_over():
    # Each of three ranks sends two thirds of it twice.
    wanted_ms = 1e3 * 2 * 2 / 3 * 10**6 * 8 / (50e6 * ddp.GOODPUT)
    assert ddp.communication_ms(10**6, 50.0) == pytest.approx(wanted_ms)


def test_all_arms_train_the_same_model_and_ours_does_once():
    arms = ddp.arms("model", steps=3)
    assert {arm.model for arm in arms} == {"model"}
    assert [arm.arm for arm in arms].count("overlapped") == 1
    assert {arm.backend for arm in arms if arm.arm == "ddp"} == {"gloo", "aikido"}


def test_a_plan_is_read_as_it_was_written():
    models = {"m": [(1.0, 2.0, 3), (4.0, 5.0, 6)]}
    trainings = [Training(name="a", model="m", arm="ddp", mbit=5.0)]
    text = ddp_plan.to_json(models, trainings)
    assert ddp_plan.from_json(text) == (models, trainings)


def record_of(fingerprints=(1, 1), warm_up=2):
    # Steps of 1, 1, 0.2 and 0.4 s; the first two do not count.
    training = Training(name="ddp gloo 1 MB", model="m", arm="ddp", warm_up=warm_up)
    return Record(
        training,
        {
            rank: {"ends": [1.0, 2.0, 2.2, 2.6], "fingerprint": found}
            for rank, found in enumerate(fingerprints)
        },
    )


def test_a_step_is_the_mean_of_those_that_count():
    assert record_of().step_ms == pytest.approx(300)
    assert ddp_runs.step_ms([record_of()], "ddp gloo 1 MB") == [pytest.approx(300)]


def test_the_last_steps_are_a_median():
    assert record_of().last_ms(2) == pytest.approx(300)
    assert record_of().last_ms(3) == pytest.approx(400)


def test_slower_links_and_later_ones_take_longer():
    models = {"m": [(1.0, 1.0, 10**6)]}

    def estimate(**options):
        training = Training(name="t", model="m", arm="overlapped", **options)
        return ddp_plan.estimate_s(models, [training], mbit=100)

    assert estimate(mbit=10) > 20 + estimate()
    assert estimate(later_mbit=10) == estimate(mbit=10)


def test_ranks_that_differ_or_are_missing_are_noticed():
    record_of().check(2)
    with pytest.raises(CaseError, match="with other parameters"):
        record_of((1, 2)).check(2)
    with pytest.raises(CaseError, match="with other parameters"):
        record_of().check(3)


def test_the_reference_is_the_best_of_ddp():
    found = {
        "ddp gloo 1 MB": 5.0,
        "ddp gloo 25 MB": 4.0,
        "ddp aikido 1 MB": 3.0,
        "overlapped": 1.0,
    }
    assert ddp.best(found, "gloo") == 4.0
    assert ddp.best(found, "aikido") == 3.0


@pytest.mark.parametrize("shape", ["chain", "parallel"])
@pytest.mark.parametrize("ratio", forward.RATIOS)
def test_forwards_go_in_the_order_of_tac_at_the_ratio_they_say(shape, ratio):
    turns = forward.turns_of(shape, ratio, 2, seed=0)
    assert [turn.shape for turn in turns] == ["alone", shape] * 2
    turn = turns[-1]
    assert sorted(turn.calls) == sorted(turn.order) == list(range(forward.COUNT))
    assert turn.calls != turn.order
    seconds = forward.NUM_BYTES * 8e-6 / forward.MBIT / forward.GOODPUT
    graph = forward.graph_of(shape, turn.compute_ms, seconds)
    assert ordering.bounds(graph).ratio == pytest.approx(ratio)
    if shape == "chain":
        assert turn.order == list(range(forward.COUNT))
    else:  # the longest computation comes first, because no other layer follows
        times = [turn.compute_ms[number] for number in turn.order]
        assert times != sorted(times)


@pytest.mark.parametrize(("megabytes", "compute_ms"), conv.LOOPS)
def test_no_iteration_is_shorter_than_its_computing_or_its_transfers(
    megabytes, compute_ms
):
    total_bytes = round(megabytes * 1e6)
    layers = ddp.model_of(conv.SHARES, compute_ms=compute_ms, total_bytes=total_bytes)
    transfer_ms = 1e3 * ddp_plan.link_s(
        layers,
        num_ranks=conv.NUM_HOSTS,
        bytes_per_s=conv.MBIT * 1e6 / 8 * ddp.GOODPUT,
    )
    bound = conv.bound_ms(layers)
    assert max(compute_ms, transfer_ms) <= bound * 1.001
    assert bound < compute_ms + transfer_ms
