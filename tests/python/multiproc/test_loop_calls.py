# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Training loops with more calls on the model's group, and with a late rank."""

import contextlib
import gc
import time
import warnings
from unittest import mock

import pytest
import torch
import torch._dynamo  # imported before the fork; some optimizers need it
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.ddp import _handle, _loop_calls
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks
from aikido_torch.testing._ranks import RanksFailedError

POLICY = SkipStraggler(floor_ms=20, ceiling_ms=20)
LATE = 2
STEPS = 60
SHARED_STEPS = 30
REAL_BARRIER = dist.barrier


class Training:
    """Training steps of a small model on a rank that is late in some of them."""

    def __init__(self, rank, group=None, late_in=(8, 31), late_s=0.4, **told):
        torch.manual_seed(0)
        self.rank, self.late_in, self.late_s = rank, late_in, late_s
        self.net = nn.Linear(8, 8)
        model = DistributedDataParallel(self.net, process_group=group)
        self.model = model
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)
        self.handle = ddp.register(
            model, optimizer=self.optimizer, policy=POLICY, **told
        )

    def step(self, step):
        self.optimizer.zero_grad()
        if self.rank == LATE and step in self.late_in:
            late(self.late_s)
        x = torch.randn(
            4, 8, generator=torch.Generator().manual_seed(100 * step + self.rank)
        )
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        late(0.01)
        return loss.detach()

    def result(self, *values):
        handle = self.handle
        weights = self.net.weight.detach().clone()
        return weights, handle.skipped_steps, handle.replayed_steps, *values


def equal_weights(found):
    return all(torch.equal(each[0], found[0][0]) for each in found)


def broadcast_in_each_step(rank, size, is_behind, ends_with_barrier):
    training = Training(rank)
    wrong, step = 0, 0

    def tell(step):
        nonlocal wrong
        flag = torch.tensor([step if rank == 0 else -1])
        dist.broadcast(flag, 0)
        wrong += int(flag) != step

    while (step := step + training.handle.catch_up()) < STEPS:
        if not is_behind:
            tell(step)
        training.step(step)
        if is_behind:
            tell(step)
        step += 1
    if ends_with_barrier:
        dist.barrier()
    return training.result(wrong)


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_broadcast_in_each_step_lets_a_late_rank_catch_up(is_behind):
    found = run_ranks(3, broadcast_in_each_step, is_behind, is_behind)
    assert equal_weights(found)
    _, skipped, replayed, _ = found[LATE]
    assert replayed > 10
    assert skipped - replayed < 12  # it is soon in time again
    assert [each[3] for each in found] == [0, 0, 0]  # no flag of another step


def mean_loss_in_each_step(rank, size, is_behind):
    training = Training(rank)
    step = 0
    while (step := step + training.handle.catch_up()) < STEPS:
        if not is_behind:
            dist.barrier()
        loss = training.step(step)
        if is_behind:
            dist.all_reduce(loss)
        step += 1
    dist.barrier()
    return training.result(training.handle.steps)


@pytest.mark.parametrize("is_behind", [False, True])
def test_calls_that_wait_for_all_ranks_in_each_step_end(is_behind):
    found = run_ranks(3, mean_loss_in_each_step, is_behind, deadline=50)
    assert equal_weights(found)
    assert {each[3] for each in found} == {STEPS}


def log_every_tenth_step(rank, size, place, is_naive):
    training = Training(rank, late_in=(6, 27, 38))
    handle, step, logged = training.handle, 0, []

    def log():
        steps = torch.tensor([float(handle.steps)])
        dist.all_reduce(steps)
        logged.append(float(steps))

    def is_due():
        return (
            handle.steps % 10 == 0 and handle.steps > 0
            if is_naive
            else handle.every(10)
        )

    while (step := step + handle.catch_up()) < STEPS:
        if place == "before" and is_due():
            log()
        training.step(step)
        step += 1
        if place == "behind" and is_due():
            log()
    return training.result(logged)


@pytest.mark.parametrize("place", ["before", "behind"])
def test_every_tenth_step_is_the_same_on_all_ranks(place):
    found = run_ranks(3, log_every_tenth_step, place, False, deadline=50)
    assert equal_weights(found)
    last = STEPS if place == "behind" else STEPS - 10
    for each in found:
        assert each[3] == [3.0 * step for step in range(10, last + 1, 10)]
    assert found[LATE][2] >= 2


def save_every_tenth_step(rank, size, place):
    """Broadcasts in every tenth step. The source does not wait for the late rank."""
    training = Training(rank, late_in=(6, 38))
    handle, step, saved = training.handle, 0, []

    def save():
        if handle.every(10):
            flag = torch.tensor([float(handle.steps)])
            dist.broadcast(flag, 0)
            saved.append((handle.steps, float(flag), float(training.net.weight.sum())))

    while (step := step + handle.catch_up()) < STEPS:
        if place == "before":
            save()
        training.step(step)
        step += 1
        if place == "behind":
            save()
    dist.barrier()
    return training.result(saved)


@pytest.mark.parametrize("place", ["before", "behind"])
def test_a_late_rank_skips_no_meeting_step(place):
    found = run_ranks(3, save_every_tenth_step, place, deadline=50)
    assert equal_weights(found)
    assert found[0][3] == found[1][3] == found[LATE][3]
    assert [steps for steps, _, _ in found[0][3]][:3] == [10, 20, 30]
    assert all(steps == flag for steps, flag, _ in found[0][3])
    assert found[LATE][2] > 5


def jump_over_a_call(rank, size):
    """The late rank misses a call in a step that it skips."""
    training = Training(rank, late_in=(8,), late_s=0.5)
    handle, step = training.handle, 0
    while (step := step + handle.catch_up()) < STEPS:
        if rank != LATE and step == 20:
            dist.barrier()
        training.step(step)
        step += 1
    dist.barrier()


def test_a_missed_call_is_named_within_seconds():
    begin = time.monotonic()
    with pytest.raises(RanksFailedError) as caught:
        run_ranks(3, jump_over_a_call, group_timeout=30, deadline=50)
    assert time.monotonic() - begin < 15
    assert set(caught.value.failures) == {0, 1, 2}
    for text in caught.value.failures.values():
        assert "barrier at" in text
        assert "test_loop_calls.py" in text
        assert "before the backward of step 20" in text
        assert "handle.every(n)" in text


def make_more_steps(rank, size, kind):
    training = Training(rank, late_in=())
    step, last = 0, 25 if kind == "steps" and rank == LATE else 20
    try:
        while (step := step + training.handle.catch_up()) < last:
            training.step(step)
            step += 1
            if (kind, rank, step) == ("backward", LATE, 10):
                training.model(torch.ones(4, 8)).mean().backward()
        training.handle.close()
    except ConfigError as error:
        return str(error)
    finally:
        late(2.0)  # the other ranks are still there
    return f"{step} steps"


@pytest.mark.beside
@pytest.mark.parametrize("kind", ["steps", "backward"])
@pytest.mark.filterwarnings("ignore:The loop makes 2 backwards")
def test_a_rank_with_more_steps_than_the_others_is_named_within_seconds(kind):
    begin = time.monotonic()
    *others, text = run_ranks(3, make_more_steps, kind, group_timeout=60.0)
    assert time.monotonic() - begin < 40.0
    assert others == ["20 steps"] * 2
    assert "ends its training after 20 steps, but rank 2 goes on and waits" in text


def share_the_group(rank, size, call, place, is_naive):
    """The buckets have no group of their own, as in a reconfigured group."""
    why = "the group got its members by reconfigure"
    own = why if rank == 1 else ""
    with (
        mock.patch.object(_loop_calls, "why_no_group_beside", return_value=own),
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        training = Training(rank, late_in=(3, 11))
        return train_on_the_shared_group(training, call, place, is_naive, said)


def train_on_the_shared_group(training, call, place, is_naive, said):
    rank, size = training.rank, dist.get_world_size()
    handle, step, wrong = training.handle, 0, 0
    while (step := step + handle.catch_up()) < SHARED_STEPS:
        is_due = call and (is_naive or handle.every(5))
        if place == "behind":
            training.step(step)
        if is_due:
            value = torch.tensor([1.0 if call == "all_reduce" or rank == 0 else 9.0])
            if call == "all_reduce":
                dist.all_reduce(value)
            elif call == "broadcast":
                dist.broadcast(value, 0)
            else:
                dist.barrier()
            wrong += call == "all_reduce" and float(value) != size
            wrong += call == "broadcast" and float(value) != 1.0
        if place == "before":
            training.step(step)
        step += 1
    handle.close()
    texts = [str(warning.message) for warning in said]
    return training.result(wrong, handle.steps, texts)


@pytest.mark.parametrize(
    ("call", "place", "is_naive"),
    [
        ("", "before", False),
        ("all_reduce", "before", True),
        ("all_reduce", "behind", True),
        ("broadcast", "before", True),
        ("broadcast", "behind", True),
        ("barrier", "behind", False),
        ("all_reduce", "before", False),
    ],
)
def test_buckets_on_the_group_of_the_model_are_right_with_one_warning(
    call, place, is_naive
):
    found = run_ranks(3, share_the_group, call, place, is_naive, deadline=50)
    assert equal_weights(found)
    for _, _, _, wrong, steps, texts in found:
        assert (wrong, steps) == (0, SHARED_STEPS)
        about = [text for text in texts if "stay on the model's group" in text]
        assert len(about) == 1, texts
        assert "got its members by reconfigure" in about[0]
    # If no call waits for all ranks in each step, the late rank replays missed steps.
    if not is_naive:
        assert found[LATE][2] > 0


class SlowWork:
    """A barrier that this rank sees complete late, while the other ranks continue."""

    def __init__(self, group):
        self.work = REAL_BARRIER(group, async_op=True)
        self.due = None

    def is_completed(self):
        if self.due is None and self.work.is_completed():
            self.due = time.monotonic() + 0.3
        return self.due is not None and time.monotonic() > self.due

    def wait(self):
        return self.work.wait()


def meet_in_a_barrier(rank, size):
    training = Training(rank, late_in=())
    handle, step, has_met = training.handle, 0, False
    meeting = dist.new_group()
    steps = []
    while (step := step + handle.catch_up()) < STEPS:
        if step >= 10 and not has_met:
            has_met = True
            steps = [step, handle.steps]
            if rank == LATE:
                with mock.patch.object(
                    _handle.dist, "barrier", lambda group, **_: SlowWork(group)
                ):
                    handle.barrier(meeting)
            else:
                handle.barrier(meeting)
            steps.append(handle.steps)
        training.step(step)
        step += 1
    return training.result(steps, step, handle.steps)


def test_the_loop_counts_all_steps_that_are_replayed_during_a_barrier():
    found = run_ranks(3, meet_in_a_barrier, group_timeout=20)
    assert equal_weights(found)
    for *_, at_barrier, step, handle_steps in found:
        assert at_barrier == [10, 10, 10]
        assert (step, handle_steps) == (STEPS, STEPS)
    assert found[LATE][2] > 0  # steps missed during the barrier


def call_in_each_tenth_step(rank, size, call, place):
    """A loop that does not use `Handle.every`; returns its warnings."""
    training = Training(rank, late_in=(8, 34), late_s=0.5)
    handle, step = training.handle, 0

    def tell(step):
        if call == "broadcast":
            dist.broadcast(torch.tensor([float(step)]), 0)
        else:
            dist.barrier()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        while (step := step + handle.catch_up()) < STEPS:
            if place == "before" and step % 10 == 0:
                tell(step)
            training.step(step)
            if place == "behind" and step % 10 == 0:
                tell(step)
            step += 1
        handle.catch_up()
    return [str(w.message) for w in seen if "handle.every(n)" in str(w.message)]


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("call", ["barrier", "broadcast"])
def test_a_call_in_each_tenth_step_succeeds_or_is_named_within_seconds(call, place):
    begin = time.monotonic()
    try:
        found = run_ranks(3, call_in_each_tenth_step, call, place, group_timeout=120)
    except RanksFailedError as error:
        texts = list(error.failures.values())
        assert all("handle.every(n)" in text for text in texts), texts
    else:
        # A broadcast waits only for its source, so the late rank has missed some
        # broadcasts.
        assert call == "barrier" or any(found[LATE])
    assert time.monotonic() - begin < 60  # half of the time-out


def train_on_a_part(rank, size):
    """A later group of all ranks must have one name, on members and other ranks."""
    group = dist.new_group([0, 1, 2])
    if rank < 3:
        training = Training(rank, group)
        step = 0
        while (step := step + training.handle.catch_up()) < 30:
            training.step(step)
            step += 1
    other = dist.new_group(backend="aikido")
    total = torch.ones(1)
    dist.all_reduce(total, group=other)
    return float(total)


def test_torch_numbers_groups_equally_on_all_ranks():
    assert run_ranks(4, train_on_a_part, deadline=50) == [4.0] * 4


def many_models(rank, size):
    """Number of groups left after several models. Their groups end with the handles."""
    before = len(dist.distributed_c10d._world.pg_map)
    for _ in range(5):
        training = Training(rank)
        training.step(0)
        del training
        gc.collect()
        dist.barrier()
    end = time.monotonic() + 20
    while len(dist.distributed_c10d._world.pg_map) > before and time.monotonic() < end:
        time.sleep(0.01)
    return len(dist.distributed_c10d._world.pg_map) - before


def test_the_group_of_the_buckets_ends_with_the_handle():
    assert run_ranks(2, many_models) == [0, 0]


def losses_of(rank, size, how):
    """Begin and file of each warning, and whether the report repeats it."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.manual_seed(0)
        net = nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        if how == "sharded":
            optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=1)
        model = DistributedDataParallel(net)
        handle = ddp.register(model, optimizer=optimizer, policy=POLICY)
        for _ in range(14):
            if how != "forgotten":
                handle.catch_up()
            optimizer.zero_grad()
            loss = model(torch.ones(2, 8)).square().mean()
            loss.backward()
            optimizer.step()
            if how == "mean":
                dist.all_reduce(loss.detach())
            elif how == "broadcast":
                dist.broadcast(torch.zeros(1), 0)
    notes = handle.by_step.notes
    ours = [w for w in seen if str(w.message) in notes]
    assert len(ours) == len(notes)
    return [(str(w.message), w.filename == __file__) for w in ours]


@pytest.mark.beside
@pytest.mark.parametrize(
    ("size", "how", "text"),
    [
        (3, "plain", ""),
        (3, "broadcast", ""),
        (3, "mean", "1 calls on the model's group in each step (all_reduce)"),
        (3, "forgotten", "without handle.catch_up()"),
        (3, "sharded", "in each step of ZeroRedundancyOptimizer"),
        (2, "plain", "of two ranks none is skipped"),
    ],
)
def test_a_reason_why_skipping_cannot_pay_is_reported_once(size, how, text):
    for found in run_ranks(size, losses_of, how):
        assert len(found) == bool(text), found
        assert all(text in told and is_here for told, is_here in found)


BATCHES, PER_STEP = 10, 4  # per epoch; the last step has two


def accumulate(rank, size, told):
    """Last batch of each step that this rank did itself."""
    training = Training(rank, batches_per_step=told)
    model, optimizer = training.model, training.optimizer
    optimizer.zero_grad()
    done, to_skip, handle = {}, 0, training.handle
    for epoch in range(12):
        for batch in range(BATCHES):
            if to_skip:
                to_skip -= 1
                continue
            is_last = batch % PER_STEP == PER_STEP - 1 or batch == BATCHES - 1
            if rank == LATE and is_last and handle.steps in (7, 20):
                late(0.4)
            with contextlib.nullcontext() if is_last else model.no_sync():
                model(torch.ones(1, 8)).square().mean().backward()
            late(0.002)
            if is_last:
                done[handle.steps] = (epoch, batch)
                optimizer.step()
                optimizer.zero_grad()
                to_skip = handle.catch_up().batches_to_skip
    return training.result(done)


@pytest.mark.beside
def test_a_short_last_step_of_an_epoch_does_not_shift_the_batches_of_a_late_rank():
    found = run_ranks(3, accumulate, PER_STEP)
    assert equal_weights(found)
    (_, _, replayed, done), others = found[LATE], found[0][3]
    assert replayed > 6  # more than one epoch
    assert done.items() <= others.items()


def accumulate_unregistered(rank, size):
    with pytest.raises(RuntimeError) as caught:
        accumulate(rank, size, 1)
    return str(caught.value)


@pytest.mark.beside
def test_accumulation_unknown_to_register_is_an_error_in_the_first_step():
    for text in run_ranks(3, accumulate_unregistered):
        assert "batches_per_step is 1" in text
        assert "Give register(..., batches_per_step=4)." in text


def register_on_a_part(rank, size):
    """One rank of a subgroup registers another learning rate."""
    group = dist.new_group([1, 3])
    if rank not in (1, 3):
        return None
    net = nn.Linear(2, 2)
    model = DistributedDataParallel(net, process_group=group)
    optimizer = torch.optim.SGD(net.parameters(), lr=float(rank))
    with pytest.raises(ConfigError) as caught:
        ddp.register(model, optimizer=optimizer, policy=POLICY)
    return str(caught.value)


@pytest.mark.beside
def test_ranks_of_a_subgroup_are_named_with_their_ranks_of_the_job():
    found = run_ranks(4, register_on_a_part)
    assert found[0] is found[2] is None
    assert found[1] == found[3]
    assert "lr is 1.0 on rank 0 but 3.0 on rank 1" in found[1]
    assert "in the job rank 0 is rank 1, rank 1 is rank 3" in found[1]
