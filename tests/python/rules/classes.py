# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Counts the methods and fields of each class, in C++ and in Python.

C++ is parsed by tree-sitter, Python by `ast`. Definitions:

- **Methods**: each function that the body of the class declares or defines. Overloads,
  overrides, templates, static functions, constructors, destructors, operators, and
  defaulted or deleted functions count one each. In Python each `def` counts, so a
  property with a setter counts two.
- **Fields**: each value that an object of the class holds. Static members of C++ and
  class attributes of Python without an annotation do not count, because they hold no
  state of an object. In Python a field is a name that a method assigns to its first
  argument, as in `self.name = ...`, or an annotated name in the body, except
  `ClassVar`.

All branches of `#if` count. Friends, aliases, enums, inherited members, and the members
of nested classes do not count. A nested class is counted by itself, with the name
`Outer::Inner`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import tree_sitter
import tree_sitter_cpp

_CLASSES = ("class_specifier", "struct_specifier", "union_specifier")
_MEMBERS = ("field_declaration", "declaration", "function_definition")
# Wrappers of the members in a body.
_TRANSPARENT = (
    "template_declaration",
    "preproc_if",
    "preproc_ifdef",
    "preproc_else",
    "preproc_elif",
)


# The parser may fail inside these without an effect on the counts.
_OPAQUE = ("parameter_list", "template_argument_list", "compound_statement")
# Words that nvcc or the preprocessor removes, which the parser does not know.
_REMOVED = re.compile(r"\b(__(host|device|global)__|AIKIDO_OVERRIDE_SINCE_\w+)\b")


@dataclass(frozen=True)
class Size:
    """Name of a class, its line in the file, and the numbers of its members."""

    name: str
    line: int
    methods: int
    fields: int


class NotParsedError(Exception):
    """The parser does not understand a part of a class."""


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def cpp_classes(text: str) -> Iterator[Size]:
    """Sizes of all classes, structs and unions that have a body.

    Raises NotParsedError if a body contains text that is not C++ for the parser: its
    counts could then be wrong.
    """
    text = _REMOVED.sub(lambda match: " " * len(match.group()), text)
    yield from _classes_in(_parser().parse(text.encode()).root_node, "")


def _classes_in(node: tree_sitter.Node, outer: str) -> Iterator[Size]:
    for child in node.named_children:
        body = child.child_by_field_name("body")
        if child.type in _CLASSES and body is not None:
            name = outer + _text(child.child_by_field_name("name"))
            line = child.start_point.row + 1
            if error := _first_error(body):
                at = error.start_point.row + 1
                raise NotParsedError(f"class {name}: line {at} is not understood")
            methods, fields = _members(body)
            yield Size(name, line, methods, fields)
            yield from _classes_in(body, f"{name}::")
        else:
            yield from _classes_in(child, outer)


def _text(node: tree_sitter.Node | None) -> str:
    return "(unnamed)" if node is None or node.text is None else node.text.decode()


def _first_error(node: tree_sitter.Node) -> tree_sitter.Node | None:
    if not node.has_error or node.type in _OPAQUE:
        return None
    if node.is_error or node.is_missing:
        return node
    return next(filter(None, map(_first_error, node.children)), None)


def _members(body: tree_sitter.Node) -> tuple[int, int]:
    methods = fields = 0
    for member in body.named_children:
        if member.type in _TRANSPARENT:
            inner = _members(member)
            methods, fields = methods + inner[0], fields + inner[1]
        elif member.type in _MEMBERS:
            declarators = [
                child
                for i, child in enumerate(member.children)
                if member.field_name_for_child(i) == "declarator"
            ]
            is_static = any(
                child.type == "storage_class_specifier" and child.text == b"static"
                for child in member.children
            )
            functions = sum(_is_function(declarator) for declarator in declarators)
            methods += functions
            if not is_static:
                fields += len(declarators) - functions
    return methods, fields


def _is_function(declarator: tree_sitter.Node | None) -> bool:
    """False for a variable, also if it is a pointer to a function."""
    while declarator is not None:
        if declarator.type == "operator_cast":
            return True
        inner = declarator.child_by_field_name("declarator")
        if declarator.type == "function_declarator":
            return inner is None or inner.type != "parenthesized_declarator"
        # A reference has its declarator as a child without a name.
        if inner is None and declarator.type == "reference_declarator":
            inner = declarator.named_child(0)
        declarator = inner
    return False


def python_classes(text: str) -> Iterator[Size]:
    """Sizes of all classes, nested ones and those in functions included."""
    yield from _python_classes_in(ast.parse(text), "")


def _python_classes_in(node: ast.AST, outer: str) -> Iterator[Size]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef):
            yield from _python_classes_in(child, outer)
            continue
        methods = [
            item
            for item in child.body
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        fields = set(_annotated(child))
        for method in methods:
            fields.update(_assigned(method))
        name = outer + child.name
        yield Size(name, child.lineno, len(methods), len(fields))
        yield from _python_classes_in(child, f"{name}.")


def _annotated(body: ast.ClassDef) -> Iterator[str]:
    for item in body.body:
        if (
            isinstance(item, ast.AnnAssign)
            and isinstance(item.target, ast.Name)
            and "ClassVar" not in ast.unparse(item.annotation)
        ):
            yield item.target.id


def _assigned(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    arguments = [*method.args.posonlyargs, *method.args.args]
    if not arguments or any(
        isinstance(d, ast.Name) and d.id in ("staticmethod", "classmethod")
        for d in method.decorator_list
    ):
        return
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == arguments[0].arg
        ):
            yield node.attr
