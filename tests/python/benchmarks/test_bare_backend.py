# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import os

import pytest
import torch

from benchmarks import bare_backend

needs_backend = pytest.mark.skipif(
    not bare_backend.path().exists(),
    reason="no bare backend is built of this source (pytest -m slow builds it)",
)


@pytest.mark.slow
def test_it_is_built_once():
    built = bare_backend.build()
    assert built == bare_backend.path() == bare_backend.build()
    assert bare_backend.load(built).make


@needs_backend
def test_messages_are_handed_over_in_turns():
    module = bare_backend.load(bare_backend.path())
    name = f"/test_bare_backend_{os.getpid()}"
    ranks = [module.make(0, 2, name)]
    try:
        ranks.append(module.make(1, 2, name))
    finally:
        module.unlink(name)
    for turn in range(4):
        sender, receiver = turn % 2, 1 - turn % 2
        given, taken = torch.tensor([turn, 7]), torch.zeros(2, dtype=torch.int64)
        receipt = ranks[receiver].recv([taken], sender, 0)
        assert not receipt.is_completed()
        assert ranks[sender].send([given], receiver, 0).wait()
        assert receipt.wait()
        assert taken.tolist() == [turn, 7]


@needs_backend
def test_memory_that_is_there_already_is_refused():
    module = bare_backend.load(bare_backend.path())
    name = f"/test_bare_backend_twice_{os.getpid()}"
    first = module.make(0, 2, name)
    try:
        with pytest.raises(RuntimeError, match="rank 0 can share no memory"):
            module.make(0, 2, name)
    finally:
        module.unlink(name)
    assert first.name() == "bare"
