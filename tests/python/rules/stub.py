# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Writer of `aikido_torch/_C.pyi`, the types of the native module (`make stubs`).

pybind11-stubgen reads the signatures and docstrings of the built module. Some of its
lines are changed here, so that the file is the same with each version of pybind11 and
torch, and is exact enough for mypy.
"""

import ast
import re
import tempfile
from pathlib import Path

import pybind11_stubgen

from rules import tree

PATH = tree.REPOSITORY / "aikido_torch/_C.pyi"
_MODULE = "aikido_torch._C"
HEAD = '''\
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Types of the native module, written by `make stubs` from csrc/bind. Do not edit."""
'''
_REPLACED = {
    # The name of this type depends on the version of pybind11. Callers pass numbers.
    r"typing\.SupportsInt( \| typing\.SupportsIndex)?": "int",
    r"typing\.SupportsFloat( \| typing\.SupportsIndex)?": "float",
    # torch exports these classes to type checkers only from there.
    r"torch\.distributed\.distributed_c10d\.": "torch._C._distributed_c10d.",
}
_KEPT = ("__init__", "__eq__")


def generate() -> str:
    """The text of the stub for the native module that is built here.

    Raises:
        SystemExit: a signature has a type that Python does not know.
    """
    with tempfile.TemporaryDirectory() as folder:
        pybind11_stubgen.main([_MODULE, "--output-dir", folder, "--exit-code"])
        text = Path(folder, *_MODULE.split(".")).with_suffix(".pyi").read_text()
    return adapt(text)


def adapt(text: str) -> str:
    """The output of pybind11-stubgen, with the changes of this module."""
    for pattern, replacement in _REPLACED.items():
        text = re.sub(pattern, replacement, text)
    lines = text.splitlines()
    body = ast.parse(text).body
    for item in _unwanted(body):
        for number in range(item.lineno - 1, item.end_lineno or item.lineno):
            lines[number] = None
    return HEAD + "\n".join(line for line in lines if line is not None) + "\n"


def _unwanted(body: list[ast.stmt]) -> list[ast.stmt]:
    """Imports without a user, the docstring, and methods that each object has."""
    names = {ast.unparse(n) for n in ast.walk(ast.Module(body, [])) if _is_name(n)}
    found = [body[0]] if isinstance(body[0], ast.Expr) else []
    for item in body:
        if isinstance(item, ast.ImportFrom):
            found.append(item)  # of __future__
        elif isinstance(item, ast.Import):
            if not any(name.startswith(item.names[0].name + ".") for name in names):
                found.append(item)
        elif isinstance(item, ast.ClassDef):
            found += [member for member in item.body if _is_of_each_object(member)]
    return found


def _is_name(item: ast.AST) -> bool:
    return isinstance(item, ast.Attribute)


def _is_of_each_object(member: ast.stmt) -> bool:
    if isinstance(member, ast.AnnAssign):
        name = ast.unparse(member.target)
    elif isinstance(member, ast.FunctionDef):
        name = member.name
    else:
        return False
    return name.startswith("__") and name not in _KEPT


if __name__ == "__main__":
    PATH.write_text(generate())
