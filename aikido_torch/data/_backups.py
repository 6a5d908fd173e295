# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Data shards of backups and seeds of steps, as a sampler adds them to a handle."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from aikido_torch import _C
from aikido_torch.data._sampler import BackupSampler
from aikido_torch.data._seeds import SeededDataset, seed_torch
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, Policy

__all__ = ["Backups", "check_sampler", "layout_of_sampler"]

# The value by which the native module means "no data shard".
_NO_DATA_SHARD = -1
_SAME = (
    "policy",
    "num_samples",
    "batch_size",
    "batches_per_step",
    "shuffle",
    "seed",
    "drop_last",
    "lookahead",
    "epoch",
)
# Steps with a late rank that an error message shows at most.
_MOST_TOLD = 32


def has_stand_ins(policy: Policy) -> bool:
    """True if the contribution of one rank may count for the data of another rank."""
    if not isinstance(policy, ActiveBackup):
        return False
    return policy.backups > 0 and policy.mode != "n_plus_b"


def layout_of_sampler(sampler: object) -> dict[str, str]:
    """Facts about the sampler that must be equal on all ranks."""
    if not isinstance(sampler, BackupSampler):
        return {"sampler": "none" if sampler is None else type(sampler).__name__}
    dataset = sampler.dataset
    told = {name: getattr(sampler, name) for name in _SAME}
    told |= {
        "dataset.seed": dataset.seed if isinstance(dataset, SeededDataset) else "none",
        # These differ if load_state_dict was called on some of the ranks only.
        "steps": sampler.steps,
        "history": sampler.history()["late"][-_MOST_TOLD:],
    }
    return {"sampler": "BackupSampler"} | {
        f"sampler.{name}": repr(value) for name, value in told.items()
    }


def check_sampler(
    sampler: object,
    policy: Policy,
    *,
    place: tuple[int, int],
    batches_per_step: int,
    late: str,
    state: Mapping[str, object],
) -> None:
    """Refuses arguments that would count a batch for the wrong data shard.

    Args:
        place: rank and size of the group.
        sampler, policy, batches_per_step, late, state: the arguments of `register`.

    Raises:
        ConfigError: an argument does not fit the policy; the text names the remedy.
    """
    for name, part in state.items():
        if isinstance(part, BackupSampler):
            raise ConfigError(
                f"register: state[{name!r}] is a BackupSampler; what a copy needs of "
                "the one that is given as sampler it has already, and where a rank is "
                "in its data is not copied: leave it out of state."
            )
    if has_stand_ins(policy) and late == "carry":
        raise ConfigError(
            'register: late is "carry" with a policy ActiveBackup: what a primary adds '
            "from an earlier step its backup has not got, so they would give different "
            'gradients for the same data; take late="drop".'
        )
    if sampler is None and not has_stand_ins(policy):
        return
    if not isinstance(sampler, BackupSampler):
        kind = "None" if sampler is None else f"a {type(sampler).__name__}"
        raise ConfigError(
            f"register: sampler is {kind}, which does not know the data shards; with "
            f"{policy!r} the batches of all ranks come from "
            "aikido_torch.data.BackupSampler(dataset, batch_size, policy): give "
            "that one to the DataLoader as batch_sampler and to register as sampler."
        )
    for name, own, ours in (
        ("policy", sampler.policy, policy),
        ("batches_per_step", sampler.batches_per_step, batches_per_step),
        ("rank", sampler.rank, place[0]),
        ("num_ranks", sampler.num_ranks, place[1]),
    ):
        if own != ours:
            raise ConfigError(
                f"register: the sampler was made with {name} {own!r}, but here it is "
                f"{ours!r}; give both the same."
            )


def late_in(outcome: _C.Outcome) -> set[int]:
    """Data shards that their primary did not contribute, or contributed in part."""
    return {*outcome.skipped, *(data_shard for data_shard, _ in outcome.stand_ins)}


class Backups:
    """Data shards and seeds of one handle. For the training thread only.

    Args:
        sampler: None means that data shards are not distinguished and nothing is
            seeded.
        policy: policy of the handle.
        place: rank and size of the group.
    """

    def __init__(self, sampler: object, policy: Policy, place: tuple[int, int]) -> None:
        self._given, self._place = sampler, place
        self.sampler = sampler if isinstance(sampler, BackupSampler) else None
        self._has_stand_ins = has_stand_ins(policy)
        self._rank, size = place
        self._num_primaries = size
        if isinstance(policy, ActiveBackup) and self._has_stand_ins:
            self._num_primaries = size - policy.backups
        self._is_backup = self._rank >= self._num_primaries
        self._begun = -1  # The last step whose random numbers were seeded,
        self._has_trained = False  # and whether a forward in train() mode began it.
        self.first_step = 0 if self.sampler is None else self.sampler.steps

    def check(
        self,
        policy: Policy,
        state: Mapping[str, object],
        *,
        batches_per_step: int,
        late: str,
    ) -> None:
        """Calls `check_sampler` with the constructor's arguments."""
        check_sampler(
            self._given,
            policy,
            place=self._place,
            batches_per_step=batches_per_step,
            late=late,
            state=state,
        )

    def install(
        self,
        model: torch.nn.Module,
        look: Callable[[], None],
        on_forward: Callable[[torch.nn.Module, object], None],
    ) -> None:
        """Installs the sampler's callback and the forward hook.

        Args:
            model: its forwards are observed.
            look: brings the sampler up to date.
            on_forward: hook that calls `begin_forward`.
        """
        if self.sampler is not None:
            self.sampler.follow(look)
            model.register_forward_pre_hook(on_forward)

    def begin_forward(self, step: int, module: torch.nn.Module) -> None:
        """Called before each forward; the first forward of a step seeds the generators.

        A forward without gradients belongs to no step. A forward in eval() mode may
        belong to the step, if the model is trained in that mode, or may be an
        evaluation. Therefore it begins the step only if the loader has taken the batch
        of this step. A later forward in train() mode of the same step seeds again.
        `begin_backward` catches the remaining case.
        """
        if self.sampler is None or not torch.is_grad_enabled():
            return
        if self._begun == step and (self._has_trained or not module.training):
            return
        if module.training or self.sampler.is_at(step):
            self._begin(self.sampler, step, module.training)

    def begin_backward(self, step: int) -> None:
        """Called before the gradients of a step are reduced; begins it if needed."""
        if self.sampler is not None and self._begun != step:
            self.sampler.begin_step(step)

    def _begin(self, sampler: BackupSampler, step: int, is_training: bool) -> None:
        seed = sampler.begin_step(step)
        self._begun, self._has_trained = step, is_training
        seed_torch(seed)

    def own_data_shard(self, step: int) -> int:
        """Data shard of this rank's gradient, in the form that calls of the engine
        take.
        """
        if not self._is_backup or self.sampler is None:
            return _NO_DATA_SHARD
        data_shard = self.sampler.shard_of(step)
        return _NO_DATA_SHARD if data_shard is None else data_shard

    def replayed_data_shard(self, step: int) -> int:
        """Data shard for a replayed step; this rank has received its result already.

        This rank contributes nothing to the call, but the call takes a data shard.
        """
        if not self._is_backup or self.sampler is None:
            return _NO_DATA_SHARD
        if self.sampler.mode == "substitute":
            return _NO_DATA_SHARD
        return self.sampler.choice(step)[self._rank]

    def prepare_strict(self, buffer: torch.Tensor) -> bool:
        """Prepares the contribution to a step that waits for all ranks.

        Each data shard must count once, so backups contribute zeros.

        Args:
            buffer: the flat gradients of one bucket, changed in place.

        Returns:
            True if the ranks must add up `buffer`; False if they must average it.
        """
        if not self._has_stand_ins:
            return False
        if self._is_backup:
            buffer.zero_()
        else:
            buffer.div_(self._num_primaries)
        return True

    def end_step(self, step: int, *, is_own: bool) -> None:
        """A step has passed. The ranks that were late in it are not known yet."""
        if self.sampler is not None:
            self.sampler.record(step, is_own=is_own)

    def add(self, step: int, outcome: _C.Outcome) -> None:
        """Records the late and excluded ranks of one call of a step."""
        if self.sampler is None:
            return
        late = late_in(outcome)
        if late or outcome.out:
            self.sampler.record(step, late, outcome.out, is_own=False)

    def batches_in(
        self, first: int, end: int, *, per_step: int, missing: int = 0
    ) -> int:
        """Batches that the loader has for the steps from `first` up to but excluding
        `end`.

        Args:
            per_step: batches of a step.
            missing: number of batches that shorter steps lack. With a sampler it is not
                used: the sampler knows these steps.
        """
        if self.sampler is None:
            return (end - first) * per_step - missing
        return self.sampler.batches_in(first, end)

    def states(self) -> dict[str, Any]:
        """State of the sampler that is sent with a copy of the training state."""
        if self.sampler is None:
            return {}
        return {"sampler of register": _History(self.sampler)}


class _History:
    """The part of a sampler's state that is equal on all ranks: recent late ranks."""

    def __init__(self, sampler: BackupSampler) -> None:
        self._sampler = sampler

    def state_dict(self) -> dict[str, Any]:
        return self._sampler.history()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._sampler.take_history(state_dict)
