# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import sys

import pytest

from aikido_torch._figures import new_figure, save_figure
from aikido_torch.errors import ConfigError, UnsupportedError


def new():
    return new_figure("trees", inches=(3, 2), instead="look outside")


@pytest.mark.parametrize(
    ("name", "begin"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
)
def test_the_suffix_selects_the_format_of_the_picture(tmp_path, name, begin):
    pytest.importorskip("matplotlib")
    save_figure(new(), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begin)


def test_an_unknown_suffix_is_named(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match=r"a\.what: .*what"):
        save_figure(new(), tmp_path / "a.what")


def test_without_matplotlib_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        UnsupportedError, match=r"pictures of trees .*install it.*or look outside"
    ):
        new()
