# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decision about an inner NCCL, for strict collectives of CUDA tensors.

All ranks ask at the first such call, and get the same answer: `decide` makes it from
their announcements. If it is yes, each rank makes its own part, and the inner NCCL is
used only if all ranks have made theirs. csrc/c10d/inner.h has the way of a call.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, Store
from torch.distributed.distributed_c10d import PrefixStore

from aikido_torch import _C
from aikido_torch._links import _all_reduce
from aikido_torch.errors import ConfigError

_log = logging.getLogger("aikido")

_AUTO = "auto"  # the other value that comes here is "on"
# For connecting, once all ranks are at it.
_MOST = timedelta(minutes=5)
# Size of one announcement of a rank.
_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """Devices of one rank, as it announces them.

    Attributes:
        identity: of the device of its tensors, the same for two ranks that share it.
        device: the same for people, as "cuda:0".
        lacks: why there can be no inner backend on this rank; empty: there can.
    """

    identity: str
    device: str
    lacks: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Use of the inner backend, and the reason, a sentence without its end."""

    is_inner: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Kind:
    """An inner backend for the devices of one type.

    Attributes:
        name: as in "nccl".
        lacks: why this process cannot have one; empty: it can.
        identity: of a device, given the address of the host.
        make: makes a connected backend from store, rank, size, time-out for connecting
            and device.
    """

    name: str
    lacks: Callable[[], str]
    identity: Callable[[torch.device, str], str]
    make: Callable[[Store, int, int, timedelta, torch.device], Backend]


def decide(
    setting: str, name: str, announcements: Sequence[Announcement | None]
) -> Decision:
    """Decision of all ranks, from their announcements in the order of the ranks.

    Pure, so all decide alike.

    Args:
        setting: "auto" or "on", which is equal on all ranks.
        name: of the inner backend.
        announcements: None of a rank that has no store in common with the others.

    Raises:
        ConfigError: the setting is "on" and it cannot be: with ranks and devices.
    """
    trouble = _trouble(name, announcements)
    if not trouble:
        reason = f"each of the {len(announcements)} ranks has a device of its own"
        return Decision(is_inner=True, reason=reason)
    if setting == _AUTO:
        return Decision(is_inner=False, reason=trouble)
    devices = ", ".join(
        f"rank {rank}: {said.device} ({said.identity})"
        for rank, said in enumerate(announcements)
        if said is not None
    )
    raise ConfigError(
        f"devices_nccl is '{setting}', but {trouble} [{devices or 'no device is known'}"
        "]; give each rank a GPU of its own, or use devices_nccl='auto', with which "
        "tensors go through the host then."
    )


def _trouble(name: str, announcements: Sequence[Announcement | None]) -> str:
    if None in announcements:
        return (
            f"the ranks share no store, by which {name} meets: the group has got its "
            "members by reconfigure"
        )
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    lacking = []
    for rank, said in enumerate(announcements):
        assert said is not None
        ranks[said.identity].append(rank)
        if said.lacks:
            lacking.append(f"rank {rank} has no {name}: {said.lacks}")
    if lacking:
        return "; ".join(lacking)
    shared = [
        f"ranks {' and '.join(map(str, who))} share {identity}"
        for identity, who in ranks.items()
        if len(who) > 1
    ]
    return "; ".join(shared)


def find(
    backend: Backend,
    setting: str,
    device: torch.device,
    store: Store | None,
    limit: timedelta,
) -> Backend | None:
    """The inner backend for calls with tensors on `device`; None: they are staged.

    All ranks call it at one place between their collectives, of which it makes two.

    Args:
        backend: aikido's own.
        setting: "auto" or "on", of its option devices_nccl.
        device: of this rank.
        store: which the ranks share, None for none.
        limit: for all of them to come, and to connect.

    Raises:
        ConfigError: the option devices_nccl is "on" and it cannot be, on all ranks.
    """
    kind = KINDS.get(device.type)
    if kind is None:
        return None
    assert isinstance(backend, _C.AikidoBackend)
    rank, size = backend.place
    if store is None:
        decide(setting, kind.name, [None] * size)
        return None
    own = Announcement(
        identity=kind.identity(device, backend.host),
        device=str(device),
        lacks=kind.lacks(),
    )
    texts = tell(backend, json.dumps(asdict(own)), limit)
    said = [Announcement(**json.loads(text)) for text in texts]
    decision = decide(setting, kind.name, said)
    made = None
    if decision.is_inner:
        # Another try, after an error, finds nothing of this one.
        prefix = PrefixStore(f"{kind.name}/{backend.num_calls}", store)
        made, failure = _make(kind, prefix, (rank, size), min(limit, _MOST), device)
        failures = tell(backend, failure, limit)
        said = [
            replace(one, lacks=why) for one, why in zip(said, failures, strict=True)
        ]
        try:
            decision = decide(setting, kind.name, said)
        finally:
            if any(failures) and made is not None:
                made.abort()
    _log.info(
        "group %s, rank %d: strict calls of tensors on %s go %s: %s",
        backend.group_name, rank, device.type,
        f"by {kind.name}" if decision.is_inner else "through the host",
        decision.reason,
    )  # fmt: skip
    return made if decision.is_inner else None


def _make(
    kind: Kind,
    store: Store,
    place: tuple[int, int],
    limit: timedelta,
    device: torch.device,
) -> tuple[Backend | None, str]:
    """It, or why there is none."""
    try:
        return kind.make(store, *place, limit, device), ""
    except Exception as error:  # told to all ranks, which then go on without it
        return None, f"{type(error).__name__}: {error}"


def tell(backend: _C.AikidoBackend, text: str, limit: timedelta) -> list[str]:
    """Tells all ranks a text, and returns those of all, by rank; long ones are cut."""
    rank, size = backend.place
    told = torch.zeros(size, _BYTES, dtype=torch.uint8)
    own = text.encode()[:_BYTES]
    told[rank, : len(own)] = torch.tensor(list(own), dtype=torch.uint8)
    _all_reduce(backend, told, limit)
    return [bytes(row.tolist()).rstrip(b"\0").decode(errors="ignore") for row in told]


def _nccl_lacks() -> str:
    return "" if dist.is_nccl_available() else "its torch was built without it"


def gpu(device: torch.device, host: str) -> str:
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return str(uuid) if uuid else f"device {device.index} of {host}"


def _make_nccl(
    store: Store, rank: int, size: int, limit: timedelta, device: torch.device
) -> Backend:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = limit
    made = dist.ProcessGroupNCCL(store, rank, size, options)
    made.eager_connect_single_device(device)
    return made


# By the type of a device.
KINDS = {"cuda": Kind(name="nccl", lacks=_nccl_lacks, identity=gpu, make=_make_nccl)}
