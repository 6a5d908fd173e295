# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Each program in examples/ runs and prints the output in its docstring."""

import ast
import contextlib
import doctest
import importlib.util
import io
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from aikido_torch.testing import run_ranks
from aikido_torch.testing._ranks import _free_port

FOLDER = Path(__file__).parents[3] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
MOST_LINES = 80
MATCHES = doctest.OutputChecker().check_output


def expected_output(text):
    """The indented block after "Expected output"."""
    block = text.split("Expected output", 1)[1].split(":\n", 1)[1]
    return textwrap.dedent(block).strip() + "\n"


def num_ranks_of(text):
    """Number of ranks in its command; None if the program starts its ranks itself."""
    found = re.search(r"torchrun --nproc-per-node (\d+)", text)
    return int(found[1]) if found else None


def run_main(rank, size, path):
    """Output of `main()` of an example on this rank."""
    spec = importlib.util.spec_from_file_location("example", path)
    module = importlib.util.module_from_spec(spec)
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        spec.loader.exec_module(module)
        module.main()
    return told.getvalue()


def output_of(path, size):
    if size is None:
        return subprocess.run(
            [sys.executable, str(path)],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        ).stdout
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    env["WORLD_SIZE"] = str(size)
    return "".join(run_ranks(size, run_main, str(path), backend=None, env=env))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_the_output_in_its_docstring(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    wanted = expected_output(text)
    found = output_of(path, num_ranks_of(text))
    assert MATCHES(wanted, found, doctest.ELLIPSIS), f"{wanted}\n---- found\n{found}"


def test_different_output_is_noticed():
    wanted = expected_output("A.\n\nExpected output:\n\n    ...\n    equal: True\n")
    assert MATCHES(wanted, "1\n2\nequal: True\n", doctest.ELLIPSIS)
    assert not MATCHES(wanted, "1\n2\nequal: False\n", doctest.ELLIPSIS)


def test_an_example_is_short():
    lines = {path.name: path.read_text().count("\n") for path in EXAMPLES}
    assert len(lines) >= 6
    assert {name for name, count in lines.items() if count > MOST_LINES} == set()
