# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from aikido_torch.ddp._step_training import StepTraining
from aikido_torch.reassign._training import Training


def test_a_registered_model_has_all_members():
    members = {name for name in vars(Training) if not name.startswith("_")}
    own = vars(StepTraining)
    assert members - own.keys() == {"model"}  # an attribute
    for name in members & own.keys():
        assert isinstance(own[name], property) == isinstance(
            vars(Training)[name], property
        )
