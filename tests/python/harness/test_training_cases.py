# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The random trainings and their checks, without processes."""

import pickle

import pytest
import torch

from harness import training_cases
from harness.trained_models import MODELS, OPTIMIZERS, batch_for, make_model
from harness.training_cases import Report, Verdict, case

CASES = [case(number) for number in range(300)]


def test_a_number_always_gives_the_same_case():
    for number, what in enumerate(CASES[:40]):
        assert case(number) == what
        assert pickle.loads(pickle.dumps(what)) == what


def test_every_kind_of_case_occurs():
    assert {what.model for what in CASES} == set(MODELS)
    assert {what.optimizer for what in CASES} == set(OPTIMIZERS)
    kinds = {fault.kind for what in CASES for fault in what.faults}
    assert kinds == {"late", "lock", "stop", "kill"}
    assert {what.size for what in CASES} == {2, 3, 4}
    for name in ("unregistered", "scaler", "clip", "scheduler", "batches", "save_at"):
        assert len({getattr(what, name) for what in CASES}) > 2


@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_has_the_same_gradients_for_the_same_seed(name):
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        net = make_model(name)
        net(*batch_for(name, 7)).float().square().mean().backward()
        found.append([p.grad for p in net.parameters() if p.grad is not None])
    assert found[0]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def number_of(*, told, is_killed):
    for number, what in enumerate(CASES):
        if what.told == told and bool(what.victims) == is_killed and what.size == 3:
            return number
    raise AssertionError


def judged(reports, *, told=True, is_killed=False):
    what = case(number_of(told=told, is_killed=is_killed))
    if is_killed:
        reports[what.victims[0]] = None
    verdict = Verdict(what)
    training_cases._judge(what, reports, verdict)
    return verdict.wrong


def equal(**fields):
    return [Report(steps=20, bits="a", **fields) for _ in range(3)]


def test_equal_ranks_are_right():
    assert judged(equal()) == []
    assert judged(equal(repairs=1, said=["repaired"]), told=False) == []
    assert judged(equal(), is_killed=True) == []


def test_every_kind_of_breach_is_named():
    reports = equal()
    reports[1].bits = "b"
    assert judged(reports)[0].startswith("ranks differ without a word")
    reports[1].said = ["rank 1 had another state"]
    assert judged(reports)[0].startswith("ranks differ though all was told")
    assert judged(reports, told=False)[0].startswith("ranks differ and were not")
    reports = equal()
    reports[2].steps = 19
    assert judged(reports)[0].startswith("ranks end after different steps")
    assert judged(equal(repairs=1))[0].startswith("rank 0 needed repair")
    said = equal(said=["aikido_torch.ddp.register was not told."])
    assert judged(said)[0].startswith("rank 0 was warned of nothing")


def test_an_error_is_right_only_if_it_names_a_rank_that_was_killed():
    assert judged(equal(error="PeerLostError: rank 1"))
    victim = CASES[number_of(told=True, is_killed=True)].victims[0]
    named = equal(error=f"PeerLostError: rank {victim} is lost")
    assert judged(named, is_killed=True) == []
    assert judged(equal(error="ValueError: no"), is_killed=True)


def test_a_verdict_tells_how_to_repeat_it():
    text = str(Verdict(CASES[5], ["it hangs"]))
    assert text.startswith("case 5: Case(number=5, ")
    assert text.endswith("Again: cd tests/python; python -m harness.training_cases 5")
