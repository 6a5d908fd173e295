# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import copy
import pickle

import pytest

from aikido_torch.ddp._hook import Hook


def test_a_hook_calls_and_its_copies_do_not():
    calls = []
    hook = Hook(lambda *args: calls.append(args))
    hook(1, 2)
    for made in (
        copy.copy(hook),
        copy.deepcopy(hook),
        pickle.loads(pickle.dumps(hook)),
    ):
        made(3)
    assert calls == [(1, 2)]


def test_a_copy_may_be_refused():
    def refuse():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        copy.deepcopy([Hook(print, refuse)])
