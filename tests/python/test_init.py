# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import aikido_torch


def test_the_module_knows_the_torch_that_it_was_built_for():
    info = aikido_torch.build_info()
    assert torch.__version__.startswith(info["torch"] + ".")
    assert info["version"] == aikido_torch.__version__
    assert info["cxx11_abi"] == torch._C._GLIBCXX_USE_CXX11_ABI
    assert info["compiler"].split()[0] in ("GNU", "Clang")


def test_another_torch_than_at_build_time_says_what_to_install(monkeypatch):
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


def test_a_clone_without_the_module_says_that_it_hides_the_installed_one(tmp_path):
    package = Path(aikido_torch.__file__).parent
    shutil.copytree(
        package, tmp_path / "aikido_torch", ignore=shutil.ignore_patterns("*.so")
    )
    (tmp_path / "setup.py").touch()
    # The program removes the finder of an editable install, which would find the
    # module.
    program = (
        "import sys; from importlib import machinery as m; sys.meta_path[:] = "
        "[m.BuiltinImporter, m.FrozenImporter, m.PathFinder]; import aikido_torch"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    text = run.stderr
    assert run.returncode != 0
    assert f"{tmp_path}/aikido_torch is aikido's source folder and has no nativ" in text
    assert "Run the command in another folder, or build the module in this one" in text
    assert f"pip install --no-build-isolation -e {tmp_path}\n" in text
