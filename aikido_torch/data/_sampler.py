# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Batches for primaries and backups: the work of each rank in each step."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Dataset, DistributedSampler, Sampler

from aikido_torch.data._arguments import check_flag, check_whole
from aikido_torch.data._choice import Lateness, choose
from aikido_torch.data._epoch_place import EpochPlace
from aikido_torch.data._seeds import SeededDataset, length_of, seed_of
from aikido_torch.data._state import check_same, check_state, wrong_state
from aikido_torch.errors import ConfigError
from aikido_torch.straggler._policies import Policy

__all__ = ["BackupSampler"]

# A state can be loaded only if all of these are equal; otherwise batches would differ.
_SAME = (
    "num_samples",
    "num_primaries",
    "batch_size",
    "batches_per_step",
    "shuffle",
    "seed",
    "drop_last",
)


class BackupSampler(Sampler[list[int]]):
    """Batches of indices, for `DataLoader(dataset, batch_sampler=...)`.

    ```python
    sampler = BackupSampler(dataset, 32, policy)
    loader = DataLoader(dataset, batch_sampler=sampler)
    handle = aikido_torch.ddp.register(model, policy=policy, sampler=sampler, ...)
    to_skip = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            if to_skip:  # the other ranks did that step meanwhile
                to_skip -= 1
                continue
            ...  # one step
            to_skip = handle.catch_up().batches_to_skip
    ```

    The last `policy.backups` ranks are backups, and the other ranks are primaries. A
    primary gets the batches of a `DistributedSampler` over the primaries. A backup gets
    in each step the batch of one primary. It chooses an excluded primary first, then a
    primary that was late in recent steps, and otherwise each primary in turn. With
    mode="substitute" it gets batches of the whole dataset, in its own order. Without
    backups, and with mode="n_plus_b", each of the n ranks gets the batches of a
    `DistributedSampler` over all ranks.

    The batch of a step is chosen when the loader takes it, from the outcomes that all
    ranks know at that time. So a loader that takes batches ahead needs `lookahead`. A
    rank skips as many batches as `catch_up` says, also if they reach into the next
    epoch. Each step checks at its beginning that the loader has given the batch of that
    step.

    A stopped training can be resumed, in the middle of an epoch too:

    ```python
    torch.save({"sampler": sampler.state_dict(), ...}, file)  # of one rank

    sampler = BackupSampler(dataset, 32, policy)  # on all ranks
    sampler.load_state_dict(torch.load(file)["sampler"])
    handle = aikido_torch.ddp.register(model, policy=policy, sampler=sampler, ...)
    for epoch in range(sampler.epoch, epochs): ...  # as above
    ```

    The first epoch then begins with the batch of the first step that was not done.
    Steps, data shards, batches and seeds are the same as in a training without a stop.
    The state counts finished steps, not batches that a loader has taken ahead. A
    finished epoch has no remaining batches. If the loop does some work at the end of
    each epoch and had done it before the stop, begin with the next epoch number. If the
    loader saves its own state, it must not restore the sampler a second time.

    Args:
        dataset: a dataset with a length. If it is a `SeededDataset`, `set_epoch` is
            passed on.
        batch_size: samples in a batch of one rank.
        policy: the policy of `register`.
        num_ranks, rank: None means those of the default group.
        shuffle, seed, drop_last: as in `DistributedSampler`, the same on all ranks. The
            seeds of the steps are computed from `seed` too; see `seed_of`.
        lookahead: number of batches that the loader takes ahead of the step that uses
            them: num_workers * prefetch_factor of a DataLoader (its default is 2), 0
            with num_workers=0.
        batches_per_step: more than one if gradients are accumulated; all batches of a
            step are of one data shard.

    Attributes:
        epoch: the epoch that was last set or loaded.
        num_samples: number of samples in the dataset.
        num_primaries, num_backups: number of primaries, number of backups.

    Raises:
        ConfigError: an argument is wrong; the text has the valid values.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        policy: Policy,
        *,
        num_ranks: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        lookahead: int = 0,
        batches_per_step: int = 1,
    ) -> None:
        self.num_samples = length_of("BackupSampler", dataset)
        if not isinstance(policy, Policy):
            raise ConfigError(
                f"BackupSampler: policy is {policy!r}; it takes ActiveBackup(...), as "
                "register does."
            )
        self.num_ranks = dist.get_world_size() if num_ranks is None else num_ranks
        self.rank = dist.get_rank() if rank is None else rank
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("batches_per_step", batches_per_step, 1),
            ("lookahead", lookahead, 0),
            ("num_ranks", self.num_ranks, 1),
            ("rank", self.rank, None),
            ("seed", seed, None),
        ):
            check_whole("BackupSampler", name, value, least)
        check_flag("BackupSampler", "shuffle", shuffle)
        check_flag("BackupSampler", "drop_last", drop_last)
        self.dataset = dataset
        self.batch_size = batch_size
        self.policy = policy
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        self.lookahead = lookahead
        self.batches_per_step = batches_per_step
        is_plain = self.mode == "n_plus_b"
        # A negative number is refused by `register`, on all ranks.
        self.num_backups = 0 if is_plain else max(0, getattr(policy, "backups", 0))
        self.num_primaries = self.num_ranks - self.num_backups
        self._check_ranks()
        self._order = _Order(dataset, self.num_primaries, shuffle, seed, drop_last)
        self._place = EpochPlace(
            num_batches=-(-self._order.of_each // batch_size),
            batches_per_step=batches_per_step,
            lookahead=lookahead,
        )
        if self._place.num_batches == 0:
            raise ConfigError(
                f"BackupSampler: {self.num_samples} samples are less than one "
                f"for each of {self.num_primaries} primaries, with drop_last=True."
            )
        self._lateness = Lateness()
        self._chosen: dict[int, int | None] = {}
        self._look: Callable[[], Callable[[], None] | None] = lambda: None

    @property
    def mode(self) -> str:
        """`mode` of the policy."""
        return str(getattr(self.policy, "mode", "shadow"))

    @property
    def is_backup(self) -> bool:
        """True if this rank is a backup."""
        return self.rank >= self.num_primaries

    def _check_ranks(self) -> None:
        if not 0 <= self.rank < self.num_ranks:
            raise ConfigError(
                f"BackupSampler: rank is {self.rank} but there are ranks 0 to "
                f"{self.num_ranks - 1}."
            )
        if self.num_backups > self.num_primaries:
            raise ConfigError(
                f"BackupSampler: {self.num_backups} backups leave "
                f"{max(self.num_primaries, 0)} primaries of {self.num_ranks} ranks; "
                "there must be as many primaries as backups at least."
            )
        if self.mode == "replicate" and self.num_backups != self.num_primaries:
            raise ConfigError(
                'BackupSampler: mode is "replicate", which takes as many backups as '
                f"primaries, but {self.num_backups} of {self.num_ranks} ranks are "
                "backups."
            )

    # ---- for the loop ----

    def set_epoch(self, epoch: int, *, first_step: int | None = None) -> None:
        """Must be called before each epoch, with a new number, on all ranks.

        Args:
            epoch: number of the epoch; it changes the order, as in
                `DistributedSampler`.
            first_step: first step of the epoch. None is right if epochs follow each
                other, and all ranks left an unfinished epoch at the same step.

        Raises:
            ConfigError: an argument is not a whole number from 0 on.
        """
        check_whole("BackupSampler", "epoch", epoch, 0)
        if first_step is not None:
            check_whole("BackupSampler", "first_step", first_step, 0)
        self.epoch = epoch
        self._place.given_first_step = first_step
        if isinstance(self.dataset, SeededDataset):
            self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        """Number of batches of one whole epoch on each rank."""
        return self._place.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        self._begin_epoch()
        order = self._order.of_epoch(self.epoch)
        own = self._own_order() if self._is_free() else None
        place = self._place
        for batch in range(place.num_taken, place.num_batches):
            step = place.first_step + batch // self.batches_per_step
            data_shard = self._choose(step)
            part = order[data_shard :: self.num_primaries] if own is None else own
            place.num_taken += 1
            begin = batch * self.batch_size
            end = min(begin + self.batch_size, self._order.of_each)
            yield part[begin:end].tolist()

    def shard_of(self, step: int) -> int | None:
        """The data shard of this rank's batches in that step, one of the last 10,000.

        For a primary it is its own rank. None for a backup with mode="substitute".

        Raises:
            ConfigError: this rank is a backup, and its batch of that step has not been
                taken.
        """
        if not self.is_backup:
            return self.rank
        if step not in self._chosen:
            raise ConfigError(
                f"BackupSampler: no batch was taken for step {step} on rank "
                f"{self.rank}, a backup, so it has no data shard; take its batches "
                "from this sampler, and pass over as many as catch_up says."
            )
        return self._chosen[step]

    def choice(self, step: int) -> dict[int, int]:
        """The data shard of each backup in that step, the same on every rank.

        It depends only on the outcomes of earlier steps. A dead rank that only some
        ranks know of does not change it. Empty with mode="substitute" and without
        backups.
        """
        if self.num_backups == 0 or self.mode == "substitute":
            return {}
        self._update()
        known = step - self._steps_ahead()
        return choose(
            step,
            self._lateness.before(known),
            num_primaries=self.num_primaries,
            num_backups=self.num_backups,
            out=self._lateness.out_at(known - 1),
            mode=self.mode,
        )

    def begin_step(self, step: int) -> int:
        """Begins a step of this rank, with the batch that the loader gave for it.

        `register` calls it. Returns the seed of the step's random numbers.

        Raises:
            ConfigError: the loader is at another step, so the batch would be counted
                for the wrong data shard.
        """
        self._check_place(step)
        data_shard = self.shard_of(step)
        return seed_of(
            self.seed,
            self._place.epoch,
            step,
            self.rank if data_shard is None else data_shard,
        )

    def batches_in(self, first: int, end: int) -> int:
        """Number of batches from step `first` to before `end`, across epochs too.

        The last step of an epoch may have fewer batches than `batches_per_step`.
        """
        return self._place.batches_in(first, end)

    def is_at(self, step: int) -> bool:
        """True if the loader has given the batches of that step, and no later ones."""
        return self._place.is_at(step)

    # ---- for a training that goes on later ----

    @property
    def steps(self) -> int:
        """Number of finished steps since the beginning of the training."""
        self._update()
        return self._lateness.steps

    def state_dict(self) -> dict[str, Any]:
        """Position of the training, and recently late ranks; equal on every rank.

        Call it between two steps. The state has plain numbers only, so torch.load reads
        it with weights_only=True, and JSON can hold it.
        """
        return {
            "steps": self.steps,
            "epoch": self._place.epoch,
            "first_step": self._place.first_step,
            "late": self._lateness.state_dict()["late"],
            "of": {name: getattr(self, name) for name in _SAME},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes an earlier training, from the `state_dict` of any one of its ranks.

        Call it on all ranks, with the state of one rank, before `register`. The next
        iterator gives the rest of the epoch. If `set_epoch` is called with another
        epoch before, it gives all of that epoch.

        Raises:
            ConfigError: the state is of a sampler that divides the data in another way,
                or this sampler is already in use.
        """
        _check_state(state)
        own = {name: getattr(self, name) for name in _SAME}
        check_same("BackupSampler", "batches", own, state["of"])
        if self._look() is not None:
            raise ConfigError(
                "BackupSampler: a state is to be loaded while register has this "
                "sampler, and its handle counts steps already; load before register."
            )
        self._lateness = Lateness()
        self._lateness.load_state_dict(state)
        self._lateness.steps = int(state["steps"])
        self._chosen.clear()
        epoch = int(state["epoch"])
        self._place.resume(
            epoch, first_step=int(state["first_step"]), steps=self._lateness.steps
        )
        self.set_epoch(epoch)

    # ---- for `register`, which knows how steps ended ----

    def record(
        self,
        step: int,
        late: Iterable[int] = (),
        out: Iterable[int] = (),
        *,
        is_own: bool = True,
    ) -> None:
        """Records how a step ended. `register` calls it; other loops must call it.

        Args:
            step: number of the step, from 0; the same on all ranks.
            late: data shards that were missing or came from a backup in any call of the
                step.
            out: excluded ranks, from `outcome().out` of any call. Backups compute their
                data shards.
            is_own: False if this rank did not do that step itself, but caught up.
        """
        self._lateness.add(step, [d for d in late if d < self.num_primaries], out)
        if is_own:
            self._place.on_own_step(step)

    def follow(self, look: Callable[[], None]) -> None:
        """Sets a function to call before each choice; it must `record` new steps."""
        self._look = weakref.WeakMethod(look)

    def history(self) -> dict[str, Any]:
        """Recently late ranks; the choices of the next steps depend on them."""
        self._update()
        return self._lateness.state_dict()

    def take_history(self, history: Mapping[str, Any]) -> None:
        """Replaces the history by that of a rank of this training that is ahead.

        The position of this rank in its data does not change.
        """
        self._lateness.load_state_dict(history)

    # ---- inside ----

    def _is_free(self) -> bool:
        return self.is_backup and self.mode == "substitute"

    def _own_order(self) -> torch.Tensor:
        generator = torch.Generator()
        generator.manual_seed(seed_of(self.seed, self.epoch, 0, self.rank))
        return torch.randperm(self._order.length, generator=generator)

    def _steps_ahead(self) -> int:
        return -(-self.lookahead // self.batches_per_step)

    def _update(self) -> None:
        if look := self._look():
            look()

    def _begin_epoch(self) -> None:
        self._update()
        now, place = self._lateness.steps, self._place
        first = place.take_first_step(self.epoch, now)
        if not place.own_steps <= first <= now:
            last_own = place.own_steps - 1
            raise ConfigError(
                f"BackupSampler: epoch {self.epoch} is to begin at step {first}, but "
                f"rank {self.rank} has come to step {now} and did "
                f"{f'step {last_own}' if last_own >= 0 else 'none'} itself; give the "
                "first step of the epoch, the same on all ranks: set_epoch(epoch, "
                "first_step=...)."
            )
        place.begin(self.epoch, first)

    def _choose(self, step: int) -> int:
        if not self.is_backup:
            return self.rank
        if self._is_free():
            self._chosen[step] = None
            return 0
        if step in self._chosen:  # not the first batch of the step
            chosen = self._chosen[step]
            assert chosen is not None
            return chosen
        self._update()
        known, ahead = self._lateness.steps, self._steps_ahead()
        if known < step - ahead:
            raise ConfigError(
                f"BackupSampler: the batch of step {step} is taken on rank {self.rank} "
                f"while {known} steps are over, and lookahead is {self.lookahead} "
                "batches: give lookahead=num_workers * prefetch_factor of the loader, "
                "and give the sampler to aikido_torch.ddp.register, or tell it how "
                "each step ended by record(step, late)."
            )
        data_shard = self.choice(step)[self.rank]
        self._chosen[step] = data_shard
        if len(self._chosen) > 10_000 + self.lookahead:
            del self._chosen[next(iter(self._chosen))]
        return data_shard

    def _check_place(self, step: int) -> None:
        if self.is_at(step):
            return
        place = self._place
        places = place.numbers_at(step)
        expected = "none: the step is not in this epoch"
        if places:
            expected = f"{places[0]} to {places[-1]}" if places[1:] else str(places[0])
        raise ConfigError(
            f"BackupSampler: step {step} begins on rank {self.rank}, and of epoch "
            f"{place.epoch}, which began at step {place.first_step} and has "
            f"{place.num_batches} batches, the loader has taken {place.num_taken}; "
            f"expected {expected}, with batches_per_step={self.batches_per_step} and "
            f"lookahead={self.lookahead}. Give the sampler as batch_sampler=, "
            "lookahead as num_workers * prefetch_factor, pass over as many batches as "
            "catch_up() says, and if an epoch was left before its end, "
            "set_epoch(epoch, first_step=...)."
        )


def _check_state(state: Mapping[str, Any]) -> None:
    numbers = ("steps", "epoch", "first_step")
    check_state("BackupSampler", state, numbers=numbers, others=("late",))
    try:
        Lateness().load_state_dict(state)
    except (TypeError, ValueError):
        raise wrong_state("BackupSampler", f"has late={state['late']!r}") from None


class _Order(DistributedSampler[Any]):
    """The indices of all N data shards: data shard d is at d, d + N, d + 2N, ...

    A DistributedSampler for one rank, so it gives all indices. The number of indices is
    cut or filled up to a multiple of N, as for N ranks.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_shards: int,
        shuffle: bool,
        seed: int,
        drop_last: bool,
    ) -> None:
        super().__init__(
            dataset,
            num_replicas=num_shards,
            rank=0,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
        )
        self.length = len(dataset)  # type: ignore[arg-type]
        self.of_each = self.num_samples
        self.num_replicas, self.num_samples = 1, self.total_size

    def of_epoch(self, epoch: int) -> torch.Tensor:
        self.set_epoch(epoch)
        return torch.tensor(list(self))
