# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.data._arguments import check_flag, check_whole
from aikido_torch.errors import ConfigError


def test_whole_numbers_from_the_least_one_on_pass():
    check_whole("StepLoader", "helpers", 0, 0)
    check_whole("StepLoader", "seed", -3)


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", None])
def test_other_values_get_a_sentence_with_the_least_number(value):
    with pytest.raises(ConfigError) as caught:
        check_whole("StepLoader", "helpers", value, 0)
    text = f"StepLoader: helpers is {value!r}; it takes a whole number, at least 0."
    assert str(caught.value) == text


def test_without_a_least_number_the_sentence_names_none():
    with pytest.raises(ConfigError, match=r"seed is 0\.5; it takes a whole number\.$"):
        check_whole("BackupSampler", "seed", 0.5)


def test_a_flag_is_true_or_false():
    check_flag("StepLoader", "debug", False)
    with pytest.raises(ConfigError, match="debug is 1; it takes True or False"):
        check_flag("StepLoader", "debug", 1)
