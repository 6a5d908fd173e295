# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import importlib
import inspect
import re

import pytest
import torch
from torch import nn

import aikido_torch
from aikido_torch._C import Layer, Op, OpGraph, Profile
from aikido_torch._repr import show_attributes
from aikido_torch.ordering import LinkCost
from aikido_torch.straggler import Carry, SkipStraggler

PARTS = ("", ".ddp", ".ordering", ".pipeline", ".straggler", ".trace", ".errors")
# Classes of results, which the packages do not export.
RESULTS = {
    "_C": (
        *("BatchPlan", "Bounds", "LinkCost", "LinkFit", "Op", "OpGraph", "OpSpan"),
        *("Timeline", "TransferBatch", "TransferWindow", "Instruction", "Layer"),
        *("Plan", "Profile", "RankMemory", "Simulation", "Span", "Stage", "Validation"),
    ),
    "options": ("Setting",),
    "ordering._capture": ("Captured", "CapturedLayer"),
    "ordering._orders": ("Order",),
    "ordering._plan": ("IterationPlan",),
    "ordering._report": ("Report",),
    "pipeline.plan._schedule": ("Schedule",),
    "pipeline.runtime._adapt": ("Change",),
    "pipeline.runtime._observe": ("LiveTimes",),
    "pipeline.runtime._replan": ("Replan",),
    "profile._profiler": ("Measurement",),
    "straggler._progress": ("Progress",),
    "straggler._share_watch": ("ShareWatch",),
    "straggler._steps": ("StepCounters", "Steps"),
    "straggler._waiting": ("Waiting",),
    "trace.analyze._advise": ("Following",),
    "trace.analyze._pauses": ("Pause",),
    "trace.analyze._stages": ("PipelineSummary", "StageSummary"),
    "trace.analyze._step_facts": ("LinkStep", "RankStep", "StepFacts"),
    "trace.analyze._summary": ("RankSummary", "Summary"),
    "trace.analyze._verdict": ("Culprit", "Verdict"),
    "trace.export._metrics": ("Metrics",),
    "trace.record._dump": ("Clock", "Dump"),
    "trace.record._log": ("EventLog",),
    "trace.record._watch": ("Watch",),
}


def public_classes():
    for part, names in RESULTS.items():
        module = importlib.import_module(f"aikido_torch.{part}")
        for name in names:
            yield pytest.param(getattr(module, name), id=f"{part} {name}")
    for part in PARTS:
        module = importlib.import_module(f"aikido_torch{part}")
        for name in module.__all__:
            if inspect.isclass(kind := getattr(module, name)):
                yield pytest.param(kind, id=f"{part[1:]} {name}")


@pytest.mark.parametrize("kind", list(public_classes()))
def test_every_public_class_shows_more_than_its_address(kind):
    is_abstract = inspect.isabstract(kind) or kind is aikido_torch.straggler.Policy
    is_table = issubclass(kind, dict)
    assert kind.__repr__ is not object.__repr__ or is_abstract or is_table


def test_native_objects_show_their_properties():
    assert repr(LinkCost(alpha_s=5e-5, beta_s=8e-9)) == (
        "LinkCost(alpha_s=5e-05, beta_s=8e-09)"
    )
    graph = OpGraph([Op.compute(str(i), time_s=0.5) for i in range(9)], [])
    assert re.match(r"OpGraph\(.*Op\(.*, \.\.\.\]", repr(graph)), repr(graph)
    layer = Layer(
        "conv1",
        forward_ms=1.0,
        backward_ms=2.0,
        activation_bytes=3.0,
        parameter_bytes=4.0,
    )
    assert "conv1" in repr(layer)
    assert "forward_ms=1," in repr(layer)
    assert repr(Profile([layer], [])).startswith("Profile(")


def test_long_values_are_shortened():
    class Long:
        def __init__(self):
            self.many, self.share = list(range(100)), 1 / 3

    show_attributes(Long, "many", "share", "none")
    assert repr(Long()) == "Long(many=[0, 1, 2, 3, ...], share=0.333333)"
    assert repr(object.__new__(Long)) == "Long()"


def test_a_work_shows_its_progress(group_of_one):
    tensor = torch.ones(2)
    work = aikido_torch.all_reduce(tensor, policy=SkipStraggler(min_contributors=1))
    assert repr(work).startswith("AikidoWork(outcome=Outcome(kind='complete'")


def test_the_handle_and_the_wrapper_show_their_step(group_of_one):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model = nn.parallel.DistributedDataParallel(net)
    handle = aikido_torch.ddp.register(
        model, optimizer=optimizer, policy=SkipStraggler(min_contributors=1)
    )
    assert repr(handle).startswith("Handle(steps=0, replayed_steps=0, ")
    assert repr(Carry()).startswith("Carry(")
