# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""`_C.pyi` matches the native module, and public names are few and documented."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import aikido_torch
from aikido_torch import _C
from rules import tree

STUB = tree.REPOSITORY / "aikido_torch/_C.pyi"
# Attributes that pybind11 adds to every class.
_ADDED = ("_pybind11_conduit_v1_",)
_SPECIAL = ("__init__", "__eq__")
# Public names besides the packages and the classes of errors. Those classes are not
# counted, since one stands for each way to react to a failure of the engine. A new name
# needs a reader of docs/ who uses it; the types of results are not exported.
MOST_NAMES = 60


def stub_differences(stub: str, module: ModuleType) -> list[str]:
    """Names, kinds and arguments in which the stub and the module differ."""
    found = []
    wanted = _names_of_stub(ast.parse(stub).body)
    built = {n: v for n, v in vars(module).items() if not n.startswith("__")}
    found += [f"{name} is not in the stub" for name in built.keys() - wanted]
    found += [f"{name} is not in the module" for name in wanted.keys() - built]
    for name in sorted(wanted.keys() & built):
        if isinstance(wanted[name], ast.ClassDef):
            found += _class_differences(name, wanted[name], built[name])
        else:
            found += _argument_differences(name, wanted[name], built[name])
    return sorted(found)


def _names_of_stub(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    return {
        item.name: item
        for item in body
        if isinstance(item, ast.FunctionDef | ast.ClassDef)
        # Classes with an underscore exist only in the stub.
        and not (isinstance(item, ast.ClassDef) and item.name.startswith("_"))
    }


def _class_differences(name: str, stub: ast.ClassDef, built: type) -> list[str]:
    bases = [ast.unparse(base) for base in stub.bases]
    built_bases = [base.__name__ for base in built.__bases__]
    found = []
    if [b for b in built_bases if not b.startswith("pybind11")] != bases:
        found.append(f"{name} derives from {built_bases}, not {bases}")
    wanted = {i.name: i for i in stub.body if isinstance(i, ast.FunctionDef)}
    has = {
        member: value
        for member, value in vars(built).items()
        if member not in _ADDED and (not member.startswith("__") or member in _SPECIAL)
    }
    if not (has.get("__init__").__doc__ or "").startswith("__init__("):
        has.pop("__init__")  # Python code cannot construct the class
    if "__eq__" in wanted:
        wanted.pop("__eq__"), has.pop("__eq__")
    found += [f"{name}.{member} is not in the stub" for member in has.keys() - wanted]
    found += [f"{name}.{member} is not in the module" for member in wanted.keys() - has]
    for member in wanted.keys() & has:
        decorators = [ast.unparse(d) for d in wanted[member].decorator_list]
        kind = {property: ["property"], staticmethod: ["staticmethod"]}
        if kind.get(type(has[member]), []) != decorators:
            found.append(f"{name}.{member} is a {type(has[member]).__name__}")
        elif decorators != ["property"]:
            value = getattr(built, member)
            found += _argument_differences(f"{name}.{member}", wanted[member], value)
    return found


def _argument_differences(name: str, stub: ast.FunctionDef, built: object) -> list[str]:
    arguments = [a.arg for a in (*stub.args.args, *stub.args.kwonlyargs)]
    signature = (built.__doc__ or "").split("\n")[0]
    # A comma inside brackets does not separate arguments.
    while (flat := re.sub(r"\[[^\[\]]*\]", "", signature)) != signature:
        signature = flat
    inner = re.search(r"\((.*)\) ->", signature)
    given = re.findall(r"(\w+):", inner.group(1)) if inner else []
    if given == arguments:
        return []
    return [f"{name} takes {given}, in the stub {arguments}"]


def all_differences(package: ModuleType) -> list[str]:
    """Modules with a missing or wrong `__all__`, and names without a docstring."""
    found = []
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        leaf = info.name.rsplit(".", 1)[-1]
        names = getattr(module, "__all__", None)
        if names is None:
            if not leaf.startswith("_"):
                found.append(f"{info.name} has no __all__")
            continue
        if names != sorted(names):
            found.append(f"{info.name}: __all__ is not in order")
        for name in names:
            value = getattr(module, name, None)
            if value is None:
                found.append(f"{info.name}: __all__ names {name}, which is not there")
            elif not inspect.ismodule(value) and not inspect.getdoc(value):
                found.append(f"{info.name}.{name} has no docstring")
    return found


def public_names(package: ModuleType) -> dict[str, object]:
    """Names in `__all__` of the public modules, with their shortest path."""
    found: dict[int, str] = {}
    values: dict[str, object] = {}
    infos = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    public = [i.name for i in infos if "._" not in i.name and ".__" not in i.name]
    for path in [package.__name__, *public]:
        module = importlib.import_module(path)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not inspect.ismodule(value) and id(value) not in found:
                found[id(value)] = f"{path}.{name}"
                values[f"{path}.{name}"] = value
    return values


def is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def code_in(markdown: str) -> str:
    """Text of the code spans and code blocks of a page."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", markdown, re.DOTALL))


def documents(root: Path) -> str:
    """Code of the pages, of their examples, and of docstrings on the API page."""
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    code = [code_in(p.read_text()) for p in pages if p.name != "changelog.md"]
    code += [p.read_text() for p in sorted((root / "examples").glob("*.py"))]
    api = (root / "docs/api.md").read_text()
    for module in re.findall(r"automodule:: ([\w.]+)", api):
        code.append(code_in(inspect.getdoc(importlib.import_module(module)) or ""))
    return "\n".join(code)


def undocumented(names: Iterable[str], text: str) -> list[str]:
    words = set(re.findall(r"\w+", text))
    return [name for name in names if name.rsplit(".", 1)[-1] not in words]


def test_public_names_are_few():
    names = [n for n, v in public_names(aikido_torch).items() if not is_error(v)]
    assert len(names) <= MOST_NAMES, "\n".join(names)


def test_each_public_name_stands_in_the_documents():
    text = documents(tree.REPOSITORY)
    assert undocumented(public_names(aikido_torch), text) == []


def test_each_public_package_has_its_place_on_the_page_of_the_api():
    api = (tree.REPOSITORY / "docs/api.md").read_text()
    modules = {path.rsplit(".", 1)[0] for path in public_names(aikido_torch)}
    assert modules == set(re.findall(r"automodule:: ([\w.]+)", api))


def test_a_name_that_is_not_documented_is_named():
    page = "A word like late is no code. `wait_all` is, and so is:\n```\nskip(1)\n```"
    names = ["a.late", "a.wait_all", "a.b.skip", "a.wait"]
    assert undocumented(names, code_in(page)) == ["a.late", "a.wait"]


def test_the_stub_matches_the_native_module():
    assert stub_differences(STUB.read_text(), _C) == []


def test_every_module_lists_and_documents_its_public_names():
    assert all_differences(aikido_torch) == []
    assert aikido_torch.__all__ == sorted(aikido_torch.__all__)
    for name in aikido_torch.__all__:
        assert getattr(aikido_torch, name) is not None


def test_a_stub_that_differs_is_named():
    text = STUB.read_text()
    changes = {
        "def build_info(": ("def built_info(", "build_info is not in the stub"),
        "(peer: str)": (
            "(host: str)",
            "source_address takes ['peer'], in the stub ['host']",
        ),
        "def skipped(self)": (
            "def missing(self)",
            "Outcome.skipped is not in the stub",
        ),
        "class AikidoWork(Work)": (
            "class AikidoWork",
            "AikidoWork derives from ['Work'], not []",
        ),
        "    @property\n    def address": (
            "    def address",
            "Runtime.address is a property",
        ),
        "        slack: float,\n": (
            "",
            "PolicyOptions.skip takes ['min_contributors', 'floor_ms', 'ceiling_ms', "
            "'max_consecutive_skips', 'warmup_operations', 'slack', 'worth', "
            "'divisor', 'masks', 'log_full', 'backups', 'mode', 'verify_shadows'], in "
            "the stub ['min_contributors', 'floor_ms', 'ceiling_ms', "
            "'max_consecutive_skips', 'warmup_operations', 'worth', 'divisor', "
            "'masks', 'log_full', 'backups', 'mode', 'verify_shadows']",
        ),
    }
    for before, (after, breach) in changes.items():
        assert before in text
        assert breach in stub_differences(text.replace(before, after), _C)


def test_a_wrong_all_is_named(tmp_path, monkeypatch):
    sources = {
        "samplepackage/__init__.py": "",
        "samplepackage/a.py": "__all__ = ['y', 'x']\ndef x(): pass\n",
        "samplepackage/b.py": "",
        "samplepackage/_c.py": "",
    }
    tree.write(Path(tmp_path), sources)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert all_differences(importlib.import_module("samplepackage")) == [
        "samplepackage.a: __all__ is not in order",
        "samplepackage.a: __all__ names y, which is not there",
        "samplepackage.a.x has no docstring",
        "samplepackage.b has no __all__",
    ]
