# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decision about an inner NCCL, for strict collectives of CUDA tensors.

The first such call makes the decision. All ranks announce their device and reach the
same result in `decide`. Then each rank makes its inner backend, which is used only if
all ranks have succeeded. csrc/c10d/device/nccl_route.h describes the calls.
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
# Limit for the connections of the inner backend, once all ranks make it.
_MOST = timedelta(minutes=5)
# Size of one announcement of a rank.
_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """Announcement of the device of one rank.

    Attributes:
        identity: of the device; equal on ranks that share it.
        device: readable name, as "cuda:0".
        lacks: why this rank cannot have an inner backend; "" if it can.
    """

    identity: str
    device: str
    lacks: str


@dataclass(frozen=True, kw_only=True)
class InnerDecision:
    """Whether ranks use the inner backend, and the reason as a clause."""

    is_inner: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Kind:
    """An inner backend for the devices of one type.

    Attributes:
        name: name of the backend, such as "nccl".
        lacks: returns why this process cannot have one; "" if it can.
        identity: returns a name of a device that is unique on all hosts, from the
            device and the address of its host.
        make: makes a connected backend from store, rank, size, time-out for connecting
            and device.
    """

    name: str
    lacks: Callable[[], str]
    identity: Callable[[torch.device, str], str]
    make: Callable[[Store, int, int, timedelta, torch.device], Backend]


def decide(
    setting: str, name: str, announcements: Sequence[Announcement | None]
) -> InnerDecision:
    """Decision of all ranks, from their announcements in the order of the ranks.

    Pure, so all ranks decide alike.

    Args:
        setting: "auto" or "on", equal on all ranks.
        name: of the inner backend.
        announcements: of each rank; None if the ranks have no common store.

    Raises:
        ConfigError: the setting is "on", but an inner backend is impossible; names
            ranks and devices.
    """
    trouble = _trouble(name, announcements)
    if not trouble:
        reason = f"each of the {len(announcements)} ranks has a device of its own"
        return InnerDecision(is_inner=True, reason=reason)
    if setting == _AUTO:
        return InnerDecision(is_inner=False, reason=trouble)
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

    All ranks call this at the same point of their calls. It makes two collectives.

    Args:
        backend: the aikido backend.
        setting: "auto" or "on", of its option devices_nccl.
        device: of this rank.
        store: shared by the ranks; None if there is none.
        limit: time for all ranks to come and to connect.

    Raises:
        ConfigError: on all ranks, if devices_nccl is "on" and an inner backend is
            impossible.
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
        # Another attempt after an error must not read keys of this attempt.
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
    """The inner backend and "", or None and the reason."""
    try:
        return kind.make(store, *place, limit, device), ""
    except Exception as error:  # all ranks get the reason and continue without it
        return None, f"{type(error).__name__}: {error}"


def tell(backend: _C.AikidoBackend, text: str, limit: timedelta) -> list[str]:
    """Exchanges a text: sends it to all ranks and returns the texts of all, by rank.

    Long texts are cut.
    """
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


# Device type to its inner backend.
KINDS = {"cuda": Kind(name="nccl", lacks=_nccl_lacks, identity=gpu, make=_make_nccl)}
