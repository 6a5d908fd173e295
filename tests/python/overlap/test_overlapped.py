# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Effects of each call of the training loop on parameters and gradients, on one
rank.
"""

import copy
import gc
import io
import weakref

import pytest
import torch
import torch.distributed as dist
from rich.console import Console
from torch import nn

from aikido_torch import trace
from aikido_torch.errors import ConfigError
from aikido_torch.overlap import OverlappedDataParallel, _parameter_usage
from aikido_torch.straggler import SkipStraggler
from aikido_torch.trace.record import _record, _spans
from harness.plain_buckets import plain_buckets


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 2))


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


class Pair:
    """The same training without and with OverlappedDataParallel."""

    def __init__(self, make=make_net, optimizer=sgd, **options):
        self.plain, self.net = make(), make()
        self.of_plain, self.of_net = optimizer(self.plain), optimizer(self.net)
        self.model = OverlappedDataParallel(self.net, self.of_net, **options)

    def both(self):
        return ((self.plain, self.of_plain), (self.model, self.of_net))

    def step(self, number, *, between=lambda model, optimizer: None):
        for model, optimizer in self.both():
            optimizer.zero_grad()
            model(batch(number)).square().mean().backward()
            between(model, optimizer)
            optimizer.step()

    def step_ahead(self, number):
        """A step that is not needed yet. Returns a weight, and its value before."""
        self.model.synchronize()
        last = self.net[3].weight
        before = last.detach().clone()
        self.step(number)
        with unseen():
            assert torch.equal(last, before)
        return last, before

    def check(self):
        self.model.synchronize()
        for a, b in zip(self.plain.parameters(), self.net.parameters(), strict=True):
            assert torch.equal(a, b)


def unseen():
    """Context in which reads return the present values without waiting."""
    return torch._C.DisableTorchFunctionSubclass()


def batch(number):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(number))


@pytest.fixture(autouse=True)
def sums_go_on():
    """In the next forward, from the first step on."""
    with plain_buckets(False):
        yield


@pytest.fixture
def pair(group_of_one):
    return Pair()


def test_it_learns_what_one_process_learns(pair):
    for number in range(12):
        pair.step(number)
    pair.check()
    assert pair.model.layout.predicted_s is not None


def test_a_step_is_done_when_the_next_forward_needs_it(pair):
    for number in range(6):
        pair.step(number)
    last, before = pair.step_ahead(6)
    assert last.grad is None
    pair.net[0](batch(1))  # outside of a forward of the model, everything is waited for
    assert not torch.equal(last, before)
    pair.check()


def test_forwards_without_gradients_see_the_last_step(pair):
    for number in range(6):
        pair.step(number)
        with torch.no_grad():
            assert torch.equal(pair.plain(batch(9)), pair.model(batch(9)))
        pair.model.eval()
        assert torch.equal(pair.plain(batch(9)), pair.net(batch(9)))
        pair.model.train()


class Short(nn.Module):
    """Module that uses the weights of its layer itself if no gradients are needed."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        if torch.is_grad_enabled():
            return self.inner(x)
        return nn.functional.linear(x, self.inner.weight, self.inner.bias)


def make_short():
    torch.manual_seed(5)
    return Short()


def test_a_forward_without_gradients_may_go_another_way(group_of_one):
    pair = Pair(make_short)
    for number in range(6):
        pair.step(number)
        with torch.no_grad():
            assert torch.equal(pair.plain(batch(9)), pair.model(batch(9)))


class Sly(nn.Module):
    """Module that sometimes reads its second layer before it calls the first one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.is_sly = False

    def forward(self, x):
        early = x + self.second.bias if self.is_sly else x
        return self.second(self.first(early))


def make_sly():
    torch.manual_seed(6)
    return Sly()


@pytest.mark.parametrize("watch", ["first", "always"])
def test_reads_that_no_call_tells_of_wait(group_of_one, watch):
    pair = Pair(make_sly, watch=watch)
    for number in range(9):
        for net in (pair.plain, pair.net):
            net.is_sly = number % 3 == 2
        pair.step(number)
    pair.check()


def test_a_look_now_and_then_warns_of_such_reads(group_of_one, monkeypatch):
    monkeypatch.setattr(_parameter_usage, "LOOK_EVERY", 5)

    class Own(nn.Parameter):
        pass

    def make():
        net = make_sly()
        net.second.bias = Own(net.second.bias.detach())
        return net

    with pytest.warns(UserWarning, match="is a Own"):
        pair = Pair(make)
    pair.step(0)
    for net in (pair.plain, pair.net):
        net.is_sly = True
    for number in range(1, 5):
        pair.step(number)
    with pytest.warns(UserWarning, match=r"'the model' reads 'second\.bias'.*always"):
        pair.step(5)


def test_states_are_those_behind_the_last_step(pair):
    for number in range(6):
        pair.step(number)
        wanted, found = pair.of_plain.state_dict(), pair.of_net.state_dict()
        for key, state in wanted["state"].items():
            same = found["state"][key]["momentum_buffer"]
            assert torch.equal(state["momentum_buffer"], same)
        pair.step(number + 50)
        for key, value in pair.plain.state_dict().items():
            assert torch.equal(value, pair.net.state_dict()[key])
            assert torch.equal(value, pair.model.state_dict()[f"module.{key}"])


def test_a_state_may_be_loaded_while_sums_are_under_way(pair):
    for number in range(6):
        pair.step(number)
    saved = copy.deepcopy((pair.plain.state_dict(), pair.of_plain.state_dict()))
    for number in range(6, 9):
        pair.step(number)
    for net, (model, optimizer) in zip(
        (pair.plain, pair.net), pair.both(), strict=True
    ):
        net.load_state_dict(saved[0])
        # Without the copy, the optimizer would keep the tensors themselves.
        optimizer.load_state_dict(copy.deepcopy(saved[1]))
        model.train()
    pair.check()
    for number in range(20, 24):
        pair.step(number)
    pair.check()


@pytest.mark.parametrize("is_first", [True, False])
def test_schedulers_change_the_steps_behind_them(group_of_one, is_first, recwarn):
    if is_first:
        schedulers = []

        def optimizer_with(net):
            optimizer = sgd(net)
            schedulers.append(torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5))
            return optimizer

        pair = Pair(optimizer=optimizer_with)
    else:
        pair = Pair()
        schedulers = [
            torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
            for _, optimizer in pair.both()
        ]
    for number in range(9):
        pair.step(number)
        for scheduler in schedulers:
            scheduler.step()
    pair.check()
    assert not [w for w in recwarn if "lr_scheduler" in str(w.message)]


def test_gradients_are_accumulated_under_no_sync(pair):
    for number in range(6):
        for model, optimizer in pair.both():
            for part in range(2):
                if model is pair.plain:
                    model(batch(number + part)).square().mean().backward()
                else:
                    with model.no_sync():
                        model(batch(number + part)).square().mean().backward()
            model(batch(number + 40)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        pair.check()


def test_the_norm_is_clipped_by_a_call_of_its_own(pair):
    def clip(model, optimizer):
        if model is pair.plain:
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.01))
        else:
            norms.append(model.clip_grad_norm_(0.01))

    for number in range(6):
        norms = []
        pair.step(number, between=clip)
        assert norms[0] == norms[1]
    pair.check()


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_may_be_changed_once_they_were_waited_for(pair, to_none):
    def halve(model, optimizer):
        if model is pair.model:
            model.wait_for_gradients()
        for p in model.parameters():
            p.grad.mul_(0.5)

    for number in range(6):
        pair.step(number, between=halve)
        for _, optimizer in pair.both():
            optimizer.zero_grad(set_to_none=to_none)
    pair.check()


@pytest.mark.parametrize(
    "change",
    [
        lambda net, optimizer: nn.utils.clip_grad_norm_(net.parameters(), 1e-3),
        lambda net, optimizer: nn.utils.clip_grad_value_(net.parameters(), 1e-3),
        lambda net, optimizer: optimizer.zero_grad(),
        lambda net, optimizer: setattr(net[0].weight, "grad", torch.ones(8, 4)),
        lambda net, optimizer: net[0].weight.grad.mul_(0.5),
    ],
)
def test_whoever_touches_gradients_that_are_being_summed_waits(pair, change):
    def touch(model, optimizer):
        change(pair.plain if model is pair.plain else pair.net, optimizer)

    for number in range(6):
        pair.step(number, between=touch)
    pair.check()


@pytest.mark.parametrize(
    "change",
    [
        lambda net, optimizer: optimizer.zero_grad(),
        lambda net, optimizer: setattr(net[0].weight, "grad", torch.ones(8, 4)),
    ],
)
def test_gradients_that_are_changed_unseen_are_refused(pair, change):
    pair.step(0)
    pair.model(batch(1)).mean().backward()
    with unseen():
        change(pair.net, pair.of_net)
    with pytest.raises(ConfigError, match="wait_for_gradients"):
        pair.of_net.step()


def test_norms_and_averages_are_read_when_they_are_there(pair):
    norms = ([], [])
    averages = [torch.optim.swa_utils.AveragedModel(make_net()) for _ in range(2)]

    def note(model, optimizer):
        net = pair.plain if model is pair.plain else pair.net
        norms[net is pair.net].append([p.grad.norm().item() for p in net.parameters()])

    for number in range(12):
        pair.step(number, between=note if number % 3 == 0 else lambda *_: None)
        for average, net in zip(averages, (pair.plain, pair.net), strict=True):
            average.update_parameters(net)
    assert norms[0] == norms[1]
    for a, b in zip(*(average.parameters() for average in averages), strict=True):
        assert torch.equal(a, b)
    assert pair.model._sums.num_due == 0
    pair.check()


def test_a_read_waits_for_its_parameter_alone(group_of_one):
    pair = Pair(plan=False)
    for number in range(6):
        pair.step(number)
    num_due = pair.model._sums.num_due
    assert num_due > 1
    assert torch.equal(pair.plain[3].bias, pair.net[3].bias)
    assert 0 < pair.model._sums.num_due < num_due
    pair.check()


def test_hooks_that_look_at_gradients_in_a_backward_see_their_own(pair):
    seen = []
    pair.net[3].bias.register_post_accumulate_grad_hook(
        lambda p: seen.append(p.grad.clone())
    )
    for number in range(6):
        pair.step(number)
    pair.check()
    assert len(seen) == 6


@pytest.mark.parametrize("num_steps", [0, 2, 7])
@pytest.mark.parametrize("is_due", [True, False])
def test_a_model_that_nobody_holds_is_freed(group_of_one, num_steps, is_due):
    pair = Pair()
    for number in range(num_steps):
        pair.step(number)
    if not is_due:
        pair.model.synchronize()
    gone = [weakref.ref(pair.model), weakref.ref(pair.net), weakref.ref(pair.of_net)]
    gone += [weakref.ref(p) for p in pair.net.parameters()]
    del pair
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


def test_a_model_is_there_as_long_as_its_net(group_of_one):
    pair = Pair()
    for number in range(6):
        pair.step(number)
    assert pair.model._sums.num_due
    del pair.model
    gc.collect()
    for a, b in zip(pair.plain.parameters(), pair.net.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_grad_scaler_works_with_and_without_waiting(group_of_one, is_told):
    pair = Pair(optimizer=lambda net: torch.optim.Adam(net.parameters(), fused=True))
    scalers = [torch.amp.GradScaler("cpu", init_scale=4.0) for _ in range(2)]
    for number in range(6):
        for scaler, (model, optimizer) in zip(scalers, pair.both(), strict=True):
            optimizer.zero_grad()
            loss = model(batch(number)).square().mean()
            scaler.scale(loss).backward()
            if is_told and model is pair.model:
                model.wait_for_gradients()
            if number % 2:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    pair.check()


def test_hooks_of_the_optimizer_see_whole_steps(pair):
    calls = []
    pair.of_net.register_step_post_hook(lambda o, *_: calls.append(len(o.state)))
    for number in range(6):
        pair.step(number)
    assert calls == [6] * 6
    pair.check()


def test_watching_counts_steps_and_leaves_them_in_parts(pair):
    watch = trace.watch(pair.model, pair.of_net, first_step=40, control=False)
    _record.take()
    trace.start()
    for number in range(6):
        pair.step(number)
    pair.step_ahead(6)
    pair.model.synchronize()
    trace.stop()
    assert watch.step == 47
    watch.remove()
    taken = _record.take()
    sections = [s for s in taken.spans if s.kind == _spans.Kind.SECTION]
    steps = [s.step for s in sections if taken.names[s.name] == "optimizer"]
    assert sorted(steps) == list(range(40, 47))
    pair.check()


def test_a_whole_step_is_counted_once(pair):
    watch = trace.watch(pair.model, pair.of_net, control=False)
    pair.of_net.register_step_post_hook(lambda *_: None)
    for number in range(6):
        pair.step(number)
    assert watch.step == 6
    watch.remove()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.inner = nn.Linear(4, 4)
        self.aside = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7)
        self.head.weight = self.embed.weight
        self.uses_aside = False

    def forward(self, x):
        x = self.embed(x.abs().long() % 7).sum(dim=1)
        if self.uses_aside:
            x = self.aside(x)
        x = self.inner(x)
        # Without a call of the layer that has the parameters.
        return self.head(x) + nn.functional.linear(x, self.embed.weight, self.head.bias)


def make_tied():
    torch.manual_seed(4)
    return Tied()


def decaying(net):
    return torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.1)


def test_shared_and_unused_parameters_and_another_way_through(group_of_one):
    pair = Pair(make_tied, optimizer=decaying)
    for number in range(24):
        for net in (pair.plain, pair.net):
            net.uses_aside = number % 5 > 2
        pair.step(number)
        if number % 3 == 0:
            pair.check()
    pair.check()
    assert pair.of_net.state[pair.net.aside.weight]["step"] < 24


def test_frozen_parameters_stay(group_of_one):
    def half_frozen():
        net = make_net()
        net[2].requires_grad_(False)
        return net

    pair = Pair(
        half_frozen,
        optimizer=lambda net: sgd(
            nn.ParameterList(p for p in net.parameters() if p.requires_grad)
        ),
    )
    for number in range(8):
        pair.step(number)
    pair.check()


def test_a_step_may_be_left_out(pair):
    for number in range(6):
        for model, optimizer in pair.both():
            optimizer.zero_grad()
            model(batch(number)).square().mean().backward()
            if number % 3 != 1:
                optimizer.step()
    pair.check()


def test_a_second_backward_before_the_step_is_refused(pair):
    pair.step(0)
    pair.model(batch(0)).mean().backward()
    with pytest.raises(ConfigError, match=r"for the second time.*no_sync"):
        pair.model(batch(1)).mean().backward()


def test_a_backward_instead_of_a_step_begins_anew_once_gradients_were_waited_for(pair):
    for number in range(6):
        for model, optimizer in pair.both():
            optimizer.zero_grad()
            for part in range(2):
                model(batch(number + 9 * part)).square().mean().backward()
                if model is pair.model:
                    model.wait_for_gradients()
                if number == 3:
                    optimizer.zero_grad()
            optimizer.step()
        pair.check()


def test_gradients_under_no_sync_are_refused_where_a_step_is_still_to_come(pair):
    for number in range(6):
        pair.step(number)
    last = pair.net[3].weight
    with (
        unseen(),
        pair.model.no_sync(),
        pytest.raises(ConfigError, match="its last step is"),
    ):
        last.square().sum().backward()


def test_catching_up_needs_to_know_what_the_loop_does_with_gradients(group_of_one):
    pair = Pair(policy=SkipStraggler(min_contributors=1))
    assert pair.model.catch_up() == 0
    pair.step(0, between=lambda *_: pair.model.wait_for_gradients())
    with pytest.raises(ConfigError, match=r"give it apply=\.\.\."):
        pair.model.catch_up()
    assert pair.model.catch_up(apply=pair.of_net.step) == 0


def test_a_step_with_a_closure_is_refused(pair):
    with pytest.raises(ConfigError, match=r"step\(closure\)"):
        pair.of_net.step(lambda: None)


def test_parameters_that_come_later_are_refused(pair):
    pair.of_net.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(ConfigError, match="has 1 parameters that the module has not"):
        pair.step(0)


def test_parameters_that_are_thawed_later_are_refused(group_of_one):
    def half_frozen():
        net = make_net()
        net[2].requires_grad_(False)
        return net

    pair = Pair(half_frozen)
    pair.step(0)
    pair.net[2].requires_grad_(True)
    with pytest.raises(ConfigError, match=r"2\.weight is trained, but was not"):
        pair.step(1)


def test_close_leaves_module_and_optimizer_as_they_were(pair):
    for number in range(6):
        pair.step(number)
    pair.model.close()
    assert "step" not in vars(pair.of_net)
    assert all(not m._forward_pre_hooks for m in pair.net.modules())
    pair.check()
    pair.step(7)  # a step without sums
    pair.check()
    pair.model.close()


def test_parameters_of_the_model_are_those_behind_the_last_step(pair):
    for number in range(6):
        pair.step(number)
        pair.model.zero_grad()
    assert pair.model._sums.num_due
    pairs = zip(pair.plain.parameters(), pair.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_parameters_are_not_written_to_before_their_last_step(pair):
    for number in range(6):
        pair.step(number)
        for net in (pair.plain, pair.net):
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.clamp_(-0.1, 0.1)
    pair.check()
    pair.step(6)
    with torch.no_grad(), unseen():
        pair.net[3].bias.mul_(0.5)
    with pytest.raises(ConfigError, match=r"3\.bias was written to behind"):
        pair.model(batch(7))


def test_a_module_may_be_copied_once_no_step_is_to_come(pair):
    for number in range(6):
        pair.step(number)
    with pytest.raises(ConfigError, match=r"copied or stored.*call synchronize"):
        copy.deepcopy(pair.net)
    pair.model.synchronize()
    stored = io.BytesIO()
    torch.save(pair.net, stored)
    stored.seek(0)
    copies = [
        copy.deepcopy(pair.net),
        torch.optim.swa_utils.AveragedModel(pair.net).module,
        torch.load(stored, weights_only=False),
    ]
    for net in copies:
        pairs = zip(pair.plain.parameters(), net.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    pair.step(6)
    for net in copies:  # the copies have no wrapper
        net(batch(7)).square().mean().backward()
        sgd(net).step()
        net.state_dict()
    assert pair.model._sums.num_due
    pair.check()


def test_a_forward_under_compile_is_refused(pair):
    compiled = torch.compile(pair.model, backend="eager")
    with pytest.raises(ConfigError, match=r"called under torch\.compile"):
        compiled(batch(0))
    for number in range(6):
        pair.step(number)
    pair.check()


def test_a_net_is_wrapped_once_until_it_is_closed(pair):
    with pytest.raises(ConfigError, match=r"0\.weight is trained by another"):
        OverlappedDataParallel(pair.net, sgd(pair.net))
    pair.model.close()
    OverlappedDataParallel(pair.net, sgd(pair.net)).close()


def test_groups_of_parameters_do_not_come_between_a_step_and_its_end(pair):
    for number in range(6):
        pair.step(number)
    pair.of_net.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(ConfigError, match="has 2 param_groups and had 1 at its last"):
        pair.model.synchronize()


def test_close_between_backward_and_step_leaves_the_mean(pair):
    for number in range(6):
        pair.step(number)
    for model, optimizer in pair.both():
        optimizer.zero_grad()
        model(batch(6)).square().mean().backward()
    views = [p.grad for p in pair.net.parameters()]
    pair.model.close()
    for p, view in zip(pair.net.parameters(), views, strict=True):
        assert p.grad.data_ptr() != view.data_ptr()
    pair.of_plain.step()
    pair.of_net.step()
    pair.check()


def test_what_is_planned_is_shown_once_there_is_something_to_show(pair):
    for number in range(30):
        console = Console(file=io.StringIO(), width=100)
        pair.model.report(console)
        has_measured = "iteration: predicted" in console.file.getvalue()
        assert has_measured == (number >= 2)
        pair.step(number)


def test_a_report_may_be_had_in_each_step_and_at_the_end(pair):
    model = pair.model
    for number in range(3):
        pair.step(number)
    for number in range(3, 9):
        pair.step(number)
        model._plan_anew()
        model.report(Console(file=io.StringIO()))
    model.close()
    dist.destroy_process_group()
    console = Console(file=io.StringIO(), width=100)
    model.report(console)
    assert "before this plan" in console.file.getvalue()


def test_where_no_plan_can_be_made_buckets_are_kept(pair, monkeypatch):
    def fail(*_):
        raise ConfigError("there is no such order")

    monkeypatch.setattr("aikido_torch.overlap._planner.planned", fail)
    for number in range(3):
        pair.step(number)
    with pytest.warns(UserWarning, match="without a plan: there is no such order"):
        pair.step(3)
    for number in range(4, 8):
        pair.step(number)
    pair.check()
    assert pair.model.layout.predicted_s is None


def test_without_a_plan_each_module_keeps_its_bucket(group_of_one):
    pair = Pair(plan=False)
    for number in range(8):
        pair.step(number)
    pair.check()
    assert len(pair.model.layout.buckets) == 3
    assert pair.model.layout.predicted_s is None


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (SkipStraggler(slack=0.5), "SkipStraggler: slack is 0.5 but must be between"),
        (SkipStraggler(min_contributors=2), "min_contributors is 2 but must be betwe"),
        (SkipStraggler(ceiling_ms=3_000_000), "ceiling_ms is 3e+06 but the timeout"),
    ],
)
def test_a_policy_out_of_its_range_is_refused_when_it_wraps(group_of_one, policy, text):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ConfigError) as caught:
        OverlappedDataParallel(net, optimizer, policy=policy)
    assert str(caught.value).startswith("OverlappedDataParallel: SkipStraggler: ")
    assert text in str(caught.value)
