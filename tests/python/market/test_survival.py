# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Survival model: hazards by age, and their transitions."""

import numpy as np
import pytest

from aikido_torch.market import MarketError, Survival
from aikido_torch.market._survival import AGE_EDGES_S, Prior, age_class, transitions


def learned(samples, gap_s=300.0, **prior):
    model = Survival(Prior(**prior))
    for sample in samples:
        model.observe(bool(sample), gap_s)
    return model


def test_hazards_come_near_the_rate_of_a_memoryless_market():
    random = np.random.default_rng(0)
    state, samples = True, []
    for _ in range(100_000):
        state = state ^ (random.random() < (0.1 if state else 0.05))
        samples.append(state)
    hazards = learned(samples, half_life_s=1e9).hazards()
    assert hazards[1, :3] == pytest.approx(0.1 / 300, rel=0.1)
    assert hazards[0, :3] == pytest.approx(0.05 / 300, rel=0.1)


def test_without_samples_the_hazards_fall_with_age():
    hazards = Survival().hazards()
    assert hazards.shape == (2, len(AGE_EDGES_S))
    assert np.all(np.diff(hazards, axis=1) < 0)
    assert np.array_equal(hazards[0], hazards[1])


def test_the_age_counts_from_the_last_change():
    model = learned([1, 1, 0, 0, 0])
    assert model.is_available is False
    assert model.age_s == 600


def test_old_observations_lose_weight():
    samples = [1, 0] * 500 + [1] * 4000
    short = learned(samples, half_life_s=86400.0).hazards()[1, 0]
    long = learned(samples, half_life_s=1e9).hazards()[1, 0]
    assert short < long


def test_survival_over_no_time_is_certain_and_falls():
    model = learned([0, 1, 1, 0, 1])
    chances = [model.survives(h) for h in (0.0, 600.0, 86400.0)]
    assert chances[0] == 1.0
    assert chances[0] > chances[1] > chances[2] > 0


@pytest.mark.parametrize(("age", "index"), [(0, 0), (599, 0), (600, 1), (1e6, 5)])
def test_the_class_of_an_age(age, index):
    assert age_class(age) == index


def test_transitions_are_probabilities():
    table = transitions(Survival().hazards(), 600.0)
    assert table.sum(axis=1) == pytest.approx(1.0)
    assert np.all(table >= 0)
    n = len(AGE_EDGES_S)
    assert np.all(table[:n, n + 1 :] == 0)  # a new spell is young


@pytest.mark.parametrize("name", ["mean_s", "weight", "half_life_s"])
def test_a_wrong_prior_is_refused(name):
    with pytest.raises(MarketError, match=f"{name} is 0"):
        Prior(**{name: 0})


def test_wrong_calls_are_refused():
    with pytest.raises(MarketError, match="gap_s is 0"):
        Survival().observe(True, 0)
    with pytest.raises(MarketError, match="no sample"):
        Survival().survives(1.0)
