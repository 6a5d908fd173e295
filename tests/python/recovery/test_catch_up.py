# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import copy
import pickle

from aikido_torch import ddp


def test_the_result_of_catching_up_is_a_number_that_says_how():
    up = ddp.CatchUp(
        steps_replayed=2, steps_copied=3, state_copied_from=1, batches_to_skip=20
    )
    assert (up, up + 1, up.batches_to_skip) == (5, 6, 20)
    assert repr(up) == (
        "CatchUp(steps_replayed=2, steps_copied=3, state_copied_from=1, "
        "batches_to_skip=20)"
    )
    assert repr(pickle.loads(pickle.dumps(up))) == repr(copy.copy(up)) == repr(up)
    assert not ddp.CatchUp()
