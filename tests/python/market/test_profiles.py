# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Profiles of generated prices, against the statistics that they stand for."""

import numpy as np
import pytest

from aikido_torch.market import MarketError
from aikido_torch.market._beta import beta_table
from aikido_torch.market._profiles import (
    ACCEPTED,
    PROFILES,
    TARGETS,
    accepted_prices,
    deviation,
)


@pytest.mark.parametrize("name", PROFILES)
def test_an_accepted_path_is_near_its_statistics(name):
    trace = accepted_prices(name, days=173, seed=0)
    assert deviation(name, trace) <= ACCEPTED
    betas = np.array(beta_table(trace).betas)
    assert np.all(np.diff(betas) <= 0)
    assert betas == pytest.approx(TARGETS[name][0], rel=ACCEPTED)


def test_an_unknown_profile_and_a_short_path_are_refused():
    with pytest.raises(MarketError, match="there are calm, brief, stormy"):
        accepted_prices("none", days=173, seed=0)
    with pytest.raises(MarketError, match="give more days, such as 173"):
        accepted_prices("calm", days=1, seed=0)
