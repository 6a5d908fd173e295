# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Versions of the weights of one stage.

Note [versions and autograd]
What a forward computes with must not change before its backward, also not in place,
which is how optimizers step. So the optimizer has the module's own parameters, and a
forward takes others that share their memory: leaves, made once for each version. A
version that is kept (`push`) takes that memory with it: before the next step the own
parameters move to a copy. Leaves that nobody kept are those of the next version, too,
if they still share memory: the schedule sees to it that no backward needs them any
more. Nothing is copied with flush.
"""

from torch import nn

from aikido_torch.errors import InternalError

__all__ = ["Weights"]


class Weights:
    """Of one module, which computes with the version that was asked for last."""

    def __init__(self, module: nn.Module) -> None:
        self._places: list[tuple[nn.Module, str, int]] = []
        self.own: list[nn.Parameter] = []
        numbers: dict[nn.Parameter, int] = {}
        for owner in module.modules():
            for name, parameter in owner._parameters.items():
                if parameter is None:
                    continue
                if parameter not in numbers:
                    numbers[parameter] = len(self.own)
                    self.own.append(parameter)
                self._places.append((owner, name, numbers[parameter]))
        self.newest = 0
        self._kept: dict[int, list[nn.Parameter]] = {}
        self._leaves: list[nn.Parameter] | None = None  # of the newest
        self._has_stepped = False  # since the leaves were looked at
        self._installed: list[nn.Parameter] = self.own

    @property
    def num_versions(self) -> int:
        """How many there are, with the newest."""
        return len(self._kept.keys() | {self.newest})

    def use(self, version: int) -> list[nn.Parameter]:
        """The module computes with that version from now on; returns its leaves."""
        if version in self._kept:
            leaves = self._kept[version]
        elif version == self.newest:
            leaves = self._newest_leaves()
        else:
            raise InternalError(
                f"version {version} of the weights is asked for; there are "
                f"{[*self._kept, self.newest]}. A schedule that is valid asks for none "
                "that is not there."
            )
        self._install(leaves)
        return leaves

    def use_again(self, leaves: list[nn.Parameter]) -> None:
        """The module computes with what `use` returned before."""
        self._install(leaves)

    def push(self, version: int) -> None:
        """Keeps a version, the newest, beside what steps make of it."""
        self._kept[version] = self._newest_leaves()

    def pop(self, version: int) -> None:
        """Ends one that was kept."""
        del self._kept[version]

    def begin_step(self, version: int) -> None:
        """The caller changes `own` in place now, which makes that version."""
        if self.newest in self._kept:
            for parameter in self.own:
                parameter.data = parameter.data.clone()
            self._leaves = None
        self.newest = version
        self._has_stepped = True

    def settle(self) -> None:
        """Between schedules: the module has its own parameters, and is at version 0."""
        self._install(self.own)
        self._kept.clear()
        self._leaves = None
        self.newest = 0

    def _newest_leaves(self) -> list[nn.Parameter]:
        if self._has_stepped and self._leaves is not None:
            # An optimizer may put other memory into a parameter, and so may a forward
            # into a leaf, as layers do that want all of their weights in a row.
            pairs = zip(self._leaves, self.own, strict=True)
            if any(leaf.data_ptr() != p.data_ptr() for leaf, p in pairs):
                self._leaves = None
        self._has_stepped = False
        if self._leaves is None:
            self._leaves = [
                nn.Parameter(parameter.data, requires_grad=parameter.requires_grad)
                for parameter in self.own
            ]
        return self._leaves

    def _install(self, parameters: list[nn.Parameter]) -> None:
        if parameters is self._installed:
            return
        for owner, name, number in self._places:
            owner._parameters[name] = parameters[number]
        self._installed = parameters
