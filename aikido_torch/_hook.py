# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Hooks for modules, parameters and optimizers.

Note [hooks that own nothing]
torch keeps the hooks of a parameter in C++, outside of Python's garbage collector. If
such a hook holds an object that holds the parameter, all of them stay alive for ever.
So such a hook is weak: it does not keep its object alive.
"""

import weakref
from collections.abc import Callable

__all__ = ["Hook"]


class Hook:
    """Hook that calls a function. A copy of the hook calls nothing.

    Therefore a module with hooks can be copied and stored: its copy has no effect on
    the original.

    Args:
        call: the function to call; None means none.
        on_copy: called before a copy is made by copy or by pickle. It may raise.
        is_weak: True if `call` is a method whose object the hook must not keep alive.
    """

    __slots__ = ("_call", "_on_copy")

    def __init__(
        self,
        call: Callable[..., object] | None = None,
        on_copy: Callable[[], object] | None = None,
        *,
        is_weak: bool = False,
    ) -> None:
        if is_weak and call is not None:
            method = weakref.WeakMethod(call)

            def call(*args: object) -> None:
                if (bound := method()) is not None:
                    bound(*args)

        self._call = call
        self._on_copy = on_copy

    def __call__(self, *args: object) -> None:
        if self._call is not None:
            self._call(*args)

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        if self._on_copy is not None:
            self._on_copy()
        return Hook, ()
