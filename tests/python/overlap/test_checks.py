# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import warnings

import pytest
import torch
from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.overlap._checks import (
    ParameterCheck,
    check_arguments,
    check_gradient,
    check_parameters,
    warn_of_classes,
)
from aikido_torch.straggler import ActiveBackup, SkipStraggler, WaitAll


def sgd(*parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def compiled_in_place():
    net = nn.Linear(2, 2)
    net.compile()
    return net


NET = nn.Linear(2, 2)
OWN = sgd(*NET.parameters())


GIVEN = {
    "module": NET,
    "optimizer": OWN,
    "policy": WaitAll(),
    "plan": True,
    "watch": "first",
}


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("module", 3, "module is 3; it takes a torch.nn.Module"),
        ("optimizer", NET, "optimizer is Linear.* it takes an optimizer"),
        ("policy", "skip", "policy is 'skip'; it takes WaitAll"),
        ("plan", 1, "plan is 1; it takes True or False"),
        ("watch", "all", "watch is 'all'; it takes first or always"),
        ("module", nn.Sequential(nn.LazyLinear(3)), "without a shape"),
        ("module", nn.Sequential(nn.DataParallel(NET)), "0 is a DataParallel, which"),
        ("module", torch.compile(NET), "module is compiled"),
        ("module", compiled_in_place(), "module is compiled in place"),
        ("policy", ActiveBackup(), "backups need to know"),
        ("policy", SkipStraggler(on_log_full="exclude"), 'use on_log_full="wait"'),
    ],
)
def test_what_cannot_work_is_refused(argument, value, words):
    with pytest.raises(ConfigError, match=words):
        check_arguments(**(GIVEN | {argument: value}))


def test_what_works_is_taken():
    check_arguments(NET, OWN, SkipStraggler(), plan=False, watch="always")
    check_parameters(NET, OWN)


def test_the_optimizer_has_what_is_trained_and_nothing_else():
    with pytest.raises(ConfigError, match=r"does not step 1 parameters.*\(bias"):
        check_parameters(NET, sgd(NET.weight))
    with pytest.raises(ConfigError, match="has 2 parameters that the module has not"):
        check_parameters(NET, sgd(*NET.parameters(), *nn.Linear(1, 1).parameters()))
    frozen = nn.Linear(2, 2)
    optimizer = sgd(*frozen.parameters())
    frozen.bias.requires_grad_(False)
    check_parameters(frozen, optimizer)
    known = {id(frozen.weight)}
    check_parameters(frozen, optimizer, known=known)
    frozen.bias.requires_grad_(True)
    with pytest.raises(ConfigError, match="bias is trained, but was not"):
        check_parameters(frozen, optimizer, known=known)
    frozen.requires_grad_(False)
    with pytest.raises(ConfigError, match="no parameter of the module requires"):
        check_parameters(frozen, optimizer)


def test_a_change_of_the_parameters_is_checked_until_it_is_right():
    net = nn.Linear(2, 2)
    optimizer = sgd(*net.parameters())
    check = ParameterCheck(net, optimizer, {id(p) for p in net.parameters()})
    check.run()
    stranger = nn.Parameter(torch.zeros(1))
    optimizer.add_param_group({"params": [stranger]})
    for _ in range(2):
        with pytest.raises(ConfigError, match="1 parameters that the module has"):
            check.run()
    del optimizer.param_groups[-1]
    check.run()
    net.bias.requires_grad_(False)
    check.run()


def test_sparse_gradients_are_refused():
    embedding = nn.Embedding(3, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ConfigError, match=r"gradient of e\.weight is sparse"):
        check_gradient("e.weight", embedding.weight)


def test_parameters_whose_reads_cannot_be_seen_are_named_once():
    class Own(torch.nn.Parameter):
        pass

    parameters = {n: Own(torch.ones(1)) for n in ("a", "b")}
    with pytest.warns(UserWarning, match=r"a is a Own \(2 such.*call synchronize"):
        warn_of_classes(parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_classes({"a": torch.nn.Parameter(torch.ones(1))})
