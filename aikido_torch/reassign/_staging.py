# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Items whose owner reads them, and sends them to the rank that takes them.

Note [staged items]
A rank reads all items of its list before it begins the step. So each item that a helper
can get is here. The rank keeps the data of an item until the contribution that holds
the item counts. It learns of a loss from the outcome of the step, or from a message of
the helper that may be some steps late. So it keeps items that helpers took for
`_KEPT_STEPS` more steps. A lost item without data here is dropped and counted.
"""

import pickle
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from aikido_torch.data._seeds import item_seed, seed_all
from aikido_torch.errors import ConfigError, InternalError, TimedOutError
from aikido_torch.reassign._plan import Item, Plan, label_of, place_of
from aikido_torch.reassign._training import Training

__all__ = [
    "NotHereError",
    "StagedItems",
    "Stream",
    "StreamItems",
    "StreamPlan",
    "check_stage",
]

# Steps after its own in which an item may still come back from a helper.
_KEPT_STEPS = 16
# Seconds that a helper waits for the data of an item.
_PATIENCE_S = 5.0
_LOOK_S = 0.002  # of a rank that waits for the end of other streams

# Data of an item of another rank, by owner, label and deadline in seconds; or None.
_Fetch = Callable[[int, int, float], bytes | None]


def check_stage(
    stage: object,
    dataset: object,
    replay: object,
    cost: object,
    *,
    drop_last: bool,
) -> bool:
    """Checks arguments of `StepLoader`. Returns True if the dataset is a stream.

    Raises:
        ConfigError: `stage` is wrong, or excludes another argument.
    """
    if stage not in (None, "send"):
        raise ConfigError(f'StepLoader: stage is {stage!r}; it takes "send" or None.')
    if stage is None:
        return False
    if replay is not None:
        raise ConfigError(
            'StepLoader: replay is given and stage is "send"; a rank of a replay reads '
            "all samples itself, so leave stage out, and give a dataset with a length."
        )
    if not isinstance(dataset, IterableDataset):
        return False
    if cost is not None:
        raise ConfigError(
            "StepLoader: cost is given, and the dataset is iterable; its samples are "
            "not known before they are read, so leave cost out."
        )
    if not drop_last:
        raise ConfigError(
            "StepLoader: drop_last is False, and the dataset is iterable; samples at "
            "the end of a stream that fill no micro-batch are left out. Choose a "
            "micro_batch_size that divides the streams, and leave drop_last out."
        )
    return True


class NotHereError(Exception):
    """The owner of an item has not sent its data in time."""


class StagedItems:
    """Reader of a step's items, as `ItemReader`. For the training thread only.

    Args:
        read: reads an own item.

    Attributes:
        fetch: gets the data of items of other ranks.
    """

    def __init__(self, read: Callable[[Item], Any]) -> None:
        self._read = read
        self.fetch: _Fetch = lambda owner, label, timeout_s: None
        self._lock = threading.Lock()  # protects _data
        self._data: dict[int, Any] = {}  # by label
        # Labels of steps whose outcome is known, to be forgotten after more steps.
        self._old: dict[int, list[int]] = {}

    def expect(self, items: Sequence[Item], likely: Sequence[Item] = ()) -> None:
        """Reads the own items of the next step that are not here yet."""
        for item in items:
            if item.label not in self._data:
                self.put(item.label, self._read(item))

    def put(self, label: int, data: Any) -> None:
        """Adds the data of an own item."""
        with self._lock:
            self._data[label] = data

    def of(self, labels: Iterable[int]) -> dict[int, Any]:
        """Data of own items by label, of those that are here."""
        return {label: self._data[label] for label in labels if label in self._data}

    def has(self, label: int) -> bool:
        """True if the data of this own item is here."""
        return label in self._data

    def read(self, item: Item, owner: int | None = None) -> Any:
        """Data of an item of this rank (None), or of `owner`.

        Raises:
            NotHereError: another owner has not sent the data within 5 s, or is lost.
        """
        if owner is None:
            return self._data[item.label]
        found = self.fetch(owner, item.label, _PATIENCE_S)
        if found is None:
            epoch, number = place_of(item.label)
            raise NotHereError(
                f"StepLoader: rank {owner} has not sent the data of its micro-batch "
                f"{number} of epoch {epoch} within {_PATIENCE_S:g} s, so this rank "
                "ends its step. Its other micro-batches are issued again."
            )
        return pickle.loads(found)

    def pickled(self, label: int) -> bytes | None:
        """Data of an own item as bytes; None: it is not here. Any thread."""
        with self._lock:
            if label not in self._data:
                return None
            data = self._data[label]
        return pickle.dumps(data, protocol=pickle.HIGHEST_PROTOCOL)

    def on_outcome(
        self, step: int, counted: Iterable[int], given: Collection[int]
    ) -> None:
        """The outcome of a step is known.

        Args:
            step: its number.
            counted: own items that this rank computed and that are in the result.
            given: own items that helpers took.
        """
        self._old[step] = [*given]
        with self._lock:
            for label in counted:
                self._data.pop(label, None)

    def forget(self, now: int, waiting: Collection[int]) -> None:
        """Forgets items that can no longer come back.

        Args:
            now: number of the present step.
            waiting: own items that will be issued again.
        """
        over = [step for step in self._old if step < now - _KEPT_STEPS]
        labels = {label for step in over for label in self._old.pop(step)}
        again = {label for each in self._old.values() for label in each}
        with self._lock:
            for label in labels - again - {*waiting}:
                self._data.pop(label, None)


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamPlan(Plan):
    """Items of the streams of all ranks, without costs.

    Item number k * num_ranks + r of an epoch is the micro-batch k of the stream of rank
    r. All items are whole.
    """

    def indices_of(self, label: int) -> list[int]:
        """Samples of an item, by their place in the stream of its owner."""
        first = place_of(label)[1] // self.num_ranks * self.micro_batch_size
        return [*range(first, first + self.micro_batch_size)]

    def count_of(self, rank: int) -> int:
        """Items with which a rank begins a step; equal on all ranks up to one."""
        each, rest = divmod(self.items_per_step, self.num_ranks)
        return each + (rank < rest)


class Stream:
    """Micro-batches of the stream of one rank. For the training thread only.

    Args:
        dataset: an iterable dataset.
        micro_batch_size: samples of an item.
        collate: makes the data of an item from the list of its samples.
        seed: of the random numbers of the dataset.
        num_workers: processes that read, as in a DataLoader; 0: this thread reads.

    Attributes:
        labels: items of the present step.
        has_ended: True if the stream has no further item in this epoch.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        micro_batch_size: int,
        collate: Callable[[list[Any]], Any],
        seed: int,
        num_workers: int = 0,
    ) -> None:
        self.dataset = dataset
        self._seed, self._num_workers = seed, num_workers
        self._loader = DataLoader(
            dataset,
            batch_size=micro_batch_size,
            drop_last=True,
            collate_fn=collate,
            num_workers=num_workers,
            worker_init_fn=_begin_process if num_workers else None,
        )
        self._iterator: Any = None
        self._epoch = self._rank = self._size = self._num_read = 0
        self.labels: list[int] = []
        self.has_ended = False

    def begin(self, epoch: int, rank: int, size: int) -> None:
        """Begins an epoch, or continues a loaded one."""
        if self._iterator is not None or epoch != self._epoch:
            self._num_read = 0
        self._epoch, self._rank, self._size = epoch, rank, size
        self.labels, self.has_ended = [], False
        self._seed_next()
        self._iterator = iter(self._loader)

    def stage(self, count: int, put: Callable[[int, Any], None]) -> None:
        """Reads the items of the next step: `count`, or less at the end."""
        self.labels = []
        while len(self.labels) < count and not self.has_ended:
            label = self._seed_next()
            data = next(self._iterator, self)
            if data is self:
                self.has_ended = True
                return
            self._num_read += 1
            self.labels.append(label)
            put(label, data)

    def _seed_next(self) -> int:
        number = self._num_read * self._size + self._rank
        seed_all(item_seed(self._seed, self._epoch, number))
        return label_of(self._epoch, number)

    def read(self, item: Item) -> Any:
        """Raises InternalError: an item of a stream is read once, by `stage`."""
        raise InternalError(
            f"StepLoader: item {item.label} of a stream is not here any more. Please "
            "report this defect."
        )

    def state(self) -> dict[str, Any]:
        """State of the dataset.

        Raises:
            ConfigError: it has none, or processes have copies of the dataset.
        """
        self._check_state()
        dataset: Any = self.dataset
        return {"dataset": dataset.state_dict(), "num_read": self._num_read}

    def load(self, epoch: int, state: dict[str, Any]) -> None:
        """Loads a result of `state`, before the first `begin`.

        Raises:
            ConfigError: as `state`.
        """
        self._check_state()
        dataset: Any = self.dataset
        dataset.load_state_dict(state["dataset"])
        self._epoch, self._num_read = epoch, state["num_read"]

    def _check_state(self) -> None:
        kind = type(self.dataset).__name__
        for name in ("state_dict", "load_state_dict"):
            if not callable(getattr(self.dataset, name, None)):
                raise ConfigError(
                    f"StepLoader: the iterable dataset, of type {kind}, has no {name}, "
                    "so its place in the stream cannot be saved; give the dataset "
                    "state_dict and load_state_dict."
                )
        if self._num_workers:
            raise ConfigError(
                f"StepLoader: {self._num_workers} processes have copies of the "
                f"iterable dataset, of type {kind}, so its place in the stream cannot "
                "be saved; use num_workers=0."
            )


class StreamItems:
    """Own items of a rank that reads a stream, instead of `Survivors`.

    An epoch ends when the streams of all ranks have ended. A rank whose stream has
    ended begins steps with an empty list. Before such a step it waits until another
    rank has items for the step, or until all streams have ended.
      A rank tells the number of steps for which it has had items before it begins a
    step, and that its stream has ended as soon as it knows. It waits for all other
    ranks before it ends an epoch. So all ranks find the same number of steps. The
    stream of a dead rank has ended.

    Args:
        training: the registered model.
        stream: the stream of this rank.
        count: items with which this rank begins a step.
        put: takes label and data of each item.
        clock, wait: seconds.
    """

    def __init__(
        self,
        training: Training,
        stream: Stream,
        count: int,
        put: Callable[[int, Any], None],
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._training, self._stream = training, stream
        self._count, self._put = count, put
        self._clock, self._pause = clock, wait
        self._rank, self._size = training.place
        self._run = -1  # number of the iteration, the same on all ranks
        self._num_steps = 0  # with own items, up to the last one of them
        self._step = -1  # of `stream.labels`

    def begin_epoch(self, epoch: int) -> None:
        """Begins to read the stream from its start, or where a loaded state ends."""
        self._run += 1
        self._num_steps, self._step = 0, -1
        self._stream.begin(epoch, self._rank, self._size)

    def find_end(self, step: int) -> int | None:
        """Reads the items of step `step` of the epoch.

        Returns:
            Number of steps of the epoch; None: `step` belongs to the epoch.

        Raises:
            TimedOutError: the rank has no items, and another rank has not told within
                the time-out of the group if it has.
        """
        self._stream.stage(self._count, self._put)
        self._step = step
        if self._stream.labels:
            self._num_steps = step + 1
        self._training.tell_stream(
            self._run, self._num_steps, has_ended=self._stream.has_ended
        )
        return None if self._stream.labels else self._wait(step)

    def _wait(self, step: int) -> int | None:
        end = self._clock() + self._training.timeout_s
        others = [rank for rank in range(self._size) if rank != self._rank]
        while True:
            # In this order: a rank that is gone tells nothing more.
            gone, _ = self._training.gone()
            told = {r: self._training.told_stream(self._run, r) for r in others}
            if any(num_steps > step for num_steps, _ in told.values()):
                return None
            open_ranks = [r for r in others if r not in gone and not told[r][1]]
            if not open_ranks:
                return max([self._num_steps, *(n for n, _ in told.values())])
            if self._clock() > end:
                raise TimedOutError(
                    f"StepLoader: the stream of rank {self._rank} has ended, and rank "
                    f"{open_ranks[0]} has not begun step {step} of the epoch, nor told "
                    f"that its stream has ended, within {self._training.timeout_s:g} "
                    "s; look for what holds that rank up, or give the group a longer "
                    "time-out."
                )
            self._pause(_LOOK_S)

    def begin_step(self, number: int, epoch: int, step: int) -> list[int]:
        """Own items of a step of the epoch; none if this rank has missed it."""
        return self._stream.labels if step == self._step else []

    def on_outcome(self, contributors: Collection[int] | None) -> None:
        """See `Survivors`. The rest of the stream of a dead rank is lost."""

    def on_top(self, now: int) -> None:
        """See `Survivors`."""


def _begin_process(_: int) -> None:
    """Seeds a process as DataLoader does, but with NumPy and `random` too."""
    info = get_worker_info()
    assert info is not None
    seed_all(info.seed)
