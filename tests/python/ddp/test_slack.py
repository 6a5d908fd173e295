# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""With one rank; tests/python/multiproc/test_slack.py has late ranks."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from aikido_torch import ddp
from aikido_torch.ddp import _register
from aikido_torch.ddp._slack import EmptySteps, slack_of, why_no_slack
from aikido_torch.errors import ConfigError
from aikido_torch.reassign import StepLoader
from aikido_torch.straggler import ActiveBackup, SkipStraggler, WaitAll
from harness.delayed_training import (
    STEPS,
    adam_of,
    loss_of,
    momentum_of,
    start,
    train_alone,
    values_of,
)


def same(found, expected):
    pairs = zip(found, expected, strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# ---- refusals ----


def refusal(
    slack,
    *,
    steps=None,
    policy=None,
    late="drop",
    apply=None,
    state=None,
    kind=torch.optim.SGD,
):
    optimizer = kind([nn.Parameter(torch.ones(1))], lr=0.1)
    policy = policy or WaitAll()
    return why_no_slack(slack, steps, policy, late, optimizer, apply, state or {})


@pytest.mark.parametrize("slack", [-1, 65, 1.0, "2", True])
def test_slack_is_a_whole_number_of_steps(slack):
    text = f"slack is {slack!r}; it takes a whole number of steps from 0 to 64."
    assert text in refusal(slack)


SCALER = {"scaler": torch.amp.GradScaler("cpu")}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"policy": SkipStraggler()}, "is SkipStraggler, which leaves out a late rank"),
        ({"policy": ActiveBackup(backups=1)}, "is ActiveBackup, which leaves out a"),
        ({"late": "carry"}, "leave late out"),
        ({"kind": torch.optim.LBFGS}, "LBFGS evaluates the model in its step"),
        ({"state": SCALER}, "give apply=..., which unscales"),
    ],
)
def test_slack_is_refused_where_it_has_no_meaning(arguments, text):
    assert text in refusal(1, **arguments)
    assert refusal(0, **arguments) == ""


def test_slack_goes_with_all_kinds_of_waiting_and_with_a_scaler_in_apply():
    for policy in (WaitAll(), WaitAll(rebalance=True)):
        assert refusal(64, policy=policy, state=SCALER, apply=print) == ""


def loader_of(slack):
    samples = torch.arange(48.0).reshape(8, 6) / 48
    return StepLoader(
        samples, batch_size=4, micro_batch_size=2, shuffle=False, slack=slack
    )


def test_slack_may_come_from_the_loader():
    assert slack_of(None, None) == 0
    assert [slack_of(given, loader_of(3)) for given in (None, 3)] == [3, 3]
    assert refusal(None, steps=loader_of(3)) == refusal(3, steps=loader_of(3)) == ""
    assert "slack is 2, and the StepLoader has slack 3" in refusal(
        2, steps=loader_of(3)
    )
    assert "slack is 65; it takes" in refusal(None, steps=loader_of(65))
    with pytest.raises(ConfigError, match="slack is -1; it takes a whole number"):
        loader_of(-1)


def test_register_says_why_it_takes_no_slack(group_of_one):
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=r"slack is 1 .* give policy=WaitAll\(\)"):
        ddp.register(model, optimizer=optimizer, slack=1)


# ---- steps of the optimizer without an update ----

OPTIMIZERS = [
    kind
    for kind in vars(torch.optim).values()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and kind not in (torch.optim.Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)
]


def linear_and(kind):
    torch.manual_seed(2)
    net = nn.Linear(3, 4, bias=False)  # Muon takes matrices only
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    return net, kind(net.parameters(), lr=0.1, **options)


@pytest.mark.parametrize("kind", OPTIMIZERS, ids=lambda kind: kind.__name__)
def test_an_empty_step_changes_nothing_in_any_optimizer(kind):
    (net, optimizer), (other, reference) = linear_and(kind), linear_and(kind)
    empty = EmptySteps(optimizer, lambda: list(net.parameters()))
    for step in range(4):
        gradient = torch.full((4, 3), 0.5 + step)
        for n, o in ((net, optimizer), (other, reference)):
            n.weight.grad = gradient.clone()
            o.step()
        empty.is_on = True
        net.weight.grad = nothing = torch.zeros(4, 3)
        optimizer.step()
        assert net.weight.grad is nothing
        assert not empty.is_on
        assert same(values_of(net, optimizer), values_of(other, reference))
    assert empty.num_steps == 8


@pytest.mark.parametrize("is_unscaled", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_an_empty_step_passes_a_scaler(is_unscaled, fused):
    net = nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, fused=fused)
    empty = EmptySteps(optimizer, lambda: list(net.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    before = values_of(net, optimizer)
    for _ in range(2):
        scaler.scale(net(torch.ones(1, 3)).sum() * 0).backward()
        empty.is_on = True
        if is_unscaled:
            scaler.unscale_(optimizer)
            assert nn.utils.clip_grad_norm_(net.parameters(), 1.0) == 0
        scaler.step(optimizer)
        scaler.update()
    assert same(values_of(net, optimizer), before)
    assert scaler.get_scale() == 16.0


def test_a_paused_empty_step_applies_its_gradients():
    net, optimizer = linear_and(torch.optim.SGD)
    empty = EmptySteps(optimizer, lambda: list(net.parameters()))
    before = net.weight.detach().clone()
    net.weight.grad = torch.ones(4, 3)
    empty.is_on = True
    with empty.paused():
        optimizer.step()
    assert empty.is_on
    assert torch.equal(net.weight, before - 0.1)


@pytest.mark.parametrize(
    "step",
    [
        lambda optimizer: optimizer.step(lambda: 1.0),
        lambda optimizer: optimizer.step(closure=lambda: 1.0),
    ],
)
def test_a_closure_is_refused(step):
    net, optimizer = linear_and(torch.optim.SGD)
    EmptySteps(optimizer, lambda: list(net.parameters()))
    step(optimizer)  # its hooks have no effect any more
    empty = EmptySteps(optimizer, lambda: list(net.parameters()))
    optimizer.step(None)
    with pytest.raises(ConfigError, match=r"call backward\(\) first and then step\(\)"):
        step(optimizer)
    assert empty.num_steps == 2


# ---- trainings ----


def train(model, optimizer, handle, *, num_steps=STEPS, flush_after=-1):
    for step in range(handle.steps, num_steps):
        handle.catch_up()
        optimizer.zero_grad()
        loss_of(model, 0, step).backward()
        optimizer.step()
        if step == flush_after:
            handle.flush()


CASES = {
    "plain": {},
    "views": {"wrap": {"gradient_as_bucket_view": True}},
    "one bucket": {"wrap": {"bucket_cap_mb": 25}},
    "adam": {"optimizer_of": adam_of},
    "views, adam": {
        "wrap": {"gradient_as_bucket_view": True},
        "optimizer_of": adam_of,
    },
}


@pytest.mark.parametrize("slack", [1, 2, 5, 64])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_update_is_applied_as_many_steps_later(group_of_one, slack, case):
    model, optimizer, handle = start(slack, **case)
    train(model, optimizer, handle)
    assert len(handle._delay) == min(slack, STEPS - 2)
    handle.close()
    assert len(handle._delay) == 0
    expected = train_alone(slack, 1, optimizer_of=case.get("optimizer_of", momentum_of))
    assert same(values_of(model.module, optimizer), expected)
    assert handle.steps == STEPS


@pytest.mark.parametrize("are_views", [False, True])
def test_a_static_graph_with_an_unused_layer_has_late_updates_too(
    group_of_one, are_views
):
    wrap = {"static_graph": True, "gradient_as_bucket_view": are_views}
    model, optimizer, handle = start(2, has_unused=True, wrap=wrap)
    train(model, optimizer, handle)
    handle.close()
    expected = train_alone(2, 1, num_strict=3, has_unused=True)
    assert same(values_of(model.module, optimizer), expected)
    assert model.module.unused.weight.grad is None


def test_without_slack_the_hook_is_the_usual_one(group_of_one):
    model, optimizer, handle = start(0)
    assert model._comm_hooks[0][0] is _register._call_hook
    assert handle._delay is None
    assert not optimizer._optimizer_step_pre_hooks
    train(model, optimizer, handle)
    assert handle.flush() == 0
    assert same(values_of(model.module, optimizer), train_alone(0, 1))


def test_a_flush_applies_what_is_pending_and_the_training_goes_on(group_of_one):
    model, optimizer, handle = start(3)
    train(model, optimizer, handle, num_steps=8)
    before = [p.grad for p in model.parameters()]
    assert handle.flush() == 3
    assert handle.flush() == 0
    assert all(p.grad is g for p, g in zip(model.parameters(), before, strict=True))
    train(model, optimizer, handle)
    assert handle.flush() == 3
    expected = train_alone(3, 1, flush_after=7)
    assert same(values_of(model.module, optimizer), expected)


def test_the_end_of_the_group_applies_what_is_pending(group_of_one):
    model, optimizer, handle = start(2)
    other, second, _kept = start(4)
    for m, o, h in ((model, optimizer, handle), (other, second, _kept)):
        train(m, o, h)
    dist.destroy_process_group()
    assert same(values_of(model.module, optimizer), train_alone(2, 1))
    assert same(values_of(other.module, second), train_alone(4, 1))


def test_the_end_of_the_group_after_an_exception_applies_nothing(group_of_one):
    model, optimizer, handle = start(2)
    train(model, optimizer, handle)
    try:
        raise ValueError("of the loop")
    except ValueError:
        dist.destroy_process_group()
    assert len(handle._delay) == 2


def test_an_error_in_apply_at_the_end_of_the_group_is_logged(group_of_one, caplog):
    def fail():
        raise ValueError("of apply")

    model, optimizer, handle = start(2, apply=fail)
    train(model, optimizer, handle)
    dist.destroy_process_group()
    assert "The last 2 updates, which slack had delayed" in caplog.text
    assert "ValueError: of apply" in caplog.text


def test_pending_updates_use_apply_and_call_no_scheduler(group_of_one):
    called = []
    model, optimizer, handle = start(
        3,
        apply=lambda: called.append(len(optimizer.param_groups)),
        after_step=lambda: called.append("after"),
    )
    train(model, optimizer, handle)
    handle.close()
    assert called == [1, 1, 1]


def test_accumulated_batches_are_one_step(group_of_one):
    model, optimizer, handle = start(2, batches_per_step=3)
    for step in range(STEPS):
        optimizer.zero_grad()
        for _ in range(2):
            with model.no_sync():
                (loss_of(model, 0, step) * 0.25).backward()
        (loss_of(model, 0, step) * 0.5).backward()
        optimizer.step()
    handle.close()
    found, expected = values_of(model.module, optimizer), train_alone(2, 1)
    for own, alone in zip(found, expected, strict=True):
        torch.testing.assert_close(own, alone)


def test_two_synchronised_backwards_for_one_step_are_refused(group_of_one):
    model, _, _handle = start(1)
    loss_of(model, 0, 0).backward()
    with pytest.raises(ConfigError, match=r"second backward .* under no_sync\(\)"):
        loss_of(model, 0, 1).backward()


# ---- a scaler ----


def train_scaled(slack, *, overflow_at=-1, wrap=None):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)

    def apply():
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        scaler.step(optimizer)
        scaler.update()

    model, optimizer, handle = start(
        slack, wrap=wrap, apply=apply, state={"scaler": scaler}
    )
    scales = []
    for step in range(STEPS):
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
        loss = scaler.scale(loss_of(model, 0, step))
        (loss * torch.inf if step == overflow_at else loss).backward()
        apply()
    handle.close()
    return values_of(model.module, optimizer), scales


@pytest.mark.parametrize("are_views", [False, True])
def test_late_gradients_have_the_scale_of_the_step_that_applies_them(
    group_of_one, are_views
):
    wrap = {"gradient_as_bucket_view": are_views}
    found, scales = train_scaled(2, wrap=wrap)
    assert scales[0] < scales[4] < scales[-1]
    assert same(found, train_alone(2, 1))


@pytest.mark.parametrize("step", [2, 5, STEPS - 1])
def test_a_scaler_leaves_out_an_overflow_when_it_is_due(group_of_one, step):
    found, scales = train_scaled(2, overflow_at=step)
    falls = [i for i in range(1, STEPS) if scales[i] < scales[i - 1]]
    assert falls == [i for i in [step + 3] if i < STEPS]
    assert same(found, train_alone(2, 1, lost=(step,)))


def test_a_scaler_may_leave_out_the_first_step(group_of_one):
    found, scales = train_scaled(1, overflow_at=0)
    assert scales[1] == scales[0] / 2
    assert same(found, train_alone(1, 1, lost=(0,)))
