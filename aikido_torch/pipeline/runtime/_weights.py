# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Versions of the weights of one stage.

Note [versions and autograd]
The parameters of a forward must not change before its backward, not even in place, but
optimizers change parameters in place. So the optimizer has the module's own parameters,
and a forward uses other leaves that share their memory, made once for each version. A
version that is kept (`push`) keeps that memory: before the next step the own parameters
move to a copy. Leaves that were not kept serve for the next version too, if they still
share memory: the schedule guarantees that no backward needs their old values. With
flush nothing is copied.
"""

from torch import nn

from aikido_torch.errors import InternalError

__all__ = ["Weights"]


class Weights:
    """Versions of one module's weights; the module computes with the last requested
    one.
    """

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
        self._leaves: list[nn.Parameter] | None = None  # leaves of the newest version
        # True if a step was done since the leaves were checked.
        self._has_stepped = False
        self._installed: list[nn.Parameter] = self.own

    @property
    def num_versions(self) -> int:
        """Number of versions in memory, including the newest."""
        return len(self._kept.keys() | {self.newest})

    def use(self, version: int) -> list[nn.Parameter]:
        """Makes the module compute with that version; returns its leaves."""
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
        """Makes the module compute with leaves that `use` returned before."""
        self._install(leaves)

    def push(self, version: int) -> None:
        """Keeps the newest version, so that later steps do not change it."""
        self._kept[version] = self._newest_leaves()

    def pop(self, version: int) -> None:
        """Drops a version that was kept."""
        del self._kept[version]

    def begin_step(self, version: int) -> None:
        """The caller is about to change `own` in place, which makes version
        `version`.
        """
        if self.newest in self._kept:
            for parameter in self.own:
                parameter.data = parameter.data.clone()
            self._leaves = None
        self.newest = version
        self._has_stepped = True

    def settle(self) -> None:
        """Between runs: the module gets its own parameters back, as version 0."""
        self._install(self.own)
        self._kept.clear()
        self._leaves = None
        self.newest = 0

    def _newest_leaves(self) -> list[nn.Parameter]:
        if self._has_stepped and self._leaves is not None:
            # An optimizer may replace the memory of a parameter, and a forward that of
            # a leaf. Layers that need their weights in one contiguous block do the
            # latter.
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
