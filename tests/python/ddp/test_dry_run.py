# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""State and gradients that would fail for a late rank are refused at `register`, by
name.
"""

import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import SkipStraggler, WaitAll
from aikido_torch.testing import run_ranks


class Stateful:
    """Object with a state; load_state_dict raises `refusal` if it is given."""

    def __init__(self, state, refusal=None):
        self.state, self.refusal, self.taken = state, refusal, []

    def state_dict(self):
        if isinstance(self.state, Exception):
            raise self.state
        return self.state

    def load_state_dict(self, state):
        if self.refusal is not None:
            raise self.refusal
        self.taken.append(state)


def registered(net, state=None, optimizer=None, policy=None, **options):
    model = DistributedDataParallel(net, **options)
    make = optimizer or (lambda p: torch.optim.SGD(p, lr=0.1))
    given = make(model.parameters())
    return ddp.register(model, optimizer=given, state=state, policy=policy)


STATES = {
    "a function without a name": (
        {"decay": {"f": lambda n: n}},
        "register: state['own'].decay.f cannot be copied to a rank that was late: it "
        "is a function that cannot be pickled (",
    ),
    "a lock": (
        {"log": [threading.Lock()]},
        "register: state['own'].log[0] cannot be copied to a rank that was late: it "
        "is a lock that cannot be pickled (",
    ),
    "no dict": (None, "its state_dict() returned a NoneType; return a dict."),
    "an error": (
        ValueError("not yet"),
        "register: state['own'] cannot be copied to a rank that was late: its "
        "state_dict() raised ValueError: not yet; correct it, or leave it out of state",
    ),
    "a sparse tensor": (
        {"seen": torch.eye(3).to_sparse()},
        "state['own'].seen cannot be copied to a rank that was late: it is a "
        "torch.sparse_coo tensor torch.float32 [3, 3]; make it dense.",
    ),
    "one number in many places": (
        {"mean": torch.ones(1).expand(4)},
        "state['own'].mean cannot be copied to a rank that was late: several elements "
        "of torch.float32 [4] share one place in memory (strides [0])",
    ),
    "a tensor without memory": (
        {"mean": torch.ones(4, device="meta")},
        "state['own'].mean cannot be copied to a rank that was late: it is a meta tens",
    ),
}


@pytest.mark.parametrize("kind", STATES)
def test_a_state_that_cannot_be_given_away_is_refused(group_of_one, kind):
    state, text = STATES[kind]
    with pytest.raises(ConfigError) as caught:
        registered(nn.Linear(2, 2), {"good": Stateful({}), "own": Stateful(state)})
    assert text in str(caught.value)
    registered(nn.Linear(2, 2), {"own": Stateful(state)}, policy=WaitAll())


def test_a_state_that_cannot_be_taken_back_is_refused(group_of_one):
    state = Stateful({"n": 1}, KeyError("count"))
    with pytest.raises(ConfigError) as caught:
        registered(nn.Linear(2, 2), {"own": state})
    assert (
        "state['own'] cannot be copied to a rank that was late: its load_state_dict() "
        "refused what its state_dict() had given, with KeyError: 'count'; let it take "
        "that."
    ) in str(caught.value)


def test_a_state_gets_back_a_copy_of_what_it_gave(group_of_one):
    state = Stateful({"n": [1, torch.ones(2)]})
    registered(nn.Linear(2, 2), {"own": state})
    (taken,) = state.taken
    assert taken["n"][0] == 1
    assert torch.equal(taken["n"][1], torch.ones(2))
    assert taken["n"][1] is not state.state["n"][1]


class Tied(torch.optim.SGD):
    """Optimizer that keeps one tensor for all its parameters."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        shared = torch.zeros(1)
        for p in self.param_groups[0]["params"]:
            self.state[p]["seen"] = shared


class Scheduled(torch.optim.SGD):
    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.param_groups[0]["rate"] = lambda n: n


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            Tied,
            "register: optimizer[0].params[1].seen cannot be copied to a rank that was "
            "late: it shares its memory with optimizer[0].params[0].seen",
        ),
        (
            Scheduled,
            "register: optimizer[0].options.rate cannot be copied to a rank that was "
            "late: it is a function that cannot be pickled",
        ),
    ],
)
def test_an_optimizer_that_cannot_be_copied_is_refused(group_of_one, make, text):
    with pytest.raises(ConfigError) as caught:
        registered(nn.Linear(2, 2), optimizer=make)
    assert text in str(caught.value)


def test_a_buffer_that_cannot_be_written_is_refused(group_of_one):
    net = nn.Linear(2, 2)
    net.register_buffer("mask", torch.ones(1).expand(3))
    with pytest.raises(ConfigError, match=r"model\.mask cannot be copied to a rank"):
        registered(net, broadcast_buffers=False)


class Unfit:
    @staticmethod
    def sparse():
        return nn.Sequential(nn.Embedding(4, 2, sparse=True), nn.Linear(2, 2)), {}

    @staticmethod
    def bag():
        return nn.EmbeddingBag(4, 2, sparse=True), {}

    @staticmethod
    def complex_numbers():
        return nn.Linear(2, 2, dtype=torch.complex64), {}

    @staticmethod
    def delayed():
        net = nn.Linear(2, 2)
        return net, {
            "delay_all_reduce_named_params": [("bias", net.bias)],
            "param_to_hook_all_reduce": net.weight,
        }


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            Unfit.sparse,
            "register: 1 parameters (0.weight) have sparse gradients, which buckets "
            "cannot hold; use sparse=False.",
        ),
        (Unfit.bag, "register: 1 parameters (weight) have sparse gradients"),
        (
            Unfit.complex_numbers,
            "register: 2 parameters (weight, bias) have gradients of torch.complex64, "
            "of which a call that may skip makes no mean",
        ),
        (
            Unfit.delayed,
            "register: 1 parameters (bias) are reduced outside of the hook "
            "(delay_all_reduce_named_params)",
        ),
    ],
)
def test_gradients_that_buckets_cannot_hold_are_refused(group_of_one, make, text):
    net, options = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ConfigError) as caught:
            registered(net, **options)
    assert text in str(caught.value)


def _one_is_wrong(rank, size):
    state = {"f": (lambda n: n) if rank == 1 else 3}
    try:
        registered(nn.Linear(2, 2), {"own": Stateful(state)}, policy=SkipStraggler())
    except ConfigError as error:
        return str(error)
    return "taken"


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("mixed_precision", "(mixed_precision=...) reduces gradients in another dtype"),
        ("_use_python_reducer", "optimize_ddp is 'python_reducer', with which Dist"),
    ],
)
def test_a_reducer_without_fitting_buckets_is_refused(group_of_one, option, text):
    model = DistributedDataParallel(nn.Linear(2, 2))
    # Set like the constructor does, which would need a GPU.
    setattr(model, option, True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError) as caught:
        ddp.register(model, optimizer=optimizer)
    assert text in str(caught.value)


@pytest.mark.multiproc
def test_all_ranks_refuse_what_one_of_them_refuses():
    for text in run_ranks(3, _one_is_wrong):
        assert "state['own'].f cannot be copied" in text
        assert "on rank 1" in text
