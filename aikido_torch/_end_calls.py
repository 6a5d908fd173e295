# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Functions that a group calls before it ends, in `destroy_process_group`."""

import contextlib
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

__all__ = ["call_at_end"]

EndCall = Callable[[timedelta], None]

_calls: "weakref.WeakKeyDictionary[Any, dict[str, EndCall]]"
_calls = weakref.WeakKeyDictionary()


def call_at_end(backend: Any, name: str, call: EndCall) -> None:
    """Makes `backend` call `call` before its group ends, while the group still works.

    The calls of one group run in the order of their first registration. An error of a
    call does not keep the next one from running. `call` gets the time that it may take,
    and must not keep the backend alive.

    Args:
        backend: of the group.
        name: of the call; a later call with the same name replaces it.
        call: the function. An aborted group and the end of the process do not call it.
    """
    calls = _calls.setdefault(backend, {})
    calls[name] = call

    def end(linger: timedelta) -> None:
        with contextlib.ExitStack() as stack:
            for one in reversed(calls.values()):
                stack.callback(one, linger)

    backend.set_end_hook(end)
