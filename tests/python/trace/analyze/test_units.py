# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.trace.analyze._units import in_ms, ms, pace, percent


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.2, "1,200 ms"), (0.3, "300 ms"), (0.0452, "45.2 ms"), (0.045, "45 ms"),
        (0.0003, "0.3 ms"), (0.00951, "9.51 ms"), (0.0, "0 ms"), (-1e-9, "0 ms"),
        (0.09996, "100 ms"), (123.4567, "123,457 ms"),
    ],
)  # fmt: skip
def test_times_have_three_digits_and_no_exponent(seconds, text):
    assert in_ms(seconds) == text


def test_rates_and_shares_are_formatted():
    assert pace(0.05 / (1 << 20)) == "50 ms per MiB"
    assert percent(0.427) == "43%"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1200, "1,200"), (45.23, "45.2"), (0.3, "0.30"), (9.999, "10.0"), (0, "0.00")],
)
def test_cells_have_no_unit_and_no_exponent(value, text):
    assert ms(value) == text
