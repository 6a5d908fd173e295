# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import inspect

import pytest
import torch.distributed as dist

from aikido_torch import errors


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n.endswith("Error")])
def test_every_error_is_an_error_of_torch_and_can_name_a_rank(name):
    error_class = getattr(errors, name)
    assert issubclass(error_class, errors.AikidoError)
    assert issubclass(error_class, dist.DistBackendError)
    assert inspect.getdoc(error_class)
    assert error_class("what").rank is None
    error = error_class("what happened", rank=3, operation="send", sequence_number=7)
    assert (error.rank, error.operation, error.sequence_number) == (3, "send", 7)
    assert str(error) == "what happened"


def test_a_wrong_argument_is_also_a_value_error():
    with pytest.raises(ValueError, match="no option"):
        raise errors.ConfigError("there is no option")
