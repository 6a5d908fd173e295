# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.runtime._stage import StageRun, Update


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.5)


def make(module, loss_fn=None, index=1):
    return StageRun(index, module, make_optimizer=sgd, loss_fn=loss_fn)


def leaf(*shape):
    return torch.randn(*shape).requires_grad_()


def test_a_backward_gives_input_gradients_and_sums_weight_gradients():
    layer = nn.Linear(3, 2)
    run = make(layer)
    wanted = torch.zeros_like(layer.weight)
    for b in range(3):
        x, gradient = leaf(4, 3), torch.randn(4, 2)
        (output,) = run.forward(b, 0, (x,), 1.0)
        (into,) = run.backward(b, (gradient,))
        assert torch.equal(output, layer(x))
        assert torch.equal(into, gradient @ layer.weight)
        wanted = wanted + gradient.t() @ x
    update = run.take_update()
    assert update.weight == 3
    torch.testing.assert_close(update.gradients[0], wanted)
    assert run.take_update().gradients == [None, None]


def test_both_halves_of_a_backward_equal_the_whole():
    torch.manual_seed(1)
    layer = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    x, gradient = leaf(4, 3), torch.randn(4, 2)
    whole, halves = make(layer), make(layer)
    whole.forward(0, 0, (x,), 1.0)
    halves.forward(0, 0, (x,), 1.0)
    assert torch.equal(
        whole.backward(0, (gradient,))[0], halves.input_gradient(0, (gradient,))[0]
    )
    assert halves.take_update().gradients == [None] * 4
    halves.weight_gradient(0)
    for a, b in zip(
        whole.take_update().gradients, halves.take_update().gradients, strict=True
    ):
        assert torch.equal(a, b)


def test_the_mean_of_an_update_is_over_its_rows():
    layer = nn.Linear(3, 1)
    start = layer.weight.detach().clone()
    run = make(layer, lambda output, target: ((output - target) ** 2).mean())
    x, y = torch.randn(6, 3), torch.randn(6, 1)
    whole = ((layer(x) - y) ** 2).mean()
    (wanted,) = torch.autograd.grad(whole, layer.weight)
    for b, rows in enumerate([slice(0, 4), slice(4, 6), slice(6, 6)]):
        weight = len(x[rows]) / 4
        assert run.forward(b, 0, (x[rows],), weight, target=y[rows]) == ()
        run.backward(b, ())
    run.step(1, run.take_update())
    ((loss, weight),) = run.update_losses
    assert loss / weight == pytest.approx(whole.item(), rel=1e-6)
    torch.testing.assert_close(layer.weight, start - 0.5 * wanted)
    assert set(run.losses) == {0, 1}


def test_an_update_without_rows_changes_nothing():
    layer = nn.Linear(3, 1)
    before = layer.weight.detach().clone()
    run = StageRun(
        0, layer, make_optimizer=lambda p: torch.optim.SGD(p, lr=1.0), loss_fn=None
    )
    run.forward(0, 0, (torch.ones(1, 3),), 1.0)
    run.backward(0, (torch.ones(1, 1),))
    run.step(1, run.take_update())
    after = layer.weight.detach().clone()
    assert not torch.equal(after, before)
    run.forward(1, 1, (), 0.0)
    run.backward(1, ())
    run.step(2, run.take_update())
    assert torch.equal(layer.weight, after)
    assert run.weights.newest == 2


def test_parameters_with_equal_gradients_are_stepped_alike():
    class TwoBiases(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.zeros(2))
            self.b = nn.Parameter(torch.zeros(2))

        def forward(self, x):
            return x + self.a + self.b

    module = TwoBiases()
    run = make(module)
    for b in range(3):
        run.forward(b, 0, (leaf(1, 2),), 1.0)
        run.backward(b, (torch.ones(1, 2),))
    run.step(1, run.take_update())
    assert module.a.tolist() == module.b.tolist() == [-0.5, -0.5]


def test_a_recomputed_forward_is_the_same():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    x, gradient = leaf(4, 3), torch.randn(4, 8)
    kept, again = make(module), make(module)
    state = torch.get_rng_state()
    kept.forward(0, 0, (x,), 1.0)
    (wanted,) = kept.backward(0, (gradient,))
    mean = module[1].running_mean.clone()
    torch.set_rng_state(state)
    again.forward(0, 0, (x,), 1.0, is_kept=False)
    torch.randn(7)
    means = module[1].running_mean.clone()
    random = torch.get_rng_state()
    again.recompute(0)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(module[1].running_mean, means)
    assert not torch.equal(means, mean)
    assert torch.equal(again.backward(0, (gradient,))[0], wanted)
    for a, b in zip(
        kept.take_update().gradients, again.take_update().gradients, strict=True
    ):
        assert torch.equal(a, b)


class Several(nn.Module):
    """Takes and returns two tensors; one of them has no gradient."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.ones(1))
        self.layer = nn.Linear(3, 3)

    def forward(self, x, mask):
        return self.layer(x) * mask, mask


def test_stages_can_have_several_tensors_and_parameters_without_a_gradient():
    module = Several()
    run = make(module)
    x, mask = leaf(2, 3), torch.tensor([[1, 0, 1]] * 2)
    outputs = run.forward(0, 0, (x, mask), 1.0)
    assert [output.requires_grad for output in outputs] == [True, False]
    (into,) = run.backward(0, (torch.ones(2, 3),))
    assert into.shape == (2, 3)
    update = run.take_update()
    assert update.gradients[0] is None
    run.step(1, update)
    assert module.unused.item() == 1


def test_a_stage_without_parameters_has_no_optimizer():
    run = make(nn.Tanh())
    assert run.optimizer is None
    x = leaf(2, 2)
    run.forward(0, 0, (x,), 1.0)
    (into,) = run.backward(0, (torch.ones(2, 2),))
    torch.testing.assert_close(into, 1 - torch.tanh(x) ** 2)
    run.step(1, run.take_update())


def test_a_wrong_result_of_a_stage_is_explained():
    with pytest.raises(
        ConfigError, match=r"^stage 1 returned a dict; a stage that is "
    ):
        make(Returning({})).forward(0, 0, (), 1.0)
    last = make(nn.Linear(2, 2), lambda output, target: output)
    with pytest.raises(
        ConfigError, match=r"^stage 1, the last: loss_fn returned a tensor"
    ):
        last.forward(3, 0, (torch.ones(1, 2),), 1.0, target=None)


class Returning(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self):
        return self.value


class Checkpointed(nn.Module):
    """Recomputes its forward in its backward with torch's checkpoint function."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))

    def forward(self, x):
        return checkpoint(self.layers, x, use_reentrant=False)


@pytest.mark.parametrize("in_halves", [False, True])
def test_a_recomputation_in_the_backward_uses_the_weights_of_the_forward(in_halves):
    torch.manual_seed(2)
    module = Checkpointed()
    run = make(module)
    xs, gradient = [leaf(4, 3), leaf(4, 3)], torch.randn(4, 2)
    of = [xs[0], *module.layers.parameters()]
    wanted = torch.autograd.grad(module.layers(xs[0]), of, gradient)
    run.weights.push(0)
    run.forward(0, 0, (xs[0],), 1.0)
    halved = [torch.full_like(p, 0.5) for p in run.parameters]
    run.step(1, Update(halved, weight=1.0))
    run.forward(1, 1, (xs[1],), 1.0)
    if in_halves:
        (into,) = run.input_gradient(0, (gradient,))
        run.input_gradient(1, (gradient,))
        run.weight_gradient(0)
    else:
        (into,) = run.backward(0, (gradient,))
    torch.testing.assert_close([into, *run.take_update().gradients], [*wanted])


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_stage_can_change_its_input_in_place(is_kept):
    class Doubling(nn.Module):
        def forward(self, x):
            return x.mul_(2)

    layer = nn.Linear(3, 2)
    run = make(nn.Sequential(Doubling(), layer))
    x, gradient = leaf(4, 3), torch.randn(4, 2)
    wanted = layer(2 * x).detach()
    of_weight = gradient.t() @ (2 * x.detach())
    (output,) = run.forward(0, 0, (x,), 1.0, is_kept=is_kept)
    if not is_kept:
        run.recompute(0)
    (into,) = run.backward(0, (gradient,))
    torch.testing.assert_close(output, wanted)
    torch.testing.assert_close(into, 2 * gradient @ layer.weight)
    torch.testing.assert_close(run.take_update().gradients[0], of_weight)


def test_autocast_around_all_steps_casts_the_weights_of_each_step():
    layer = nn.Linear(3, 2)
    run = make(layer)
    x = torch.ones(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run.forward(0, 0, (x,), 1.0)
        run.backward(0, (torch.ones(4, 2, dtype=torch.bfloat16),))
        run.step(1, run.take_update())
        (output,) = run.forward(1, 1, (x,), 1.0)
        torch.clear_autocast_cache()
        assert torch.equal(output, layer(x))


def test_the_set_of_parameters_with_gradients_must_not_change():
    layer = nn.Linear(3, 2)
    run = make(layer)
    run.begin()
    layer.bias.requires_grad_(False)
    text = "^stage 1: 1 parameters need gradients now; there were 2, or others, when "
    with pytest.raises(ConfigError, match=text):
        run.begin()


def test_a_recomputed_forward_uses_the_buffers_of_the_first_forward():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * self.calls.clone()

    module = Counting()
    run = make(module)
    for b in range(2):
        run.forward(b, 0, (leaf(2, 2),), 1.0, is_kept=False)
    for b in range(2):
        run.recompute(b)
        (into,) = run.backward(b, (torch.ones(2, 2),))
        assert into.tolist() == [[b + 1] * 2] * 2
    assert module.calls.item() == 2
