# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What is hung on modules, parameters and optimizers.

Note [hooks that own nothing]
torch keeps the hooks of a parameter in C++, where Python's garbage collector does not
look. A hook of a parameter that holds an object which holds the parameter keeps all of
them alive for ever. So such a hook is weak: it does not keep its object alive.
"""

import weakref
from collections.abc import Callable

__all__ = ["Hook"]


class Hook:
    """Calls what it was given. A copy of it calls nothing.

    So a module that has hooks can be copied and stored, which is another one's then.

    Args:
        call: what it calls; None: nothing.
        on_copy: called before a copy is made, by copy or by pickle; it may raise.
        is_weak: `call` is a method whose object this does not keep alive.
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
