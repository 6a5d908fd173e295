# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import importlib
import sys

import pytest
import torch

import aikido_torch


def test_the_module_knows_what_it_was_built_for():
    info = aikido_torch.build_info()
    assert torch.__version__.startswith(info["torch"] + ".")
    assert info["version"] == aikido_torch.__version__
    assert info["cxx11_abi"] == torch._C._GLIBCXX_USE_CXX11_ABI
    assert info["compiler"].split()[0] in ("GNU", "Clang")


def test_another_torch_than_the_built_one_says_what_to_install(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.3.1+cpu")
    built_for = aikido_torch.build_info()["torch"]
    with pytest.raises(ImportError) as caught:
        importlib.reload(aikido_torch)
    text = str(caught.value)
    assert f"built for torch {built_for} but torch 2.3.1+cpu is installed" in text
    assert f"Install torch=={built_for}.*" in text


def test_a_module_that_does_not_load_says_how_to_build_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "aikido_torch._C", None)
    with pytest.raises(ImportError, match="Build it in this environment: pip install"):
        importlib.reload(aikido_torch)
