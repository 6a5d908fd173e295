# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""`StepLoader`: steps of a training loop with work that moves between ranks."""

import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from rich.console import Console
from torch.utils.data import Dataset, default_collate

from aikido_torch.data._arguments import check_flag, check_whole
from aikido_torch.data._seeds import length_of
from aikido_torch.errors import ConfigError, InternalError
from aikido_torch.reassign._costs import Cost, costs_of_list, costs_of_part, joined
from aikido_torch.reassign._gradient import StepGradient
from aikido_torch.reassign._items import Exchange, OwnItems
from aikido_torch.reassign._log import AssignmentLog, ReplayedItems, StepRecord
from aikido_torch.reassign._pending import PendingItems
from aikido_torch.reassign._place import LoopPlace
from aikido_torch.reassign._plan import Plan, likely_taken
from aikido_torch.reassign._proof import Proof
from aikido_torch.reassign._reader import ItemReader
from aikido_torch.reassign._report import plot, report, summary_of
from aikido_torch.reassign._staging import (
    StagedItems,
    Stream,
    StreamItems,
    StreamPlan,
    check_stage,
)
from aikido_torch.reassign._state import pending_of, read_state, write_state
from aikido_torch.reassign._step import Step, StepParts
from aikido_torch.reassign._survivors import Survivors
from aikido_torch.reassign._training import Training

__all__ = ["StepLoader"]

_LOST = ("reissue", "drop")
# Steps of an epoch of streams, as long as their end is not known.
_ENDLESS = 2**31
_NO_TAKING = (
    'a rank cannot read the samples of another rank in it. With stage="send" the '
    "owners of samples read and send them; without it, work cannot move"
)


class StepLoader:
    """Iterable of the optimizer steps of an epoch. Work moves between ranks in a step.

    See `aikido_torch.reassign` for the loop. All ranks give equal values.

    Args:
        dataset: a dataset with a length and with indices from 0. Random augmentation is
            the same on every rank, as with `SeededDataset`. Or, with stage="send", an
            iterable dataset, of which each rank reads its own stream.
        batch_size: samples of one step, over all ranks together.
        micro_batch_size: samples of one micro-batch; divides `batch_size`.
        cost: function of a sample that returns its predicted cost, in any unit, or a
            sequence with one number for each sample. The function is called once for
            each sample in `register`; each rank calls it for a part of the samples.
            None: all samples cost the same.
        shuffle, seed: as in `DistributedSampler`. The seeds of the random numbers of
            each micro-batch are computed from `seed` too.
        drop_last: False adds a last step to each epoch, with fewer samples, if
            `batch_size` does not divide the dataset.
        collate_fn: makes `data` of the list of samples; None: `default_collate`.
        helpers: number of ranks that may take micro-batches of a rank; 0: nothing
            moves.
        lost: "reissue" computes a lost micro-batch in a later step, "drop" counts it.
        slack: steps by which each update is late, as in `register`; needs `WaitAll`.
        stage: "send": each rank reads all micro-batches of its list before it begins
            the step, and sends those that other ranks take. None: the rank that takes
            a micro-batch reads it.
        num_workers: processes that read micro-batches ahead: own ones, then as many at
            the tails of other ranks' lists as this rank took over in the step before.
            The training thread reads all others. The processes start as those of a
            DataLoader do. They read an iterable dataset as those do.
        debug: True proves in each step that no micro-batch counts twice or never. The
            ranks publish their lists of the step in the store of the job.
        replay: result of `log` of a run with the same arguments, on the same rank. The
            run is repeated bit for bit: each rank computes the micro-batches of the log
            in their order. Register the model with `WaitAll`.

    Attributes:
        epoch: the epoch of the present or the next iteration.

    Raises:
        ConfigError: an argument is wrong; the text has the valid values.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        *,
        batch_size: int,
        micro_batch_size: int,
        cost: Cost | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        helpers: int = 4,
        lost: Literal["reissue", "drop"] = "reissue",
        slack: int = 0,
        stage: Literal["send"] | None = None,
        num_workers: int = 0,
        debug: bool = False,
        replay: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("micro_batch_size", micro_batch_size, 1),
            ("helpers", helpers, 0),
            ("num_workers", num_workers, 0),
            ("seed", seed, 0),
            ("slack", slack, 0),
        ):
            check_whole("StepLoader", name, value, least)
        for name, flag in (
            *(("shuffle", shuffle), ("drop_last", drop_last)),
            ("debug", debug),
        ):
            check_flag("StepLoader", name, flag)
        if lost not in _LOST:
            raise ConfigError(
                f"StepLoader: lost is {lost!r}; it takes {' or '.join(_LOST)}."
            )
        has_streams = check_stage(stage, dataset, replay, cost, drop_last=drop_last)
        num_samples = (
            _ENDLESS * batch_size
            if has_streams
            else length_of("StepLoader", dataset, so=_NO_TAKING)
        )
        self.helpers, self.lost, self.debug = helpers, lost, debug
        self.slack, self.stage = slack, stage
        self._cost = cost if callable(cost) else None
        self._plan = (StreamPlan if has_streams else Plan)(
            num_samples=num_samples,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            num_ranks=1,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            costs=None
            if cost is None or callable(cost)
            else costs_of_list(cost, num_samples),
        )
        collate = collate_fn or default_collate
        self._reader: ItemReader | Stream
        if has_streams:
            self._reader = Stream(dataset, micro_batch_size, collate, seed, num_workers)
        else:
            self._reader = ItemReader(dataset, seed, collate, num_workers)
        self._staged = None if stage is None else StagedItems(self._reader.read)
        self._place = LoopPlace(self._plan.steps_per_epoch)
        self._pending = PendingItems(reissues=lost == "reissue")
        self._parts: StepParts | None = None
        self._survivors: Survivors | StreamItems | None = None
        self._step: Step | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._log = AssignmentLog()
        self._replay = None if replay is None else AssignmentLog.of_state(replay)
        self._proof = Proof()
        self._num_proved = 0  # steps of the model that are proved
        _check_sizes(self._plan)

    @property
    def has_streams(self) -> bool:
        """True if each rank reads a stream of its own."""
        return isinstance(self._reader, Stream)

    # ---- for the loop ----

    @property
    def epoch(self) -> int:
        """The epoch of the present or the next iteration."""
        return self._place.epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration. Without it, each is one later.

        Raises:
            ConfigError: it is no whole number from 0 on.
        """
        check_whole("StepLoader", "epoch", epoch, 0)
        self._place.set_epoch(epoch)

    def __len__(self) -> int:
        """Steps of a whole epoch; equal on all ranks.

        Raises:
            TypeError: the dataset is iterable, so the number is not known.
        """
        if self.has_streams:
            raise TypeError(
                "StepLoader: its dataset is iterable, so the number of steps is not "
                "known before the streams of all ranks end."
            )
        return self._plan.steps_per_epoch

    def __iter__(self) -> Iterator[Step]:
        return self._steps(self._needed())

    def _needed(self) -> StepParts:
        if self._parts is None:
            raise ConfigError(
                "StepLoader: it has no model; give it to register before the loop: "
                "aikido_torch.ddp.register(model, optimizer=..., steps=steps)."
            )
        return self._parts

    def _steps(self, parts: StepParts) -> Iterator[Step]:
        place, training = self._place, parts.training
        self._check_step()
        place.begin(training.steps)
        items = self._needed_survivors()
        if isinstance(items, StreamItems):
            place.set_end(_ENDLESS)
            items.begin_epoch(place.epoch)
        while not place.is_at_end:
            training.catch_up()
            now = training.steps
            self._check_counted(now)
            self._note_outcomes(parts, now)
            if isinstance(items, StreamItems):
                end = items.find_end(place.steps_before(now))
                if end is not None:
                    place.set_end(end)
            for missed in place.move_to(now):
                parts.pending.lose(self._own_items(missed))
            if place.is_at_end:
                return
            items.on_top(now)
            self._step = self._begin(parts)
            yield self._step
            self._check_step()
            self._record(parts, self._step)
            place.pass_step()

    def _begin(self, parts: StepParts) -> Step:
        place, plan = self._place, parts.plan
        own = self._own_items(place.step)
        labels = plan.in_order(own + parts.pending.take(len(own)))
        number = parts.training.steps
        if self._replay is not None:
            labels = [*self._replay.counted(number).begun]
        return Step(parts, number, place.epoch, labels, self._likely(parts))

    def _likely(self, parts: StepParts) -> list[int]:
        """Items of other ranks that this rank will probably take over."""
        rank, _ = parts.training.place
        before = self._step.computed if self._step else ()
        owners = [owner for owner, _ in before if owner != rank]
        if not owners:
            return []
        lists = parts.plan.lists_of(self._place.epoch, self._place.step)
        return likely_taken(lists, owners)

    def _own_items(self, step: int) -> list[int]:
        """Items of this rank in a step of the epoch, without pending ones."""
        place = self._place
        number = place.number_of(step)
        return self._needed_survivors().begin_step(number, place.epoch, step)

    def _needed_survivors(self) -> Survivors | StreamItems:
        assert self._survivors is not None, "follow() has made it with the parts"
        return self._survivors

    def _record(self, parts: StepParts, step: Step) -> None:
        """Adds a step to the log, once its micro-batches are consumed."""
        self._log.add(
            step.number,
            StepRecord(
                begun=step.labels,
                computed=step.computed,
                knew_last=step.knew_last,
                num_given=parts.exchange.report().num_given,
                seconds=step.seconds,
                cost_begun=step.cost_begun,
                cost_computed=step.cost_computed,
            ),
        )

    def _note_outcomes(self, parts: StepParts, now: int) -> None:
        """Passes the outcomes of earlier steps to the exchange and the pending items.

        The calls of a step have ended when its backward has returned. With slack they
        may not have, but then each contribution counts.
        """
        rank, size = parts.training.place
        for step in parts.pending.steps_without_outcome():
            if step >= now:
                continue
            found = parts.training.contributors(step)
            # A copied state may have the items of the other ranks.
            contributors = {*range(size)} - {rank} if found is None else found
            parts.exchange.outcome(step, sorted(contributors))
            self._needed_survivors().on_outcome(found)
            if self._staged is not None:
                self._note_staged(self._staged, step, has_counted=rank in contributors)
            parts.pending.on_outcome(step, has_counted=rank in contributors)
            self._log.on_outcome(step, has_counted=rank in contributors)
        for loss in parts.exchange.take_losses():
            if loss.reason == "in_doubt" or not self._can_issue(loss.label):
                parts.pending.drop([loss.label])
            else:
                parts.pending.lose([loss.label])
        if self._staged is not None:
            present = self._step.labels if self._step else ()
            self._staged.forget(now, {*parts.pending.labels, *present})
        if self.debug:
            # Other ranks may not have published the lists of the last steps of slack.
            end = max(self._num_proved, now - self.slack)
            for step in range(self._num_proved, end):
                self._prove(parts.training, step)
            self._num_proved = end

    def _note_staged(
        self, staged: StagedItems, step: int, *, has_counted: bool
    ) -> None:
        """The staged items of `step` that are no longer needed, or not for long."""
        own = self._pending.sent_in(step)
        record = self._log.steps.get(step)
        given = {*record.begun} - {*own} if record else ()
        staged.on_outcome(step, own if has_counted else (), given)

    def _can_issue(self, label: int) -> bool:
        """True if this rank can read a lost item of its list again."""
        return not self.has_streams or (
            self._staged is not None and self._staged.has(label)
        )

    def _prove(self, training: Training, step: int) -> None:
        """Raises InternalError if an item of `step` counts twice, or counts never."""
        lists = {
            rank: training.published(step, rank)
            for rank in training.contributors(step) or ()
        }
        known = {rank: each for rank, each in lists.items() if each is not None}
        if len(known) == len(lists) and (wrong := self._proof.check(step, known)):
            raise InternalError(f"StepLoader: {wrong} Please report this defect.")

    def _check_step(self, *_: object) -> None:
        """Raises ConfigError if the loop has not consumed its last step."""
        step = self._step
        if step is not None and step.state in ("new", "open"):
            raise ConfigError(
                f"StepLoader: the loop has not taken all micro-batches of step "
                f"{step.number}, so its gradients are not summed over the ranks. Let "
                "`for micro_batch in step:` end, or leave it by break, before the step "
                "of the optimizer and before the next step."
            )

    def _check_counted(self, now: int) -> None:
        """Raises ConfigError if the last step of the loop is not among `now` steps."""
        step = self._step
        if step is None or step.number < now:
            return
        if step.state == "broken":
            raise ConfigError(
                f"StepLoader: step {step.number} ended with an error within a "
                "backward, so this rank has no gradients for it, and the other ranks "
                "have not gone on without it. End this process, or go on from a "
                "checkpoint on all ranks."
            )
        raise ConfigError(
            f"StepLoader: the loop made no backward of the last micro-batch of step "
            f"{step.number}, so its gradients are not summed over the ranks. Make "
            "one backward for each micro-batch, with a loss of the registered model."
        )

    # ---- for a training that goes on later ----

    def state_dict(self) -> dict[str, Any]:
        """Place of the loop, and the lost micro-batches of this rank.

        Call it between two steps, in the middle of an epoch too. The state has plain
        numbers only. The place is equal on all ranks. The lost micro-batches are not:
        with the state of one rank for all ranks, those of the other ranks are lost.
        For an iterable dataset the state has also its `state_dict`, and the samples of
        the lost micro-batches; each rank needs its own state.

        Raises:
            ConfigError: an iterable dataset has no `state_dict` and `load_state_dict`,
                or `num_workers` processes have copies of it.
        """
        if isinstance(self._reader, Stream):
            return self._plain_state() | {"stream": self._stream_state(self._reader)}
        return self._plain_state()

    def _stream_state(self, stream: Stream) -> dict[str, Any]:
        assert self._staged is not None
        labels = self._pending.labels
        return stream.state() | {"staged": self._staged.of(labels)}

    def _plain_state(self) -> dict[str, Any]:
        if self._parts is None:
            return write_state(self._plan, self._place.state(0), None, [])
        now = self._parts.training.steps
        self._note_outcomes(self._parts, now)
        rank, _ = self._parts.training.place
        return write_state(
            self._plan, self._place.state(now), rank, self._pending.labels
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes an earlier training. Call it on all ranks, before `register`.

        The next iteration gives the rest of the epoch. If `set_epoch` is called with
        another epoch before, it gives all of that epoch. The number of ranks may be
        another one than before.

        Raises:
            ConfigError: the state is of a loader with other micro-batches, or this
                loader has a model already.
        """
        if self._parts is not None:
            raise ConfigError(
                "StepLoader: a state is to be loaded, but register has this loader "
                "already; load the state before register."
            )
        read_state(self._plan, self._place, state)
        if isinstance(self._reader, Stream):
            assert self._staged is not None
            self._reader.load(self._place.epoch, state["stream"])
            for label, data in state["stream"]["staged"].items():
                self._staged.put(label, data)
        self._loaded = state

    def log(self) -> dict[str, Any]:
        """Micro-batches that this rank computed in each of the last 100,000 steps.

        `StepLoader(replay=...)` repeats them. Plain lists and numbers only.
        """
        if self._parts is not None:
            self._note_outcomes(self._parts, self._parts.training.steps)
        return self._log.state_dict()

    def report(
        self,
        *,
        picture: str | os.PathLike[str] | None = None,
        console: Console | None = None,
    ) -> dict[tuple[int, int], int]:
        """Prints on rank 0 which ranks helped which, and returns it on all ranks.

        All ranks call it together, after the loop. It shows the last 100,000 steps: the
        micro-batches that moved, an estimate of the saved time, and the work of each
        rank.

        Args:
            picture: file for bars of own and taken micro-batches; rank 0 draws them.
            console: where to print; None is standard output.

        Returns:
            Number of moved micro-batches, by rank of the helper and of the owner.

        Raises:
            ConfigError: the loader has no model.
            PeerLostError: a rank is lost.
            UnsupportedError: `picture` is given, and matplotlib is not installed.
        """
        training = self._needed().training
        rank, _ = training.place
        self.log()
        ranks = training.gather(summary_of(rank, self._log, self._pending))
        if rank == 0:
            report(ranks, console)
            if picture is not None:
                plot(ranks, picture)
        return {(r.rank, owner): n for r in ranks for owner, n in r.taken.items()}

    # ---- for `register` ----

    def facts(self) -> dict[str, str]:
        """Facts that must be equal on all ranks, by name."""
        plan = self._plan
        costs = "None" if plan.costs is None else _digest(plan.costs)
        values: dict[str, object] = {
            name: getattr(plan, name)
            for name in (
                *("num_samples", "batch_size", "micro_batch_size", "shuffle", "seed"),
                "drop_last",
            )
        }
        values |= {
            "cost": "a function" if self._cost else costs,
            "helpers": self.helpers,
            "lost": self.lost,
            "slack": self.slack,
            "stage": self.stage,
            "is_iterable": self.has_streams,
            "debug": self.debug,
            "replay": "a log" if self._replay else "None",
            "epoch": self._place.epoch,
            "step": self._place.step,
        }
        return {f"steps.{name}": str(value) for name, value in values.items()}

    def why_not(self, num_ranks: int) -> str:
        """Reason why a model with `num_ranks` ranks cannot use it; "" if it can."""
        if self._parts is not None:
            return (
                "register: this StepLoader has a model already; make another one for "
                "this model."
            )
        items = self._plan.items_per_step
        if items < num_ranks:
            return (
                f"register: a step of the StepLoader has {items} micro-batches "
                f"(batch_size {self._plan.batch_size}, micro_batch_size "
                f"{self._plan.micro_batch_size}), fewer than the {num_ranks} ranks; "
                "give a smaller micro_batch_size or a larger batch_size."
            )
        return ""

    def follow(self, training: Training) -> None:
        """Begins to give the steps of a model. All ranks call it together.

        Raises:
            ConfigError: `cost` fails for a sample, on any rank.
        """
        rank, size = training.place
        part: object = None
        if self._cost is not None:
            each = -(-self._plan.num_samples // size)
            indices = range(self._plan.num_samples)[rank * each : (rank + 1) * each]
            assert isinstance(self._reader, ItemReader)
            part = costs_of_part(self._cost, self._reader.sample, indices)
        told = training.gather((socket.gethostname(), part))
        names, parts = zip(*told, strict=True)
        costs = self._plan.costs if self._cost is None else joined(parts)
        hosts = [*dict.fromkeys(names)]
        self._plan = replace(self._plan, num_ranks=size, costs=costs)
        self._parts = StepParts(
            training=training,
            plan=self._plan,
            reader=self._staged or cast(ItemReader, self._reader),
            exchange=self._exchange(training, [hosts.index(name) for name in names]),
            gradient=StepGradient(training.model, training.set_weight),
            pending=self._pending,
            seed=self._plan.seed,
            proves=self.debug,
        )
        self._survivors = self._own_lists(training)
        if self._staged is not None and self.helpers:
            self._send_staged(self._parts, self._staged)
        self._num_proved = training.steps
        if self._loaded is not None:
            self._pending.resume(pending_of(self._loaded, rank))
        training.before_update(self._check_step)

    def _own_lists(self, training: Training) -> Survivors | StreamItems:
        plan, staged = self._plan, self._staged
        if isinstance(plan, StreamPlan):
            assert isinstance(self._reader, Stream)
            assert staged is not None
            rank, _ = training.place
            count = plan.count_of(rank)
            return StreamItems(training, self._reader, count, staged.put)
        return Survivors(training, plan, self._log, self._pending)

    def _send_staged(self, parts: StepParts, staged: StagedItems) -> None:
        mail, exchange = parts.training.item_mail(), parts.exchange
        mail.serve(staged.pickled, lambda: exchange.report().num_given > 0)
        staged.fetch = mail.fetch

    def _exchange(self, training: Training, hosts: list[int]) -> Exchange:
        rank, size = training.place
        helpers = min(self.helpers, size - 1)
        if self._replay is not None:
            return ReplayedItems(rank, self._replay)
        return training.exchange(hosts, helpers) if helpers else OwnItems(rank)


def _check_sizes(plan: Plan) -> None:
    batch, micro = plan.batch_size, plan.micro_batch_size
    if batch % micro:
        raise ConfigError(
            f"StepLoader: batch_size is {batch}, which micro_batch_size {micro} does "
            f"not divide; {batch - batch % micro or micro} would do."
        )
    if plan.steps_per_epoch == 0:
        raise ConfigError(
            f"StepLoader: the dataset has {plan.num_samples} samples, and one step "
            f"takes {batch}; give a smaller batch_size, or drop_last=False."
        )


def _digest(costs: npt.NDArray[np.float64]) -> str:
    return hashlib.sha256(costs.tobytes()).hexdigest()[:16]
