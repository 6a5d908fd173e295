# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The check of commit messages that pre-commit runs."""

import pytest

from rules.commit_message import complaints


@pytest.mark.parametrize(
    "message",
    [
        "transport: bound the bytes in the kernel queue",
        "bind, c10d: give names of a unit that differ from each other\n\nWhy.\n",
        "ddp: pass a process group",
        "Merge branch 'docs'",
    ],
)
def test_a_message_in_the_style_of_the_project_passes(message):
    assert complaints(message) == []


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ("ddp: " + "show " * 20, "the subject has 105 characters"),
        ("Fix things", "write 'part: imperative subject'"),
        ("ddp: who leaves is not missed", "begins with 'who'"),
        ("ddp: fixes the loop", "begins with 'fixes'"),
        ("ddp: fixed the loop", "begins with 'fixed'"),
        ("ddp: Fix the loop", "begins with 'Fix'"),
        ("ddp: fix the loop\nWhy.", "the second line has text"),
        ("", "write 'part: imperative subject'"),
    ],
)
def test_a_message_in_another_style_is_refused(message, complaint):
    assert any(complaint in found for found in complaints(message))
