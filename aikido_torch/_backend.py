# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Makes the backend objects that c10d asks for, one per process group."""

import atexit
import os
import time
import warnings
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore, Store

from aikido_torch import _C, _address, _inner, _ipc, _links
from aikido_torch._address import Meeting, own_address
from aikido_torch._names import unknown_variables
from aikido_torch._store_end import ends_with_rank_0
from aikido_torch.errors import ConfigError
from aikido_torch.options import Options

NAME = "aikido"

# The progress thread of this process, by process id: a forked child has none yet.
_runtimes: dict[int, _C.Runtime] = {}
# Its settings, by process id; all groups of a process share them.
_runtime_values: dict[int, dict[str, int | str]] = {}
_RUNTIME_OPTIONS = (
    "socket_ifname",
    "transport_handshake_timeout_ms",
    "transport_shared_memory_bytes",
    "transport_credit_bytes",
    "role",
)
_backends: "weakref.WeakSet[_C.AikidoBackend]" = weakref.WeakSet()
# Backends whose members did not use a store for their rendezvous.
_without_store: "weakref.WeakSet[_C.AikidoBackend]" = weakref.WeakSet()
# Groups on which `register` reduces buckets, by the group of the model.
_bucket_backends: (
    "weakref.WeakKeyDictionary[_C.AikidoBackend, weakref.WeakSet[_C.AikidoBackend]]"
)
_bucket_backends = weakref.WeakKeyDictionary()
# Group name to the ranks in the job of its members; also for groups that have ended.
_members: dict[str, tuple[int, ...]] = {}
# Options of groups, by name; groups split from another group are missing.
_given: dict[str, Options] = {}
# Groups on which a model catches up, with its handle, which keeps the backend alive.
# All committed results on such a group count as results of buckets.
catching_up_on: "weakref.WeakKeyDictionary[_C.AikidoBackend, weakref.ref[object]]"
catching_up_on = weakref.WeakKeyDictionary()

# Progress of the model whose buckets are reduced on a group; any thread reads `last`.
progress_on: "weakref.WeakKeyDictionary[_C.AikidoBackend, Any]"
progress_on = weakref.WeakKeyDictionary()

# Micro-batches that this rank takes over in the loop of such a model; any thread reads
# `by_owner`.
taken_on: "weakref.WeakKeyDictionary[_C.AikidoBackend, Any]"
taken_on = weakref.WeakKeyDictionary()


def check_is_last(model: object, backend: _C.AikidoBackend) -> None:
    """Raises ConfigError if another model was registered later on the group."""
    current = catching_up_on.get(backend)
    if current is not None and current() is not model:
        raise ConfigError(
            "Another model was registered on the group of this one since, and catch_up "
            "cannot tell their steps apart; give each model a group of its own: "
            "DistributedDataParallel(net, process_group=new_group(...))."
        )


def register_backend() -> None:
    """Makes `init_process_group("aikido")` known to torch. Idempotent."""
    if hasattr(dist.Backend, NAME.upper()):
        return
    _C.set_inner_finder(_inner.find)
    _C.set_ipc_finder(_ipc.find)
    dist.Backend.register_backend(
        NAME, _create, extended_api=True, devices=["cpu", "cuda"]
    )


def backend_of(group: dist.ProcessGroup | None) -> _C.AikidoBackend:
    """The aikido backend behind `group` (None: the default group).

    Raises:
        ConfigError: the group runs on another backend.
    """
    group = group if group is not None else dist.group.WORLD
    if group is None:
        raise ConfigError(
            "There is no process group yet; call init_process_group('aikido') first."
        )
    if not isinstance(
        group, dist.ProcessGroup
    ):  # new_group() returns this to non-members
        raise ConfigError(
            "This rank is no member of the group; call this on its members only."
        )
    backend = group._get_backend(torch.device("cpu"))
    # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps every backend.
    backend = getattr(backend, "wrapped_pg", backend)
    if not isinstance(backend, _C.AikidoBackend):
        raise ConfigError(
            f"The group '{group.group_name}' runs on backend '{backend.name()}', not "
            "on 'aikido'; make it with new_group(backend='aikido')."
        )
    return backend


def option_of(backend: _C.AikidoBackend, option: str) -> int | str:
    """The value of an option in the group of `backend`."""
    return _given.get(backend.group_name, Options()).value(option)


def backend_until_its_end(
    group: dist.ProcessGroup | None,
) -> Callable[[], _C.AikidoBackend | None]:
    """Function that returns the backend behind `group`, or None after its end.

    At that time another group may have the same place, such as a new default group.

    Raises:
        ConfigError: the group runs on another backend.
    """
    known = weakref.ref(backend_of(group))

    def find() -> _C.AikidoBackend | None:
        try:
            backend = backend_of(group)
        except ConfigError:
            return None
        return backend if backend is known() else None

    return find


def options_of(backend: _C.AikidoBackend) -> Options | None:
    """Options of `backend`; None: the group was made from another group."""
    return _given.get(backend.group_name)


def was_met_at_store(backend: _C.AikidoBackend) -> bool:
    """True if the current members used the store of torch for their rendezvous."""
    return backend not in _without_store and backend.epoch == 1


def note_bucket_backend(of: _C.AikidoBackend, buckets: _C.AikidoBackend) -> None:
    """Notes that `register` reduces buckets of a model on group `of` by `buckets`."""
    _bucket_backends.setdefault(of, weakref.WeakSet()).add(buckets)


def with_bucket_backends(backend: _C.AikidoBackend) -> list[_C.AikidoBackend]:
    """`backend`, and the backends that reduce the buckets of models on it."""
    return [backend, *_bucket_backends.get(backend, ())]


def recorder_of_process() -> _C.Recorder:
    """Recorder of the groups of this process.

    Raises:
        ConfigError: there is none yet.
    """
    runtime = _runtimes.get(os.getpid())
    if runtime is None:
        raise ConfigError(
            "There is no aikido group in this process yet; call "
            "init_process_group('aikido') first."
        )
    return runtime.recorder


def members_of(backend: _C.AikidoBackend) -> tuple[int, ...]:
    """Ranks in the job of the members of a group; () if they are not known.

    They are unknown for a group that was split from another group or changed by
    reconfigure.
    """
    is_known = backend not in _without_store and backend.epoch == 1
    return _members.get(backend.group_name, ()) if is_known else ()


def members_of_groups() -> dict[str, tuple[int, ...]]:
    """Ranks in the job of the members of each aikido group, by the group's name.

    Includes ended groups, if torch's new_group made them or an earlier call of this
    function saw them.
    """
    for group, ranks in list(distributed_c10d._world.pg_group_ranks.items()):
        if not isinstance(group, dist.ProcessGroup):  # this rank is no member
            continue
        try:
            backend = backend_of(group)
        except (ConfigError, RuntimeError):  # another backend or device
            continue
        members = sorted(ranks, key=ranks.__getitem__)
        if group == dist.group.WORLD:  # may have been reconfigured
            members = list(range(backend.place[1]))
        _members[backend.options.group_name] = tuple(members)
    return dict(_members)


def _runtime(options: Options, store: Store, meeting: Meeting | None) -> _C.Runtime:
    runtime = _runtimes.get(os.getpid())
    if runtime is not None:
        _check_runtime_options(options)
        if meeting is not None:
            _address.tell(meeting)
        return runtime
    variables = [row["variable"] for row in _C.settings_table()]
    for sentence in unknown_variables(os.environ, variables):
        warnings.warn(sentence, stacklevel=1)
    values = {name: options.value(name) for name in _RUNTIME_OPTIONS}
    timeout = timedelta(milliseconds=int(values["transport_handshake_timeout_ms"]))
    runtime = _C.Runtime(
        own_address(options, store, meeting),
        timeout,
        int(values["transport_shared_memory_bytes"]),
        int(values["transport_credit_bytes"]),
    )
    _runtimes[os.getpid()] = runtime
    _runtime_values[os.getpid()] = values
    return runtime


def _check_runtime_options(options: Options) -> None:
    """Checks that options of a later group agree with those of the first group."""
    for name, value in _runtime_values[os.getpid()].items():
        given = getattr(options, name)
        if given is not None and given != value:
            raise ConfigError(
                f"pg_options has {name}={given!r}, but all groups of a process share "
                f"it, and the first one was made with {value!r}; give it to the first "
                f"group (init_process_group), or set AIKIDO_{name.upper()}."
            )


def _create(request: Any, pg_options: Any) -> _C.AikidoBackend:
    if pg_options is None:
        pg_options = Options()
    if not isinstance(pg_options, Options):
        raise ConfigError(
            f"pg_options is a {type(pg_options).__name__}; backend 'aikido' takes "
            "aikido_torch.Options."
        )
    store, rank, size = request.store, request.group_rank, request.group_size
    # True from torch 2.14 on if the group has no members before its first reconfigure.
    connect = not getattr(request, "enable_reconfigure", False)
    name = request.group_id or "default"
    _given[name] = pg_options
    _members[name] = tuple(request.global_ranks_in_group or range(size))
    begin = time.monotonic()
    # A group without members has no other ranks yet.
    meeting = Meeting(store, rank, size, request.timeout) if connect else None
    runtime = _runtime(pg_options, store, meeting)

    def time_left() -> timedelta:
        """Time left for all work of the ranks before the group exists."""
        left_s = request.timeout.total_seconds() - (time.monotonic() - begin)
        return timedelta(seconds=max(left_s, 0.001))

    backend = _C.AikidoBackend(
        runtime=runtime,
        store=PrefixStore("aikido", store),
        rank=rank,
        size=size,
        timeout=request.timeout,
        group_name=name,
        options=pg_options.given()
        | {"role": str(_runtime_values[os.getpid()]["role"])},
        connect=connect,
        connect_timeout=time_left(),
    )
    port = _address.port_of(store) or 0
    is_default = not dist.is_initialized()
    is_met_there = connect and is_default and port > 0 and size > 1
    if is_met_there and ends_with_rank_0(store, rank, port) and rank > 0:
        backend.leave_after_rank_0(port)
    if connect and (failure := backend.sharing_failure()):
        warnings.warn(
            f"rank {rank} talks through sockets {failure}; to always do so set "
            "AIKIDO_TRANSPORT_SHARED_MEMORY_BYTES=0.",
            stacklevel=1,
        )
    _backends.add(backend)
    if not connect:
        _without_store.add(backend)
    algorithm = pg_options.value("collectives_algorithm")
    if connect and algorithm in ("auto", "two_level"):
        hosts = _links.find_hosts(backend, time_left())
        if algorithm == "auto":
            _links.measure(backend, hosts, time_left())
    return backend


def _shut_down_all() -> None:
    # Queued data is still sent if a process ends without destroy_process_group.
    for backend in list(_backends):
        backend.shut_down_family()
    # Callbacks take Python's lock, which is not available any more after this function.
    runtime = _runtimes.get(os.getpid())
    if runtime is not None:
        runtime.stop()


atexit.register(_shut_down_all)
