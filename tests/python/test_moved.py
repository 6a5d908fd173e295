# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import importlib

import pytest

import aikido_torch.ddp
from aikido_torch._moved import moved_names

MOVED = [
    ("ddp.OverlappedDataParallel", "overlap.OverlappedDataParallel"),
    ("straggler.BackupSampler", "data.BackupSampler"),
    ("straggler.SeededDataset", "data.SeededDataset"),
    ("straggler.seed_of", "data.seed_of"),
    ("trace.advise", "trace.apply_advice"),
    ("trace.arm", "trace.capture_steps"),
    ("trace.follow", "trace.auto_advise"),
]


@pytest.mark.parametrize(("old", "new"), MOVED)
def test_an_old_name_goes_on_and_the_warning_has_the_new_name(old, new):
    package, name = old.split(".")
    where, new_name = new.split(".")
    text = f"aikido_torch.{old} is aikido_torch.{new} now; the old name will be removed"
    with pytest.warns(DeprecationWarning, match=text):
        found = getattr(importlib.import_module(f"aikido_torch.{package}"), name)
    there = importlib.import_module(f"aikido_torch.{where}")
    assert found is getattr(there, new_name)
    assert new_name in there.__all__
    assert name not in importlib.import_module(f"aikido_torch.{package}").__all__


def test_a_name_that_never_was_is_an_attribute_error():
    find = moved_names("a.package", {"old": "a.package.new"})
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        find("other")
    assert not hasattr(aikido_torch.ddp, "steps")
