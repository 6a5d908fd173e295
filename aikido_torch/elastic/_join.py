# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Entry of a process into an elastic job."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from aikido_torch.elastic._batches import Batches
from aikido_torch.elastic._endpoint import Endpoint
from aikido_torch.elastic._notices import Source
from aikido_torch.elastic._session import Job, Limits
from aikido_torch.elastic._sharded import ShardedOptimizer
from aikido_torch.elastic._stages import RELIABLE, TRANSIENT
from aikido_torch.errors import ConfigError
from aikido_torch.recovery._state import Stateful

__all__ = ["join"]


def join(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: "torch.utils.data.DataLoader[Any]",
    *,
    endpoint: str | None = None,
    role: str | None = None,
    state: Mapping[str, Stateful] | None = None,
    job: str | None = None,
    host: str | None = None,
    notices: Sequence[Source] = (),
    min_members: int = 1,
    seed: int = 0,
    timeout: float = 60.0,
    grace: float = 2.0,
) -> Job:
    """Joins a job whose members come and go, and receives its state.

    The first reliable process begins the job with its own state. Each later process
    receives the state from a member, between two steps, and takes part from then on.

    Args:
        model: the same on all members. It is not wrapped; hooks sum its gradients.
        optimizer: of the model's parameters. Its `step` does nothing in a failed step.
        loader: a DataLoader with a batch size, over a dataset with a length. Each
            member has one batch of it in each step.
        endpoint: "host:port" of a `torch.distributed.TCPStore` that outlives the
            members. None: of the agent that has started the process, by `MASTER_ADDR`
            and `MASTER_PORT`.
        role: "reliable" or "transient", for the life of the process. More than half of
            the reliable members must survive a death; all transient members may vanish.
            None: `AIKIDO_ROLE`, or "transient".
        state: further objects of the training, by name, such as a scheduler.
        job: name of the job; one endpoint serves several jobs. None: that of the agent,
            or "job".
        host: name of the machine; a notice to one member is for all members of its
            machine. None: its name in the network.
        notices: further sources of eviction notices, such as the metadata of a cloud.
            SIGTERM and SIGUSR1 are notices if the main thread calls `join`.
        min_members: members with which the job begins.
        seed: of the order of the items, the same on all members.
        timeout: limit of each wait for other members, in seconds.
        grace: seconds after which a silent member counts as lost. The connection of a
            dead process breaks at once.

    Returns:
        The session. `job.steps(until=...)` is the training loop.

    Raises:
        ConfigError: an argument is wrong, or differs from those of the job.
        TimedOutError: the members did not come, or nobody admitted this process.
        PeerLostError: the store does not answer.
    """
    role = role or os.environ.get("AIKIDO_ROLE", TRANSIENT)
    job = job or os.environ.get("TORCHELASTIC_RUN_ID", "job")
    if endpoint is None:
        endpoint = _endpoint_of_agent()
    if role not in (RELIABLE, TRANSIENT):
        raise ConfigError(
            f'elastic.join: role is {role!r}; give "{RELIABLE}" or "{TRANSIENT}".'
        )
    batches = Batches(loader)
    store = Endpoint(endpoint, job)
    own = _fit_of(model, optimizer, batches, seed)
    theirs = store.decide("fit", json.dumps(own))
    _check_fit(own, json.loads(theirs), job, endpoint)
    session = Job(
        model,
        optimizer,
        batches,
        state or {},
        store,
        role=role,
        host=host or socket.gethostname(),
        notices=notices,
        seed=seed,
        limits=Limits(timeout, grace),
    )
    _begin(session, store, min_members, timeout)
    return session


def _begin(session: Job, store: Endpoint, min_members: int, timeout: float) -> None:
    """Begins the job, or waits for admission if another process has begun it."""
    name = session.name
    is_founder = session.role == RELIABLE and store.decide("founded", name) == name
    try:
        if is_founder:
            session.found(min_members, timeout)
        else:
            session.enter_first(timeout)
    except BaseException:
        session.close()
        raise


def _endpoint_of_agent() -> str:
    found = [os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT")]
    if None in found:
        raise ConfigError(
            'elastic.join: there is no endpoint; give endpoint="host:port" of the '
            "store of the job, or start this process with python -m "
            "aikido_torch.elastic run."
        )
    return ":".join(map(str, found))


def _fit_of(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    seed: int,
) -> dict[str, str]:
    """Facts that must be equal on all members, as text by name."""
    found = {
        f"parameter {name}": f"{p.dtype} {list(p.shape)}"
        for name, p in model.named_parameters()
    }
    kind = getattr(optimizer, "kind", type(optimizer).__name__)
    is_sharded = isinstance(optimizer, ShardedOptimizer)
    found["optimizer"] = f"sharded {kind}" if is_sharded else kind
    if isinstance(optimizer, ShardedOptimizer):
        found["number of shards"] = str(len(optimizer.shards))
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    found["parameter groups"] = str(sizes)
    found["dataset"] = f"{batches.num_items} items"
    found["batch size"] = str(batches.batch_size)
    found["shuffle"] = str(batches.shuffle)
    found["seed"] = str(seed)
    return found


def _check_fit(
    own: Mapping[str, str], theirs: Mapping[str, str], job: str, endpoint: str
) -> None:
    for name in (*theirs, *own):
        here, there = own.get(name, "missing"), theirs.get(name, "missing")
        if here != there:
            raise ConfigError(
                f"elastic.join: {name} is {here} here but {there} in the job {job!r} "
                f"at {endpoint}; start this process with the model, optimizer and "
                "data of the job, or give another job name."
            )
