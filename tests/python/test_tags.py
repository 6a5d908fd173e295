# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The registry of message tags: ranges that do not overlap, and their owners."""

import itertools
import re

import pytest

from aikido_torch import _tags
from aikido_torch.errors import ConfigError
from rules import tree

RANGES = _tags.RANGES
HEADER = tree.REPOSITORY / "csrc/base/message_tags.h"
_CPP_RANGE = re.compile(r"TagRange k(\w+)Tags\{([^,]+), ([^}]+)\}")


def cpp_ranges(text: str) -> dict[str, tuple[int, int]]:
    """(first tag, number of tags) of each range of C++, by its name."""
    return {
        name.upper(): (eval(first), eval(size))
        for name, first, size in _CPP_RANGE.findall(text.replace("'", ""))
    }


def name_of(tags: _tags.TagRange) -> str:
    (name,) = (name for name, value in vars(_tags).items() if value is tags)
    return name


@pytest.mark.parametrize("tags", RANGES, ids=name_of)
def test_a_range_fits_into_32_bits_and_its_owner_uses_it(tags):
    assert -(2**31) <= tags.first <= tags.last < 2**31
    owner = tree.REPOSITORY / tags.owner
    name = name_of(tags)
    used = f"k{name.capitalize()}Tags" if owner.suffix == ".cpp" else f"_tags.{name}."
    assert used in owner.read_text()


def test_ranges_are_in_order_and_do_not_overlap():
    for lower, higher in itertools.pairwise(RANGES):
        assert lower.last < higher.first, (lower.name, higher.name)


def test_all_ranges_are_in_the_registry():
    found = [v for v in vars(_tags).values() if isinstance(v, _tags.TagRange)]
    assert sorted(found, key=lambda tags: tags.first) == list(RANGES)


@pytest.mark.parametrize("tag", [0, 1, 1000, 2**30 - 1])
def test_a_tag_of_a_user_is_in_no_other_range(tag):
    assert [tags for tags in RANGES if tag in tags] == [_tags.USER]


def test_the_ranges_of_cpp_are_those_of_the_registry():
    found = cpp_ranges(HEADER.read_text())
    assert found == {
        name_of(tags): (tags.first, tags.size)
        for tags in RANGES
        if tags.owner.startswith("csrc/")
    }
    assert len(found) == 3


def test_a_range_of_cpp_is_read_with_its_numbers():
    text = "inline constexpr TagRange kSampleTags{-0x7fff'ffff - 1, 1 << 3};"
    assert cpp_ranges(text) == {"SAMPLE": (-(2**31), 8)}


def test_no_other_module_names_a_tag_of_its_own():
    pattern = re.compile(r"^_?\w*TAGS?\w* = (?!_tags\.)", re.MULTILINE)
    found = {
        path.name: pattern.findall(path.read_text())
        for path in tree.files(tree.REPOSITORY, "aikido_torch", suffixes=(".py",))
    }
    assert {name for name, hits in found.items() if hits} == {"_state_transfer.py"}


def test_a_tag_by_its_index():
    tags = _tags.TagRange("a sample", "a.py", 100, 10)
    assert [tags.tag(0), tags.tag(9), tags.cyclic(10), tags.cyclic(29)] == [
        100,
        109,
        100,
        109,
    ]
    for index in (-1, 10):
        text = f"a sample: message number {index} has no tag; the numbers are from 0 to"
        with pytest.raises(ConfigError, match=text):
            tags.tag(index)
