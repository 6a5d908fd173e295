# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from itertools import chain

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset

from aikido_torch import ddp
from aikido_torch.errors import ConfigError, InternalError
from aikido_torch.reassign import StepLoader
from aikido_torch.straggler import WaitAll

SAMPLES = torch.arange(48.0).reshape(24, 2) / 48


def loader_of(dataset=SAMPLES, **options):
    return StepLoader(dataset, **{"batch_size": 6, "micro_batch_size": 2} | options)


class Training:
    """Registered model of one rank, with its loop."""

    def __init__(self, steps, **options):
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps = steps
        self.handle = ddp.register(
            self.model,
            optimizer=self.optimizer,
            steps=steps,
            **{"policy": WaitAll()} | options,
        )

    def backward(self, micro_batch):
        loss = self.model(micro_batch.data).square().mean()
        (loss * micro_batch.weight).backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def epoch(self):
        """Indices of the samples of each step."""
        found = []
        for step in self.steps:
            found.append([])
            for micro_batch in step:
                found[-1] += micro_batch.indices
                self.backward(micro_batch)
            self.update()
        return found


# ---- bad arguments ----


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(10))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"dataset": Endless()}, "has no length, so a rank cannot read the samples of"),
        ({"dataset": []}, "is empty"),
        (
            {"batch_size": 7},
            "batch_size is 7, which micro_batch_size 2 does not divide",
        ),
        (
            {"batch_size": 1},
            "batch_size is 1, which micro_batch_size 2 does not divide",
        ),
        ({"batch_size": 0}, "batch_size is 0; it takes a whole number, at least 1"),
        ({"micro_batch_size": 2.0}, "micro_batch_size is 2.0; it takes a whole number"),
        ({"helpers": -1}, "helpers is -1"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"shuffle": 1}, "shuffle is 1; it takes True or False"),
        ({"num_workers": -1}, "num_workers is -1"),
        ({"debug": None}, "debug is None; it takes True or False"),
        ({"lost": "keep"}, "lost is 'keep'; it takes reissue or drop"),
        ({"batch_size": 50}, "has 24 samples, and one step takes 50"),
        ({"cost": [1.0]}, "cost has the shape [1], but the dataset has 24 samples"),
    ],
)
def test_a_wrong_argument_is_refused(options, part):
    with pytest.raises(ConfigError) as error:
        loader_of(**options)
    assert part in str(error.value)


def test_an_epoch_is_a_whole_number():
    with pytest.raises(ConfigError, match="epoch is -1"):
        loader_of().set_epoch(-1)


# ---- the loop ----


def test_a_loop_without_register_is_refused():
    with pytest.raises(ConfigError, match="give it to register before the loop"):
        iter(loader_of())


def test_epochs_end_and_differ(group_of_one):
    training = Training(loader_of())
    assert len(training.steps) == 4
    epochs = [training.epoch() for _ in range(3)]
    for steps in epochs:
        assert [len(step) for step in steps] == [6] * 4
        assert sorted(chain(*steps)) == list(range(24))
    assert epochs[0] != epochs[1] != epochs[2]
    assert training.steps.epoch == 2
    assert training.handle.steps == 12
    training.steps.set_epoch(1)
    assert training.epoch() == epochs[1]
    assert training.handle.steps == 16


def test_an_epoch_can_be_left_early(group_of_one):
    training = Training(loader_of())
    for step in training.steps:
        for micro_batch in step:
            training.backward(micro_batch)
        training.update()
        break
    assert len(training.epoch()) == 4
    assert training.steps.epoch == 1


def test_a_step_that_is_left_early_is_completed_and_its_rest_comes_later(group_of_one):
    training = Training(loader_of(shuffle=False))
    found = []
    for step in training.steps:
        for micro_batch in step:
            training.backward(micro_batch)
            found.append(micro_batch.label)
            if micro_batch.label == 0:
                break
        training.update()
    assert found == [0, 1, 2, 3, 4, 5, *range(6, 12)]
    assert training.handle.steps == 4


def test_an_update_before_the_end_of_a_step_is_refused(group_of_one):
    training = Training(loader_of())
    for step in training.steps:
        with pytest.raises(ConfigError, match="not taken all micro-batches of step 0"):
            training.optimizer.step()
        for micro_batch in step:
            training.backward(micro_batch)
            if micro_batch.label != 2:
                with pytest.raises(ConfigError, match="of step 0"):
                    training.optimizer.step()
        training.optimizer.step()
        break


def test_a_step_that_is_not_iterated_is_refused(group_of_one):
    training = Training(loader_of())
    with pytest.raises(ConfigError, match="not taken all micro-batches of step 0"):
        list(training.steps)


def test_a_step_without_a_backward_is_refused(group_of_one):
    training = Training(loader_of())
    training.backward = lambda micro_batch: None
    with pytest.raises(ConfigError, match="no backward of the last micro-batch"):
        training.epoch()


def test_a_step_with_a_broken_backward_is_told(group_of_one):
    def fail(_):
        raise ArithmeticError

    training = Training(loader_of())
    weight, _ = training.model.parameters()
    hook = weight.register_hook(fail)
    with pytest.raises(ArithmeticError):
        training.epoch()
    hook.remove()
    with pytest.raises(
        ConfigError, match="step 0 ended with an error within a backward"
    ):
        training.epoch()


def test_a_last_step_that_is_not_whole(group_of_one):
    training = Training(loader_of(SAMPLES[:21], drop_last=False))
    found = training.epoch()
    assert [len(step) for step in found] == [6, 6, 6, 3]
    assert sorted(chain(*found)) == list(range(21))


def test_processes_give_the_same_steps(group_of_one):
    expected = Training(loader_of()).epoch()
    assert Training(loader_of(num_workers=2)).epoch() == expected


def test_owners_of_taken_items_are_the_likely_ones_of_the_next_step(
    group_of_one, monkeypatch
):
    owners_of_steps = []

    def likely_taken(lists, owners):
        owners_of_steps.append([*owners])
        return [7]

    monkeypatch.setattr("aikido_torch.reassign._loader.likely_taken", likely_taken)
    training = Training(loader_of(num_workers=1))
    for step in training.steps:
        assert (7 in training.steps._reader._seeds) == (step.number > 0)
        for micro_batch in step:
            training.backward(micro_batch)
        training.update()
        step.computed.append((1, 99))
    assert owners_of_steps == [[1], [1], [1]]


def test_costs_of_a_function_give_the_order(group_of_one):
    training = Training(
        loader_of(shuffle=False, cost=lambda sample: 1 + float(sample.sum()))
    )
    assert training.epoch()[0] == [4, 5, 2, 3, 0, 1]


def test_a_grad_scaler_and_clipping_see_the_mean_over_all_items(group_of_one):
    """One step is left early, so its gradients are scaled before their sum."""

    def train(scaler):
        training = Training(loader_of(shuffle=False))
        norms = []
        for step in training.steps:
            for micro_batch in step:
                loss = training.model(micro_batch.data).square().mean()
                scaler.scale(loss * micro_batch.weight).backward()
                if micro_batch.label == 1:
                    break
            scaler.unscale_(training.optimizer)
            norm = nn.utils.clip_grad_norm_(training.model.parameters(), 0.1)
            norms.append(float(norm))
            scaler.step(training.optimizer)
            scaler.update()
            training.optimizer.zero_grad()
        return norms, [p.detach() for p in training.model.parameters()]

    norms, parameters = train(torch.amp.GradScaler("cpu", init_scale=256.0))
    expected, others = train(torch.amp.GradScaler("cpu", enabled=False))
    assert norms == pytest.approx(expected, rel=1e-5)
    for own, other in zip(parameters, others, strict=True):
        torch.testing.assert_close(own, other)


# ---- register ----


def test_a_wrong_cost_is_told_by_register(group_of_one):
    with pytest.raises(ConfigError, match=r"cost of sample 0 is -1\.0"):
        Training(loader_of(cost=lambda sample: -1))


def test_a_loader_has_one_model(group_of_one):
    training = Training(loader_of())
    with pytest.raises(ConfigError, match="this StepLoader has a model already"):
        Training(training.steps)


def test_facts_name_each_value():
    facts = loader_of(cost=[1.0] * 24).facts()
    assert facts["steps.batch_size"] == "6"
    assert facts["steps.cost"] != loader_of(cost=[2.0] * 24).facts()["steps.cost"]
    assert loader_of(cost=len).facts()["steps.cost"] == "a function"


def test_repr_names_the_place():
    assert repr(loader_of()) == "StepLoader(epoch=0, helpers=4, lost='reissue')"


# ---- state ----


def test_a_training_goes_on_in_the_middle_of_an_epoch(group_of_one):
    whole = Training(loader_of())
    expected = whole.epoch() + whole.epoch()
    first = Training(loader_of())
    found = []
    for step in first.steps:
        found.append([])
        for micro_batch in step:
            found[-1] += micro_batch.indices
            first.backward(micro_batch)
        first.update()
        if step.number == 1:
            state = first.steps.state_dict()
            break
    steps = loader_of()
    steps.load_state_dict(state)
    second = Training(steps)
    assert steps.state_dict() == state
    steps.set_epoch(steps.epoch)
    assert found + second.epoch() + second.epoch() == expected


def test_lost_items_are_in_the_state(group_of_one):
    first = Training(loader_of(shuffle=False))
    for step in first.steps:
        for micro_batch in step:
            first.backward(micro_batch)
            break
        first.update()
        break
    state = first.steps.state_dict()
    assert (state["epoch"], state["step"], state["pending"]) == (0, 1, [1, 2])
    steps = loader_of(shuffle=False)
    steps.load_state_dict(state)
    second = Training(steps)
    assert second.epoch()[0] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_a_state_is_loaded_before_register(group_of_one):
    training = Training(loader_of())
    with pytest.raises(ConfigError, match="load the state before register"):
        training.steps.load_state_dict(training.steps.state_dict())
    with pytest.raises(ConfigError, match="micro_batch_size=2, but here it is 3"):
        loader_of(micro_batch_size=3).load_state_dict(training.steps.state_dict())


def test_a_report_of_one_rank(group_of_one, capsys):
    with pytest.raises(ConfigError, match="it has no model"):
        loader_of().report()
    training = Training(loader_of())
    training.epoch()
    assert training.steps.report() == {}
    assert "No micro-batch moved in 4 steps." in capsys.readouterr().out


# ---- debug ----


def test_debug_finds_an_item_that_counts_twice(group_of_one):
    training = Training(loader_of(debug=True))
    training.epoch()
    assert training.steps._proof.num_counted == 9  # the last step is not proved yet
    training.steps._pending.lose([4])
    with pytest.raises(InternalError, match="Micro-batch 4 of epoch 0 counts twice"):
        training.epoch()


# ---- stage="send" ----


class Saved(IterableDataset):
    """Samples in their order; its state is the place of the next one."""

    def __init__(self):
        self._place = 0

    def __iter__(self):
        while self._place < len(SAMPLES):
            self._place += 1
            yield SAMPLES[self._place - 1]
        self._place = 0

    def state_dict(self):
        return {"place": self._place}

    def load_state_dict(self, state):
        self._place = state["place"]


def test_staged_samples_are_those_of_the_dataset(group_of_one):
    expected = Training(loader_of()).epoch()
    assert Training(loader_of(stage="send")).epoch() == expected


def test_an_iterable_dataset_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match='With stage="send" the owners of samples'):
        loader_of(Saved())
    with pytest.raises(ConfigError, match="stage is 'read'; it takes \"send\" or None"):
        loader_of(stage="read")


def test_epochs_of_a_stream_end_with_it(group_of_one):
    training = Training(loader_of(Saved(), stage="send", debug=True))
    with pytest.raises(TypeError, match="the number of steps is not known"):
        len(training.steps)
    for _ in range(2):
        assert training.epoch() == [[*range(i, i + 6)] for i in range(0, 24, 6)]
    assert training.handle.steps == 8
    assert training.steps._staged.of(range(12)) == {}


def test_a_stream_and_its_lost_items_go_on_after_a_state(group_of_one):
    first = Training(loader_of(Saved(), stage="send"))
    for step in first.steps:
        for micro_batch in step:
            first.backward(micro_batch)
            break
        first.update()
        break
    state = first.steps.state_dict()
    steps = loader_of(Saved(), stage="send")
    steps.load_state_dict(state)
    found = Training(steps).epoch()
    assert found[0] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert sorted(chain(*found)) == list(range(2, 24))


def test_a_stream_without_a_state_is_not_saved(group_of_one):
    training = Training(loader_of(Endless(), stage="send"))
    with pytest.raises(ConfigError, match="has no state_dict, so its place in the"):
        training.steps.state_dict()
