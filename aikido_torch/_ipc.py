# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decision about strict all_reduces in the memory of a GPU that all ranks share.

The first such call makes the decision. All ranks announce their device and reach the
same result in `decide`. csrc/c10d/device/ipc.h describes the calls.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

import torch
from torch._C._distributed_c10d import Backend

from aikido_torch import _C, _inner
from aikido_torch.errors import ConfigError

_log = logging.getLogger("aikido")

_AUTO = "auto"  # the other value that comes here is "on"
# The rank that computes the sum (IpcCall::kLeader) and so needs the memory of all
# ranks.
_LEADER = 0
# Most tensors that one kernel can sum (kMaxReduceSources in cuda/reduce.h).
_MOST_RANKS = 128
# Most characters of a reason: an announcement is one text of _inner.tell.
_MOST = 400


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """Announcement of the device of one rank.

    Attributes:
        identity: of the device; equal on ranks that share it.
        device: readable name, as "cuda:0".
        lacks: why the rank cannot share memory of the device; "" if it can.
        handle: of a tensor on the device, in hexadecimal digits.
    """

    identity: str
    device: str
    lacks: str
    handle: str


@dataclass(frozen=True, kw_only=True)
class IpcDecision:
    """The choice between memory of the device and host, with the reason as a clause."""

    is_shared: bool
    reason: str


def decide(setting: str, announcements: Sequence[Announcement]) -> IpcDecision:
    """Decision of all ranks, from their announcements in rank order.

    Pure, so all ranks decide alike.

    Args:
        setting: "auto" or "on", equal on all ranks.

    Raises:
        ConfigError: the setting is "on", but sharing is impossible; names ranks and
            devices.
    """
    trouble = _trouble(announcements)
    if not trouble:
        reason = f"all {len(announcements)} ranks share {announcements[0].identity}"
        return IpcDecision(is_shared=True, reason=reason)
    if setting == _AUTO:
        return IpcDecision(is_shared=False, reason=trouble)
    devices = ", ".join(
        f"rank {rank}: {said.device} ({said.identity})"
        for rank, said in enumerate(announcements)
    )
    raise ConfigError(
        f"devices_ipc is '{setting}', but {trouble} [{devices}]; give all ranks one "
        "GPU, or use devices_ipc='auto', with which tensors go through the host then."
    )


def _trouble(announcements: Sequence[Announcement]) -> str:
    lacking = [
        f"rank {rank} cannot share its memory: {said.lacks}"
        for rank, said in enumerate(announcements)
        if said.lacks
    ]
    if lacking:
        return "; ".join(lacking)
    if len(announcements) > _MOST_RANKS:
        return f"{len(announcements)} ranks are more than {_MOST_RANKS}"
    first = announcements[_LEADER].identity
    for rank, said in enumerate(announcements):
        if said.identity != first:
            return f"rank {_LEADER} has {first} and rank {rank} has {said.identity}"
    return ""


def find(
    backend: Backend, setting: str, device: torch.device, limit: timedelta
) -> bool:
    """True if calls with tensors on `device` use its memory; else they are staged.

    All ranks call this at the same point of their calls. It makes two collectives.

    Args:
        backend: the aikido backend.
        setting: "auto" or "on", of its option devices_ipc.
        device: of this rank.
        limit: time for all ranks to come.

    Raises:
        ConfigError: on all ranks, if devices_ipc is "on" and sharing is impossible.
    """
    identity = IDENTITIES.get(device.type)
    if identity is None:
        return False
    assert isinstance(backend, _C.AikidoBackend)
    probe, handle, lacks = _share(device)
    own = Announcement(
        identity=identity(device, backend.host),
        device=str(device),
        lacks=lacks,
        handle=handle,
    )
    texts = _inner.tell(backend, json.dumps(asdict(own)), limit)
    said = [Announcement(**json.loads(text)) for text in texts]
    decision = decide(setting, said)
    if decision.is_shared:
        assert probe is not None
        failure = _try(backend, probe, said)
        told = _inner.tell(backend, failure, limit)[_LEADER]
        said[_LEADER] = replace(said[_LEADER], lacks=told)
        decision = decide(setting, said)
    del probe  # lives until all ranks have tried to reach it
    _log.info(
        "group %s, rank %d: strict all_reduces of tensors on %s go %s: %s",
        backend.group_name, backend.place[0], device.type,
        "in its memory" if decision.is_shared else "through the host",
        decision.reason,
    )  # fmt: skip
    return decision.is_shared


def _share(device: torch.device) -> tuple[torch.Tensor | None, str, str]:
    """A tensor on the device, the handle of its memory, and a reason if it has none."""
    try:
        probe = torch.zeros(1, device=device)
        return probe, _C.share_device_memory(probe).hex(), ""
    except Exception as error:  # all ranks get the reason and continue without it
        return None, "", str(error)[:_MOST]


def _try(
    backend: _C.AikidoBackend, probe: torch.Tensor, said: Sequence[Announcement]
) -> str:
    """Why the leader cannot reach the memory of all ranks; "" on other ranks."""
    if backend.place[0] != _LEADER:
        return ""
    others = [other.handle for rank, other in enumerate(said) if rank != _LEADER]
    try:
        _C.try_device_memory(probe, [bytes.fromhex(handle) for handle in others])
    except Exception as error:  # as above
        return f"that of the others is out of its reach ({error})"[:_MOST]
    return ""


# Device type to a function that identifies a device by itself and its host's address.
IDENTITIES: dict[str, Callable[[torch.device, str], str]] = {"cuda": _inner.gpu}
