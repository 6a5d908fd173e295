# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.data import BackupSampler
from aikido_torch.ddp._step_training import StepTraining, facts_of
from aikido_torch.errors import ConfigError
from aikido_torch.reassign import StepLoader
from aikido_torch.reassign._proof import RankLists
from aikido_torch.straggler import ActiveBackup, SkipStraggler, WaitAll

SAMPLES = torch.zeros(12, 2)


def loader_of(**options):
    return StepLoader(SAMPLES, **{"batch_size": 6, "micro_batch_size": 2} | options)


def register(static_graph=False, **options):
    model = DistributedDataParallel(nn.Linear(2, 1), static_graph=static_graph)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"policy": WaitAll(), "steps": loader_of()} | options
    return model, optimizer, ddp.register(model, optimizer=optimizer, **options)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"policy": ActiveBackup(backups=1)}, "policy is ActiveBackup and steps"),
        ({"sampler": "a sampler"}, "sampler and steps are given"),
        ({"batches_per_step": 3}, "batches_per_step is 3 and steps is given"),
        ({"policy": SkipStraggler(), "late": "carry"}, 'late is "carry" and steps'),
        ({"policy": SkipStraggler(divisor="world")}, 'divisor="world" and steps'),
        ({"static_graph": True}, "static_graph=True and steps is given"),
        ({"steps": [1, 2]}, r"steps is \[1, 2\]; it takes aikido_torch.reassign"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(group_of_one, options, part):
    if "sampler" in options:
        options["sampler"] = BackupSampler(SAMPLES, 2, WaitAll())
    with pytest.raises(ConfigError, match=part):
        register(**options)


def test_a_step_with_fewer_items_than_ranks_is_refused():
    assert (
        "has 3 micro-batches (batch_size 6, micro_batch_size 2), fewer than the 4"
        in (loader_of().why_not(4))
    )
    assert loader_of().why_not(3) == ""


def test_facts_of_no_loader():
    assert facts_of(None) == {"steps": "none"}
    assert "steps.seed" in facts_of(loader_of())


def test_contributors_of_own_and_copied_steps(group_of_one):
    model, optimizer, handle = register()
    training = StepTraining(model, handle, optimizer, 0)
    assert training.place == (0, 1)
    assert training.timeout_s > 0
    assert training.contributors(0) == ()
    model(SAMPLES).sum().backward()
    assert training.steps == 1
    assert training.gone() == ([], 1)
    assert training.contributors(0) == {0}
    handle._book.counters(0).skipped[0] = 1
    assert training.contributors(0) == set()
    handle._book.counters(0).way = "copied"
    assert training.contributors(0) is None


def test_lists_are_published_and_forgotten(group_of_one):
    model, optimizer, handle = register()
    training = StepTraining(model, handle, optimizer, 0)
    lists = RankLists(begun=[1, 2], computed=[2, 3], waiting=[4], num_dropped=1)
    training.publish(0, lists)
    assert training.published(0, 0) == lists
    assert training.published(1, 0) is None
    for step in range(1, 300):
        training.publish(step, lists)
    assert training.published(0, 0) is None
    assert training.published(299, 0) == lists


def test_each_update_is_announced(group_of_one):
    class Calls:
        count = 0

        def add(self, *_):
            self.count += 1

    model, optimizer, handle = register(steps=None)
    calls = Calls()
    StepTraining(model, handle, optimizer, 0).before_update(calls.add)
    optimizer.step()
    assert calls.count == 1
    del calls
    optimizer.step()


def test_a_policy_that_waits_carries_nothing_and_takes_weights(group_of_one):
    for policy in (WaitAll(), WaitAll(rebalance=True)):
        _, _, handle = register(policy=policy, steps=None, late="carry")
        handle.weight = 2.0
        assert handle.weight == 2.0
    _, _, handle = register(policy=SkipStraggler(), steps=None, late="carry")
    with pytest.raises(ConfigError, match="a carried gradient"):
        handle.weight = 2.0


def test_batches_of_a_loader_are_not_counted(group_of_one):
    """The loader accumulates any number of micro-batches in a step."""
    model, _, handle = register()
    for _ in range(2):
        with model.no_sync():
            model(SAMPLES).sum().backward()
        model(SAMPLES).sum().backward()
    assert handle.steps == 2
    assert handle._batches.is_plain
