# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Elastic jobs on a Ray cluster, with one actor per member."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from torch._C._distributed_c10d import Store, TCPStore

from aikido_torch.elastic._restarts import RestartPolicy
from aikido_torch.elastic._stages import RELIABLE, TRANSIENT, Role
from aikido_torch.elastic._supervisor import Progress, Supervisor
from aikido_torch.errors import ConfigError, UnsupportedError

# The names of this module are not part of the stable interface yet.
__all__: list[str] = []

_POLL_S = 0.1
# Key of the store of a job with the default name: its last step.
_ENDED = "aikido/elastic/job/ended"
_log = logging.getLogger("aikido")
Resources = Mapping[str, float]


def launch(
    train: Callable[..., Any],
    *,
    scaling: tuple[int, int],
    resources: Resources | Mapping[Role, Resources] | None = None,
    reliable: int | None = None,
    max_restarts: int = 3,
    timeout: float = 300.0,
) -> list[Any]:
    """Trains on a Ray cluster with members that come and go.

    ```python
    def train(endpoint, role):
        job = elastic.join(model, optimizer, loader, endpoint=endpoint, role=role)
        for step in job.steps(until=10_000): ...

    aikido_torch.elastic.ray.launch(train, scaling=(2, 8), resources={"GPU": 1})
    ```

    Each member is an actor, which calls `train(endpoint=..., role=...)`. A dead actor
    is replaced, and the new member joins the running job. No living actor is
    restarted. This process serves the store of the job, so it must outlive the job.
    `train` calls `elastic.join` with the default name of the job. A member that returns
    before the job is over has left after an eviction notice, and is replaced too.

    Args:
        train: function of a member; Ray copies it to the actors.
        scaling: lowest and highest number of members. Members for which the cluster has
            no place join later.
        resources: resources of an actor as in Ray, such as {"CPU": 4, "GPU": 1}; or
            such a mapping for each role: {"reliable": ..., "transient": ...}.
        reliable: number of reliable members; None: the lowest number of members. Give
            them resources that only reliable machines have.
        max_restarts: restarts of a member within 10 minutes.
        timeout: limit for the lowest number of members to start, in seconds.

    Returns:
        Results of `train`, one for each member that was there at the end.

    Raises:
        ConfigError: an argument is wrong.
        UnsupportedError: the package ray is not installed.
        AbortedError: too few members are left, since their actors always died.
        TimedOutError: the cluster has no places for the lowest number of members.
    """
    try:
        import ray
    except ImportError as error:
        raise UnsupportedError(
            "elastic.ray.launch: the package ray is not installed. Run: pip install "
            "ray, or install aikido-torch[ray]."
        ) from error
    of_role = {role: _options_of(resources, role) for role in (RELIABLE, TRANSIENT)}
    if not ray.is_initialized():
        ray.init()
    host = ray.util.get_node_ip_address()
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
    cluster = _RayCluster(ray, train, store, f"{host}:{store.port}", of_role)
    supervisor = Supervisor(
        cluster,
        scaling,
        num_reliable=scaling[0] if reliable is None else reliable,
        policy=RestartPolicy(max_restarts=max_restarts),
        timeout_s=timeout,
        tell=lambda line: _log.info("elastic: %s", line),
    )
    try:
        while not supervisor.turn():
            time.sleep(_POLL_S)
    finally:
        supervisor.close()
    return supervisor.results


def _options_of(resources: object, role: Role) -> dict[str, Any]:
    """Options of an actor of Ray."""
    found = resources if resources is not None else {"CPU": 1}
    if isinstance(found, Mapping) and {RELIABLE, TRANSIENT} & {*found}:
        found = found.get(role, {"CPU": 1})
    is_valid = isinstance(found, Mapping) and all(
        isinstance(name, str)
        and isinstance(number, int | float)
        and not isinstance(number, bool)
        and number >= 0
        for name, number in found.items()
    )
    if not is_valid:
        raise ConfigError(
            f"elastic.ray.launch: resources of a {role} member are {found!r}; they "
            'take numbers by name, such as {"CPU": 4, "GPU": 1}, or such a mapping for '
            "each role."
        )
    assert isinstance(found, Mapping)
    rest = {n: v for n, v in found.items() if n not in ("CPU", "GPU")}
    return {
        "num_cpus": found.get("CPU", 0),
        "num_gpus": found.get("GPU", 0),
        "resources": rest,
    }


class _Member:
    """Actor of a member."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)

    def ready(self) -> int:
        """Id of the process, as soon as the actor has a place."""
        return os.getpid()

    def run(self, train: Callable[..., Any], endpoint: str, role: Role) -> Any:
        """Trains until the job is over."""
        return train(endpoint=endpoint, role=role)


class _RayCluster:
    """Actors of a Ray cluster. A member is an actor and the results that it owes."""

    def __init__(
        self,
        ray: Any,
        train: Callable[..., Any],
        store: Store,
        endpoint: str,
        of_role: Mapping[Role, Mapping[str, Any]],
    ) -> None:
        self._ray = ray
        self._train = train
        self._store = store
        self._endpoint = endpoint
        self._of_role = of_role

    def start(self, slot: int, role: Role) -> tuple[Any, Any, Any]:
        """Starts an actor, and asks it for its process and for its result."""
        host, port = self._endpoint.rsplit(":", 1)
        environment = {"AIKIDO_ROLE": role, "MASTER_ADDR": host, "MASTER_PORT": port}
        options = {"max_restarts": 0, "max_task_retries": 0, **self._of_role[role]}
        actor = self._ray.remote(_Member).options(**options).remote(environment)
        ready = actor.ready.remote()  # the first of its two calls
        return actor, ready, actor.run.remote(self._train, self._endpoint, role)

    def look(self, member: tuple[Any, Any, Any]) -> Progress:
        """State of an actor."""
        _, ready, result = member
        if self._is_there(result):
            try:
                return Progress("done", result=self._ray.get(result))
            except self._ray.exceptions.RayError as error:
                return Progress("dead", reason=_first_line(error))
        return Progress("running" if self._is_there(ready) else "pending")

    def stop(self, member: tuple[Any, Any, Any]) -> None:
        """Ends an actor; an actor that is dead already stays dead."""
        self._ray.kill(member[0], no_restart=True)

    def is_over(self) -> bool:
        """True if a member has written that the job is over."""
        return self._store.check([_ENDED])

    def _is_there(self, reference: Any) -> bool:
        return bool(self._ray.wait([reference], timeout=0)[0])


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{type(error).__name__}: {lines[-1]}"[:200]
