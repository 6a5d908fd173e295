# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Limits on the numbers of methods and fields of a class; `classes.py` counts them."""

import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rules import classes, tree

METHODS, FIELDS = 40, 20
EXCEPTIONS = Path(__file__).with_name("class_budget.toml")


def sizes(root: Path) -> Iterator[tuple[Path, classes.Size]]:
    """All classes of the sources, without those of tests."""
    for path in tree.files(root, "csrc", "cuda", suffixes=tree.CPP):
        for size in classes.cpp_classes(path.read_text()):
            yield path.relative_to(root), size
    for path in tree.files(root, "aikido_torch", "benchmarks", suffixes=(".py",)):
        for size in classes.python_classes(path.read_text()):
            yield path.relative_to(root), size


def exceptions(text: str) -> dict[str, dict[str, int]]:
    """The numbers of each class that may exceed a limit, by name of the class."""
    found: dict[str, dict[str, int]] = {}
    for entry in tomllib.loads(text).get("class", []):
        name = entry.pop("name")
        assert name not in found, f"two entries for {name}"
        assert len(entry.pop("reason").split()) >= 3, f"{name} needs a reason"
        assert entry, f"the entry for {name} has no number"
        assert entry.keys() <= {"methods", "fields"}, f"unknown key for {name}"
        found[name] = entry
    return found


def oversized(root: Path, listed: dict[str, dict[str, int]]) -> list[str]:
    found = []
    unused = {(name, what) for name, numbers in listed.items() for what in numbers}
    for path, size in sizes(root):
        for what, number, bound in (
            ("methods", size.methods, METHODS),
            ("fields", size.fields, FIELDS),
        ):
            if number <= bound:
                continue
            place = f"{path}:{size.line}: {size.name} has {number} {what}"
            allowed = listed.get(size.name, {}).get(what)
            unused.discard((size.name, what))
            if allowed is None:
                found.append(f"{place}; a class has at most {bound}")
            elif number > allowed:
                found.append(f"{place}; {EXCEPTIONS.name} allows {allowed}")
            elif number < allowed:
                found.append(f"{place}; lower the {allowed} of {EXCEPTIONS.name}")
    found += [
        f"{EXCEPTIONS.name}: no class {name} has too many {what}; remove the entry"
        for name, what in sorted(unused)
    ]
    return found


def test_every_class_of_this_repository_is_within_budget():
    assert oversized(tree.REPOSITORY, exceptions(EXCEPTIONS.read_text())) == []


CPP = """
namespace a {{
class B final : public C {{
 public:
  using Pair = std::pair<int, int>;
  enum Kind {{ kOne, kTwo }};
  struct Inner {{ int x; int y() const; }};
  static constexpr int kMost = 3;
{members}
}};
}}  // namespace a
"""


def cpp_size(members: str) -> tuple[int, int]:
    found = {
        size.name: (size.methods, size.fields)
        for size in classes.cpp_classes(CPP.format(members=members))
    }
    assert found["B::Inner"] == (1, 1)
    return found["B"]


@pytest.mark.parametrize(
    "member",
    [
        "B();",
        "explicit B(int x) : x_{x}, y_(x) {}",
        "B(const B&) = delete;",
        "B& operator=(B&&) noexcept = default;",
        "~B() override;",
        "virtual int f(int) const = 0;",
        "[[nodiscard]] std::optional<int> f() const override;",
        "const std::vector<int>& f() const { return v_; }",
        "int* f(std::span<const int> hosts = {});",
        "static int f();",
        "template <class T> T f() const { return T(); }",
        "template <class T>\n  void f(T t);",
        "explicit operator bool() const;",
        "operator int() const { return 1; }",
        "bool operator==(const B&) const = default;",
        "__device__ static Acc f(Raw raw) { return raw; }",
        "int f() const AIKIDO_OVERRIDE_SINCE_2_15 { return 1; }",
        "auto f() -> int;",
        "#ifdef X\n  void f();\n#endif",
    ],
)
def test_a_cpp_function_counts_as_a_method(member):
    assert cpp_size(member) == (1, 0)


@pytest.mark.parametrize(
    ("member", "fields"),
    [
        ("int x_;", 1),
        ("int x_ = 0, *y_ = nullptr;", 2),
        ("std::atomic<int> x_{0}, y_{0};", 2),
        ("std::function<void(int)> x_;", 1),
        ("void (*x_)(int);", 1),
        ("int x_[3];", 1),
        ("const A& x_;", 1),
        ("mutable bool x_ : 1;", 1),
        ("struct { int a; } x_;", 1),
        ("inline static int x_ = 1;", 0),
        ("static const int kX;", 0),
        ("friend class D;", 0),
        ("friend int f(B);", 0),
        ("struct Later;", 0),
    ],
)
def test_a_cpp_value_of_each_object_counts_as_a_field(member, fields):
    assert cpp_size(member) == (0, fields)


def test_a_cpp_class_that_the_parser_does_not_understand_is_named():
    with pytest.raises(classes.NotParsedError, match="class B: line 9"):
        cpp_size("int f( const } int;")


PYTHON = '''
class A(Base):
    """A class."""

    kinds: ClassVar[int] = 1
    first: int
    second: int = 2
    LIMIT = 3

    def __init__(self, x):
        self.x, self.first = x, x
        self.y: int = 0
        self.table[x] = self.z.w = 1

    @property
    def value(self):
        self.y += 1
        return self.y

    @value.setter
    def value(self, value):
        with open() as self.file:
            pass

    @staticmethod
    def make(other):
        other.not_ours = 1

    class Inner:
        def f(self):
            self.g = 1
'''


def test_members_of_python_classes_are_counted():
    found = {
        size.name: (size.methods, size.fields)
        for size in classes.python_classes(PYTHON)
    }
    # first, second, x, y, file
    assert found == {"A": (4, 5), "A.Inner": (1, 1)}


def python_class(methods: int, fields: int) -> str:
    lines = [f"def f{i}(self): pass" for i in range(methods)]
    lines += [f"a{i}: int" for i in range(fields)]
    return "class A:\n" + textwrap.indent("\n".join(lines), "    ")


def test_large_classes_are_named(tmp_path):
    members = "".join(f"  int f{i}();\n" for i in range(41))
    tree.write(
        tmp_path,
        {
            "csrc/base/a.h": CPP.format(members=members),
            "aikido_torch/a.py": python_class(40, 21),
            "tests/python/test_a.py": python_class(99, 99),
        },
    )
    assert oversized(tmp_path, {}) == [
        "csrc/base/a.h:3: B has 41 methods; a class has at most 40",
        "aikido_torch/a.py:1: A has 21 fields; a class has at most 20",
    ]


@pytest.mark.parametrize(
    ("fields", "breach"),
    [
        (24, "aikido_torch/a.py:1: A has 24 fields; class_budget.toml allows 23"),
        (23, None),
        (22, "aikido_torch/a.py:1: A has 22 fields; lower the 23 of class_budget.toml"),
        (20, "class_budget.toml: no class A has too many fields; remove the entry"),
    ],
)
def test_a_listed_class_has_exactly_the_listed_numbers(tmp_path, fields, breach):
    tree.write(tmp_path, {"aikido_torch/a.py": python_class(1, fields)})
    listed = {"A": {"fields": 23}}
    assert oversized(tmp_path, listed) == ([breach] if breach else [])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('name = "A"\nfields = 23\nreason = "big"', "A needs a reason"),
        ('name = "A"\nreason = "a table of values"', "A has no number"),
        ('name = "A"\nlines = 1\nreason = "a table of values"', "unknown key"),
    ],
)
def test_an_incomplete_exception_is_refused(text, complaint):
    with pytest.raises(AssertionError, match=complaint):
        exceptions(f"[[class]]\n{text}")
