# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""`aikido_torch/_C.pyi` has exactly the types that the native module has."""

import ast
import re

import pytest

from rules import stub

RAW = '''"""
Docstring of the module.
"""
from __future__ import annotations
import torch
import torch._C._distributed_c10d
import torch.distributed.distributed_c10d
import typing
import typing_extensions
__all__: list[str] = ['A', 'f']
class A(torch.distributed.distributed_c10d.Work):
    """
    A class.
    """
    __hash__: typing.ClassVar[None] = None
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def __init__(self, x: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __reduce_ex__(self, arg0: typing.SupportsInt) -> typing.Any:
        ...
    def y(self, x: typing.SupportsFloat) -> torch.Tensor:
        """
        A method.
        """
def f() -> str:
    ...
'''
ADAPTED = '''\
import torch
import torch._C._distributed_c10d
import typing
__all__: list[str] = ['A', 'f']
class A(torch._C._distributed_c10d.Work):
    """
    A class.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def __init__(self, x: int) -> None:
        ...
    def y(self, x: float) -> torch.Tensor:
        """
        A method.
        """
def f() -> str:
    ...
'''


def unnamed_arguments(text: str) -> list[str]:
    """Functions with arguments that the binding gives no name."""
    return [
        item.name
        for item in ast.walk(ast.parse(text))
        if isinstance(item, ast.FunctionDef)
        and any(re.fullmatch(r"arg\d+", argument.arg) for argument in item.args.args)
    ]


def test_the_stub_has_the_types_of_the_native_module():
    text = stub.generate()
    assert stub.PATH.read_text() == text, "run `make stubs`"
    assert unnamed_arguments(text) == []


def test_number_types_imports_and_inherited_methods_are_adapted():
    assert stub.adapt(RAW).removeprefix(stub.HEAD) == ADAPTED


def test_an_argument_without_a_name_is_found():
    assert unnamed_arguments("def f(a: int, arg1: str) -> None: ...") == ["f"]


def test_a_type_that_python_does_not_know_is_an_error(monkeypatch):
    class Sample:
        def f(self):
            """f(self: Sample, value: aikido::Status) -> None"""

    monkeypatch.setattr("aikido_torch._C.Sample", Sample, raising=False)
    with pytest.raises(SystemExit):
        stub.generate()
