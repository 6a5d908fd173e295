# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.trace._units import in_ms, pace, percent


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


def test_paces_and_shares():
    assert pace(0.05 / (1 << 20)) == "50 ms per MiB"
    assert percent(0.427) == "43%"
