# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import copy
import functools

import pytest
import torch
from torch import nn

from aikido_torch import errors, pipeline
from aikido_torch.pipeline.runtime._loss import check_loss_function, loss_of
from harness.pipelines import WIDTH, BatchFeed, LocalPipeline, layered, sgd

IGNORED = -100


def cross_entropy(outputs, targets, reduction="mean"):
    return nn.functional.cross_entropy(
        outputs.flatten(0, -2), targets.flatten(), reduction=reduction
    )


def summed(outputs, targets):
    count = (targets != IGNORED).sum()
    return cross_entropy(outputs, targets, reduction="sum"), count


def batches_of_tokens(counts, tokens=4):
    """Micro-batches of rows of tokens; `counts` has the counted tokens of each row."""
    dice = torch.Generator().manual_seed(1)
    batches = []
    for rows in counts:
        x = torch.randn(len(rows), tokens, WIDTH, generator=dice, dtype=torch.float64)
        y = torch.randint(WIDTH, (len(rows), tokens), generator=dice)
        for row, count in enumerate(rows):
            y[row, count:] = IGNORED
        batches.append((x, y, 1.0))
    return batches


def trained(schedule, batches, loss_fn):
    modules = layered(len(schedule.stages))
    pipe = LocalPipeline(modules, schedule, sgd, loss_fn)
    pipe.run(BatchFeed(batches))
    return modules, pipe


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gpipe", {"stages": 2}),
        ("1f1b", {"stages": 3}),
        ("1f1b", {"stages": 2, "replicas": [2, 1]}),
        ("1f1b", {"stages": 2, "replicas": [1, 2], "recompute": True}),
        ("interleaved_1f1b", {"stages": 4, "stages_per_rank": 2}),
        ("zero_bubble", {"stages": 2}),
    ],
)
def test_sums_with_counts_are_the_mean_over_all_tokens(name, options):
    schedule = pipeline.schedule(name, micro_batches=4, **options)
    batches = batches_of_tokens([[4, 1], [2, 2], [0, 0], [3, 4]])
    modules, pipe = trained(schedule, batches, summed)
    x, y = (torch.cat([batch[i] for batch in batches]) for i in range(2))
    whole = nn.Sequential(*map(copy.deepcopy, modules))
    optimizer = sgd(list(whole.parameters()))
    loss = cross_entropy(whole(x), y)
    loss.backward()
    optimizer.step()
    for runs in pipe.runs:
        for stage, run in runs.items():
            for own, wanted in zip(
                run.module.parameters(), whole[stage].parameters(), strict=True
            ):
                assert torch.allclose(own, wanted, rtol=1e-12, atol=1e-15)
            if run.is_last:
                ((total, count),) = run.update_losses
                assert count == 16
                assert total / count == pytest.approx(loss.item(), rel=1e-12)


def test_an_update_without_counted_tokens_changes_nothing():
    schedule = pipeline.schedule("1f1b", stages=2, micro_batches=2)
    modules, pipe = trained(schedule, batches_of_tokens([[0], [0]]), summed)
    for runs in pipe.runs:
        for stage, run in runs.items():
            pairs = zip(
                run.module.parameters(), modules[stage].parameters(), strict=True
            )
            assert all(torch.equal(own, before) for own, before in pairs)


@pytest.mark.parametrize(
    ("loss_fn", "sentence"),
    [
        (functools.partial(cross_entropy, reduction="sum"), "is the sum over rows"),
        (cross_entropy, "maybe a mean over tokens"),
    ],
)
def test_a_loss_that_cannot_be_weighted_is_refused(loss_fn, sentence):
    schedule = pipeline.schedule("1f1b", stages=2, micro_batches=2)
    batches = batches_of_tokens([[4, 1], [2, 2]])
    with pytest.raises(errors.ConfigError, match=sentence) as caught:
        trained(schedule, batches, loss_fn)
    assert "(cross_entropy(outputs, targets, reduction=" in str(caught.value)


@pytest.mark.parametrize(
    ("counts", "loss_fn", "sentence"),
    [
        ([[4], [4]], functools.partial(cross_entropy, reduction="sum"), "is the sum"),
        ([[4], [1]], cross_entropy, "maybe a mean over tokens"),
        ([[4, 0], [1, 1]], cross_entropy, "maybe a mean over tokens"),
        ([[4, 4], [1, 1]], cross_entropy, "maybe a mean over tokens"),
    ],
)
def test_rows_of_micro_batches_are_compared_with_each_other(counts, loss_fn, sentence):
    schedule = pipeline.schedule("1f1b", stages=2, micro_batches=2)
    with pytest.raises(errors.ConfigError, match=sentence):
        trained(schedule, batches_of_tokens(counts), loss_fn)


def test_a_mean_over_tokens_is_accepted_if_all_rows_have_equal_counts():
    schedule = pipeline.schedule("1f1b", stages=2, micro_batches=4)
    for counts in ([[3]] * 4, [[3, 3]] * 4, [[2, 2, 2], [2], [2, 2], [2]]):
        trained(schedule, batches_of_tokens(counts), cross_entropy)


def test_outputs_can_have_several_entries_for_each_row_of_targets():
    class Flat(nn.Module):
        def forward(self, x):
            return x.flatten(0, -2)

    schedule = pipeline.schedule("1f1b", stages=2, micro_batches=2)
    modules = [layered(1)[0], Flat()]
    pipe = LocalPipeline(modules, schedule, sgd, cross_entropy_of_flat)
    with pytest.raises(errors.ConfigError, match="maybe a mean over tokens"):
        pipe.run(BatchFeed(batches_of_tokens([[4, 1], [2, 2]])))


def cross_entropy_of_flat(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets.flatten())


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"value": torch.zeros(())}, "its arguments have no rows in common"),
        (torch.zeros(3), "its arguments have no rows in common"),
        (torch.zeros(4), "it fails for a part: ValueError: 4 rows"),
    ],
)
def test_a_loss_that_cannot_be_checked_gives_one_warning(target, why):
    def whole_alone(outputs, targets):
        if len(outputs) != 4:
            raise ValueError("4 rows")
        return outputs.mean()

    schedule = pipeline.schedule("1f1b", stages=2, micro_batches=4)
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    with pytest.warns(UserWarning, match=f"cannot be checked, since {why}") as told:
        trained(schedule, [(x, target, 1.0)] * 4, whole_alone)
    assert len(told) == 1


def test_token_counts_that_differ_later_are_found_then():
    schedule = pipeline.schedule("1f1b", stages=2, micro_batches=4)
    batches = batches_of_tokens([[2, 2], [2, 2], [2, 2], [3, 2]])
    with pytest.raises(errors.ConfigError, match="maybe a mean over tokens"):
        trained(schedule, batches, cross_entropy)


def test_a_mean_over_rows_is_accepted_and_the_random_state_is_kept():
    def noisy(outputs, targets):
        return (outputs * torch.rand(()) - targets).square().mean()

    schedule = pipeline.schedule("1f1b", stages=2, micro_batches=4)
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    pipe = LocalPipeline(layered(2), schedule, sgd, noisy)
    torch.manual_seed(5)
    pipe.run(BatchFeed([(x, x, 1.0)] * 4))
    after = torch.get_rng_state()
    torch.manual_seed(5)
    for _ in range(4):
        noisy(x, x)
    assert torch.equal(after, torch.get_rng_state())


def test_a_loss_that_the_user_weights_by_rows_is_accepted():
    def contrastive(outputs, targets):
        loss = (outputs @ outputs.T).logsumexp(1).mean() + targets.sum() * 0
        return loss * len(outputs), len(outputs)

    schedule = pipeline.schedule("1f1b", stages=2, micro_batches=2)
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    trained(schedule, [(x, x, 1.0)] * 2, contrastive)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (torch.ones(2), r"returned a tensor of \[2\]"),
        (1.0, "returned a float"),
        ((torch.tensor(1.0), torch.ones(2)), r"tensor of \[\] and a tensor of \[2\]"),
        ((torch.tensor(1.0), "4"), "and a str"),
        ((torch.tensor(1.0), True), "and a bool"),
        ((torch.tensor(1.0), -1), "count -1 for micro-batch 0; it takes a finite"),
        ((torch.tensor(1.0), float("nan")), "count nan"),
        ((torch.tensor(1.0),) * 3, "returned a tuple"),
    ],
)
def test_other_values_of_a_loss_are_refused(value, sentence):
    with pytest.raises(errors.ConfigError, match=sentence):
        loss_of(value, 1, 0)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_loss_with_a_wrong_reduction_is_refused_before_the_first_step(
    reduction,
):
    sentence = f'reduction="{reduction}"'
    with pytest.raises(errors.ConfigError, match=sentence):
        check_loss_function(nn.CrossEntropyLoss(reduction=reduction))
    with pytest.raises(errors.ConfigError, match=sentence):
        check_loss_function(
            functools.partial(nn.functional.mse_loss, reduction=reduction)
        )
    check_loss_function(nn.CrossEntropyLoss())
    with pytest.raises(errors.ConfigError, match="loss_fn is a NoneType"):
        check_loss_function(None)


def test_a_loss_must_give_a_count_always_or_never():
    calls = []

    def changing(outputs, targets):
        calls.extend([1] * torch.is_grad_enabled())
        loss = (outputs - targets).square().mean()
        return (loss, 1) if len(calls) > 3 else loss

    schedule = pipeline.schedule("gpipe", stages=2, micro_batches=4)
    x = torch.randn(1, WIDTH, dtype=torch.float64)
    with pytest.raises(
        errors.ConfigError,
        match=r"returned a count for micro-batch 3, and before none",
    ):
        trained(schedule, [(x, x, 1.0)] * 4, changing)
