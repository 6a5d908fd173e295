# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import linecache
import sysconfig
import warnings

import pytest

from aikido_torch.errors import RanksDifferError, RanksMayDifferWarning
from aikido_torch.recovery._report import report, user_line


def called_from(name, filename, function):
    """Calls `function` from a module of that name in that file."""
    code = compile("def call(f):\n    return f()\n", filename, "exec")
    module = {"__name__": name}
    exec(code, module)
    return module["call"](function)


@pytest.mark.parametrize("action", ["ignore", "once", "default"])
@pytest.mark.parametrize("category", [Warning, RanksMayDifferWarning])
def test_it_is_shown_whatever_is_filtered(action, category):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action, category)
        for _ in range(2):
            report("ranks may differ", "warn")
        filters = list(warnings.filters)
    assert [str(w.message) for w in caught] == ["ranks may differ"] * 2
    assert {w.filename for w in caught} == {__file__}
    assert filters[0][:3:2] == (action, category)  # the filters are as before


def test_a_filter_may_make_an_error_of_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RanksMayDifferWarning):
            report("ranks may differ", "warn")


def test_it_is_an_error_or_nothing_if_that_was_chosen():
    with pytest.raises(RanksDifferError, match="ranks may differ"):
        report("ranks may differ", "error")
    with warnings.catch_warnings(record=True) as caught:
        report("ranks may differ", "off")
    assert caught == []


@pytest.mark.parametrize("name", ["torch.optim.lr_scheduler", "aikido_torch.ddp._x"])
def test_frames_of_torch_and_of_this_package_are_skipped(name):
    filename, line = called_from(name, "/anywhere/file.py", user_line)
    assert filename == __file__
    assert "called_from(" in linecache.getline(filename, line) or line > 0


def test_frames_of_an_installed_framework_are_skipped_before_the_users():
    installed = sysconfig.get_path("purelib") + "/accelerate/optimizer.py"
    assert called_from("accelerate.optimizer", installed, user_line)[0] == __file__
    assert (
        called_from("mine", "/anywhere/train.py", user_line)[0] == "/anywhere/train.py"
    )
