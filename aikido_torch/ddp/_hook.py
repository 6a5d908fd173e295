# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What is hung on modules, parameters and optimizers."""

from collections.abc import Callable

__all__ = ["Hook"]


class Hook:
    """Calls what it was given. A copy of it calls nothing.

    So a module that has hooks can be copied and stored, which is another one's then.

    Args:
        call: what it calls; None: nothing.
        on_copy: called before a copy is made, by copy or by pickle; it may raise.
    """

    __slots__ = ("_call", "_on_copy")

    def __init__(
        self,
        call: Callable[..., object] | None = None,
        on_copy: Callable[[], object] | None = None,
    ) -> None:
        self._call = call
        self._on_copy = on_copy

    def __call__(self, *args: object) -> None:
        if self._call is not None:
            self._call(*args)

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        if self._on_copy is not None:
            self._on_copy()
        return Hook, ()
