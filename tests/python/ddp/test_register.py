# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Models and optimizers that `register` accepts or refuses."""

import copy
import gc
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import SkipStraggler, WaitAll


class _Unfit:
    """Models that cannot go on without a late rank, and the reasons."""

    @staticmethod
    def no_ddp():
        return nn.Linear(2, 2)

    @staticmethod
    def unused():
        return DistributedDataParallel(nn.Linear(2, 2), find_unused_parameters=True)

    @staticmethod
    def buffers():
        return DistributedDataParallel(
            nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        )

    @staticmethod
    def gloo():
        group = dist.new_group(backend="gloo")
        return DistributedDataParallel(nn.Linear(2, 2), process_group=group)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            _Unfit.no_ddp,
            "model is a Linear; wrap it in DistributedDataParallel first.",
        ),
        (
            _Unfit.unused,
            "find_unused_parameters=True makes DDP all-reduce a map of used parameters "
            "in every step, for which all ranks wait; use False, or static_graph=True.",
        ),
        (
            _Unfit.buffers,
            "The model has buffers (1.running_mean, 1.running_var, "
            "1.num_batches_tracked, ...) which DDP broadcasts in every forward, for "
            "which all ranks wait; wrap it with forward_sync_buffers=False "
            "(broadcast_buffers=False where torch has no forward_sync_buffers).",
        ),
        (_Unfit.gloo, " runs on backend 'gloo', not on 'aikido'; make it with "),
    ],
)
def test_a_model_for_which_all_ranks_would_wait_is_refused(group_of_one, make, text):
    with pytest.raises(ConfigError) as caught:
        ddp.register(make(), optimizer=None)
    assert text in str(caught.value)


def test_a_model_that_was_told_what_to_do_is_taken(group_of_one):
    with_buffers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    unused = DistributedDataParallel(
        nn.Linear(2, 2), find_unused_parameters=True, static_graph=True
    )
    quiet = DistributedDataParallel(with_buffers, broadcast_buffers=False)
    for model in (unused, quiet):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = ddp.register(model, optimizer=optimizer, policy=WaitAll())
        for _ in range(3):
            model(torch.ones(2, 2)).sum().backward()
        assert handle.steps == 3


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True])
def test_a_wrong_number_of_batches_is_refused(group_of_one, number):
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=f"batches_per_step is {number!r}; it takes"):
        ddp.register(model, optimizer=optimizer, batches_per_step=number)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"late": "keep"}, "late is 'keep'; it takes drop or carry."),
        (
            {"policy": SkipStraggler(min_contributors=2)},
            "register: SkipStraggler: min_contributors is 2 but must be between 1 and "
            "the world size of 1, or None for more than half of it.",
        ),
        (
            {"policy": SkipStraggler(ceiling_ms=1_800_000)},
            "register: SkipStraggler: ceiling_ms is 1.8e+06 but the timeout of the "
            "call is 1.8e+06 ms: it would fail before a late rank is skipped; use a "
            "shorter ceiling_ms, or None, or a longer timeout.",
        ),
        (
            {"policy": SkipStraggler(on_log_full="exclude"), "apply": print},
            'on_log_full="exclude" makes a rank that was late for too long copy the '
            "state of another one, and with apply or after_step register cannot tell "
            "what that is; give state={...}, {} if there is nothing else, or "
            'on_log_full="wait".',
        ),
    ],
)
def test_a_choice_that_there_is_not_is_refused(group_of_one, arguments, text):
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError) as caught:
        ddp.register(model, optimizer=optimizer, **arguments)
    assert str(caught.value) == text


def test_an_optimizer_that_evaluates_the_model_needs_a_way_to_be_applied(group_of_one):
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.LBFGS(model.parameters())
    with pytest.raises(ConfigError, match="LBFGS evaluates the model in its step"):
        ddp.register(model, optimizer=optimizer)


@pytest.mark.parametrize(
    ("arguments", "may_copy"),
    [
        ({}, True),
        ({"after_step": print}, False),
        ({"apply": print}, False),
        ({"apply": print, "state": {}}, True),
    ],
)
def test_a_state_that_may_not_be_whole_is_not_copied(group_of_one, arguments, may_copy):
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = ddp.register(model, optimizer=optimizer, **arguments)
    assert (handle._copy is not None) == may_copy
    assert handle._policies.excludes is False


def test_a_whole_state_lets_ranks_leave_for_a_full_log(group_of_one):
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = SkipStraggler(on_log_full="exclude")
    assert ddp.register(model, optimizer=optimizer, policy=policy)._policies.excludes


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"apply": 3}, "apply is 3; it takes a function without arguments."),
        ({"after_step": 5}, "after_step is 5; it takes a function without arguments."),
        (
            {"state": {"a": 3}},
            "state['a'] is 3; it takes an object with state_dict and load_state_dict.",
        ),
        (
            {"state": {"sgd": torch.optim.SGD}},
            "state['sgd'] is <class 'torch.optim.sgd.SGD'>; it takes an object with "
            "state_dict and load_state_dict.",
        ),
        ({"state": [3]}, "state is [3]; it takes a dict of names and objects."),
        (
            {"policy": "SkipStraggler"},
            "policy is 'SkipStraggler'; it takes WaitAll(), SkipStraggler(...) or "
            "ActiveBackup(...).",
        ),
        (
            {"optimizer": torch.optim.SGD},
            "optimizer is <class 'torch.optim.sgd.SGD'>; it takes an optimizer, such "
            "as SGD(...).",
        ),
        ({"copy": "always"}, "copy is 'always'; it takes StateCopy(...)."),
    ],
)
def test_an_argument_of_another_kind_is_refused_at_once(group_of_one, arguments, text):
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError) as caught:
        ddp.register(model, **{"optimizer": optimizer, **arguments})
    assert str(caught.value) == f"register: {text}"


def test_a_model_is_registered_once(group_of_one):
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ddp.register(model, optimizer=optimizer, policy=WaitAll())
    for policy in (WaitAll(), SkipStraggler()):
        with pytest.raises(ConfigError) as caught:
            ddp.register(model, optimizer=optimizer, policy=policy)
        assert str(caught.value).startswith(
            "register: this model (DistributedDataParallel of Linear) is registered al"
        )


def train(model, steps=3, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ddp.register(
        model,
        optimizer=optimizer,
        # As in a loop that clips gradients: the function refers to the model.
        apply=lambda: (model.parameters(), optimizer.step()),
        **options,
    )
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2)).sum().backward()
        optimizer.step()


def test_a_model_that_nobody_has_any_more_is_garbage(group_of_one):
    model = DistributedDataParallel(nn.Linear(2, 2))
    train(model)
    net = weakref.ref(model.module)
    del model
    gc.collect()
    assert net() is None


def test_a_handle_that_nobody_keeps_goes_on(group_of_one):
    model = DistributedDataParallel(nn.Linear(2, 2))
    train(model, steps=0)
    gc.collect()
    model(torch.ones(2)).sum().backward()
    assert model.module.bias.grad.tolist() == [1, 1]


def test_a_copy_of_a_registered_model_is_free(group_of_one):
    model = DistributedDataParallel(nn.Linear(2, 2))
    train(model)
    other = copy.deepcopy(model)
    train(other)
    assert torch.equal(model.module.weight - 0.3, other.module.weight)


def test_an_optimizer_that_leaves_parameters_out_is_refused(group_of_one):
    model = DistributedDataParallel(nn.Linear(2, 2))
    other = torch.optim.SGD([model.module.weight], lr=0.1)
    with pytest.raises(ConfigError, match=r"does not step 1 parameters .*\(bias, "):
        ddp.register(model, optimizer=other)


@pytest.mark.parametrize("is_ignored", [False, True])
def test_parameters_that_no_bucket_holds_are_refused(group_of_one, is_ignored):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
    stepped = [*net.parameters()]
    if is_ignored:
        net._ddp_params_and_buffers_to_ignore = ["1.weight"]
        place = r"param_groups\[0\]\['params'\]\[2\] \[3, 2\]"
    else:
        stepped.append(nn.Parameter(torch.zeros(5)))
        place = r"param_groups\[0\]\['params'\]\[4\] \[5\]"
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(stepped, lr=0.1)
    with pytest.raises(ConfigError, match=f"steps 1 parameters .*{place}.*wrapped"):
        ddp.register(model, optimizer=optimizer)
    # Without replays it does not matter.
    ddp.register(model, optimizer=optimizer, policy=WaitAll())


def test_parameters_outside_that_are_not_trained_are_no_matter(group_of_one):
    net = nn.Linear(2, 2)
    frozen = nn.Parameter(torch.zeros(5), requires_grad=False)
    optimizer = torch.optim.SGD([*net.parameters(), frozen], lr=0.1)
    ddp.register(DistributedDataParallel(net), optimizer=optimizer)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"check": "loud"}, r"check is 'loud'; it takes \('error', 'warn', 'off'\)"),
        ({"check_every": 0}, "check_every is 0; it takes a whole number of steps"),
        ({"check_every": 1.5}, "check_every is 1.5; it takes a whole number of steps"),
    ],
)
def test_a_wrong_kind_of_check_is_refused(group_of_one, told, text):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=text):
        ddp.register(DistributedDataParallel(net), optimizer=optimizer, **told)
