# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import copy
import pickle
import weakref

import pytest

from aikido_torch._hook import Hook


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


def test_a_weak_hook_does_not_keep_its_object():
    class Told:
        calls = 0

        def tell(self, _):
            self.calls += 1

    told = Told()
    hook = Hook(told.tell, is_weak=True)
    hook(1)
    assert told.calls == 1
    gone = weakref.ref(told)
    del told
    assert gone() is None
    hook(2)


def test_a_copy_may_be_refused():
    def refuse():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        copy.deepcopy([Hook(print, refuse)])
