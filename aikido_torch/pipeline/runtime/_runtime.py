# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Training of a model that is cut into stages, by a schedule."""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import torch
import torch.distributed as dist
from torch import nn

from aikido_torch import _C
from aikido_torch._backend import recorder_of_process
from aikido_torch.errors import AikidoError, ConfigError
from aikido_torch.pipeline.plan._arguments import whole
from aikido_torch.pipeline.plan._schedule import Schedule
from aikido_torch.pipeline.runtime._adapt import Adapt, Adapter, Change
from aikido_torch.pipeline.runtime._channel import GroupChannel
from aikido_torch.pipeline.runtime._checkpoint import (
    Place,
    load_stages,
    newest_states,
    save_stage,
)
from aikido_torch.pipeline.runtime._executor import Executor, Feed, Program
from aikido_torch.pipeline.runtime._feed import (
    BatchFeed,
    LoaderFeed,
    Order,
    endless,
    pair_of,
)
from aikido_torch.pipeline.runtime._loss import check_loss_function
from aikido_torch.pipeline.runtime._observe import LiveTimes, Observer, live_times
from aikido_torch.pipeline.runtime._ranks import Ranks
from aikido_torch.pipeline.runtime._stage import LossFunction, MakeOptimizer, StageRun
from aikido_torch.pipeline.runtime._sum import num_tensors
from aikido_torch.pipeline.runtime._tell import Teller
from aikido_torch.pipeline.runtime._watch import Failure, Watch
from aikido_torch.straggler import Policy, SkipStraggler

__all__ = ["Pipeline"]


class Pipeline:
    """One rank's part of a pipeline. Every rank of the group constructs one.

    ```python
    schedule = pipeline.schedule("1f1b", stages=3, micro_batches=8)
    pipe = pipeline.Pipeline(
        [stage_0, stage_1, stage_2],
        schedule=schedule,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        loss_fn=torch.nn.functional.cross_entropy,
    )
    for inputs, targets in loader:
        loss = pipe.train_step(inputs, targets)  # on the ranks of the last stage
    ```

    The first stage takes the inputs of a batch. Each other stage takes the result of
    the stage before: a tensor or a tuple of tensors, with equal shapes in each
    micro-batch except for dimension 0. Replicas of a stage begin with the weights and
    buffers of the first replica, and add up their gradients. Buffers such as running
    means belong to each rank. Change gradients in the loss or in the optimizer: hooks
    on parameters do not run, because a forward computes with other parameters that
    share the memory.

    If a rank fails or dies, the pipeline ends on all ranks within about a second, with
    an error that names the rank. Then the only way on is a new start and `restore`.

    Args:
        stages: a module for each stage, or a function that makes it and is called on
            the ranks that have the stage. Stages share no parameters.
        schedule: the work of each rank, its order, and the versions of weights.
        optimizer: makes the optimizer of a stage, given its parameters. See
            `optimizers` for schedulers of the learning rate.
        loss_fn: function of the last stage's result and the targets. It returns the
            mean over rows, or a pair of a sum and the count by which it must be
            divided, as for a mean over tokens. Counts are added up over micro-batches
            and replicas.
        group: group with the ranks of the schedule; None is the default group.
        adapt: limits within which warm-ups, and turns of replicas, follow measured
            times; None keeps the schedule as it is. See `adaptations`.
        policy: policy for late ranks when replicas add up gradients; None waits for
            all. A policy that skips needs granularity="bucket", and stages with
            replicas whose parameters all are float32 or all are float64.
        plan: the result of `partition`, with the stages of the schedule. Then verdicts
            of `aikido_torch.trace` compare stages with its times, so that a stage that
            was planned to take longer is not blamed. None compares stages with each
            other.

    Raises:
        ConfigError: the schedule is invalid, or does not fit stages or group, or
            differs between ranks.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module | Callable[[], nn.Module]],
        *,
        schedule: Schedule,
        optimizer: MakeOptimizer,
        loss_fn: LossFunction,
        group: dist.ProcessGroup | None = None,
        policy: Policy | None = None,
        adapt: Adapt | None = None,
        plan: _C.Plan | None = None,
    ) -> None:
        _check(stages, schedule)
        planned_s = _planned(plan, len(stages))
        check_loss_function(loss_fn)
        self.schedule = schedule
        self.adaptations: list[Change] = []
        self.times: LiveTimes | None = None  # the last times that `adapt` has measured
        self._adapt = adapt
        self._adapter = Adapter(schedule, adapt) if adapt else None
        self._num_runs = 0
        self._ranks = Ranks(schedule, group)
        self.rank = self._ranks.rank
        count = len(stages)
        self._runs: dict[int, StageRun] = {}

        def make_runs() -> None:
            for s, ranks in enumerate(schedule.stages):
                if self.rank in ranks:
                    self._runs[s] = StageRun(
                        s,
                        _module_of(s, stages[s]),
                        make_optimizer=optimizer,
                        loss_fn=loss_fn if s + 1 == count else None,
                    )

            _check_policy(policy, self._runs, schedule)

        self._ranks.together(make_runs)
        for s, run in self._runs.items():
            self._ranks.make_equal(s, run.module)
        channel = GroupChannel(self._ranks.messages, self._ranks.replicas, policy)
        is_ours = self._ranks.is_aikido
        self._teller = Teller(
            recorder_of_process() if is_ours else None,
            {s: planned_s[s] for s in self._runs if planned_s},
        )
        self._executor = Executor(self._runs, channel, self._teller)
        self._set_program()
        self._is_running = False
        self._watch: Watch | None = None
        if self._ranks.is_aikido:
            self._watch = Watch(
                self._ranks.messages,
                self._ranks.name_of,
                self._needs,
                self._ranks.replicas.values(),
                replicas_of=self._ranks.replicas_of,
            )
        self._failure: Failure | None = None
        self._is_closed = False
        self.steps = 0
        self._begin_life()

    @property
    def modules(self) -> dict[int, nn.Module]:
        """The stages of this rank, by number."""
        return {s: run.module for s, run in self._runs.items()}

    @property
    def optimizers(self) -> dict[int, torch.optim.Optimizer]:
        """Optimizers of this rank's stages that have parameters with gradients, by
        number.
        """
        return {
            s: run.optimizer
            for s, run in self._runs.items()
            if run.optimizer is not None
        }

    @property
    def losses(self) -> dict[int, torch.Tensor]:
        """Losses of the last run of the schedule, by micro-batch.

        Only on ranks of the last stage, for the micro-batches that they computed.
        """
        last = self._runs.get(len(self.schedule.stages) - 1)
        return dict(last.losses) if last is not None else {}

    def train_step(self, inputs: Any = None, targets: Any = None) -> float | None:
        """Cuts a batch into micro-batches and runs the schedule with them.

        Args:
            inputs: a tensor or a tuple of tensors for the first stage, with rows along
                dimension 0. Needed on the ranks of the first stage, ignored on others.
            targets: the targets of the loss, in the same form. Needed on the ranks of
                the last stage. Any number of rows is allowed: the sizes of
                micro-batches then differ by one, or are 0.

        Returns:
            On ranks of the last stage the loss: the mean over all rows, or over the
            counts of `loss_fn`. Otherwise None.

        Raises:
            ConfigError: the batch is missing; `loss_fn` is neither a mean over rows nor
                returns a count; a stage returns other shapes than before; other
                parameters need gradients than at construction; or torch.inference_mode
                is on.
            PeerLostError, AbortedError: another rank died or failed; the text names it.
        """
        last = len(self.schedule.stages) - 1
        with self._telling():
            for what, stage, given in (
                ("inputs", 0, inputs),
                ("targets", last, targets),
            ):
                if stage in self._runs and given is None:
                    raise ConfigError(
                        f"train_step got no {what}; "
                        f"{self._ranks.name_of(self.rank)} needs them."
                    )
            feed = BatchFeed(
                inputs if 0 in self._runs else None,
                targets if last in self._runs else None,
                self.schedule.micro_batches,
            )
        self._run(feed)
        self.steps += 1
        updates = self._updates()
        weight = sum(weight for _, weight in updates)
        if not updates:
            return None
        return sum(loss for loss, _ in updates) / weight if weight > 0 else 0.0

    def train(self, loader: Iterable[Any] | None = None, *, steps: int) -> list[float]:
        """Trains on batches of a loader.

        With a schedule that flushes, each batch is a `train_step`. With other
        schedules, each batch is a micro-batch, and the schedule runs as often as
        needed; the pipeline drains between two runs. If the last run has more
        micro-batches than remain, the rest have no rows.

        Args:
            loader: yields pairs of inputs and targets, the same in the same order on
                all ranks of the first and the last stage. If it shuffles, give it a
                generator of its own with the same seed on all ranks: `DataLoader(...,
                generator=torch.Generator().manual_seed(7))`. torch's default generator
                differs between ranks as soon as a stage has used it. The loader is
                restarted at its end. Ranks of the first stage need no targets: None is
                allowed in their place.
            steps: number of batches, equal on all ranks.

        Returns:
            The loss of each update, on ranks of the last stage.

        Raises:
            ConfigError: as `train_step`; or ranks got different targets for the same
                batches, which is checked after 1, 2, 4, ... runs and after the last.
            PeerLostError, AbortedError: as `train_step`.
        """
        steps = whole("steps", steps, least=0)
        first, last = 0, len(self.schedule.stages) - 1
        needs_loader = first in self._runs or last in self._runs
        with self._telling():
            if needs_loader and loader is None:
                raise ConfigError(
                    f"train got no loader; {self._ranks.name_of(self.rank)} needs one."
                )
        count = self.schedule.micro_batches
        losses: list[float] = []
        if self.schedule.weights == "flush":
            batches = endless(loader) if needs_loader and loader is not None else None
            order = Order()
            for done in range(1, steps + 1):
                with self._telling():
                    pair = pair_of(next(batches)) if batches else (None, None)
                inputs, targets = pair
                order.note(targets)
                loss = self.train_step(inputs, targets)
                losses += [] if loss is None else [loss]
                self._compare(order, done, is_last=done == steps)
            return losses
        feed = LoaderFeed(
            loader if needs_loader else None,
            steps,
            self._program.micro_batches_of(first),
            self._program.micro_batches_of(last),
        )
        for done, begin in enumerate(range(0, steps, count), 1):
            feed.begin_run()
            self._run(feed)
            with self._telling():
                feed.end_run(count)
            self.steps += min(count, steps - begin)
            losses += [loss / weight for loss, weight in self._updates() if weight > 0]
            self._compare(feed.order, done, is_last=begin + count >= steps)
        return losses

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the stages of this rank, as they are after `steps` batches.

        The first replica of a stage writes it to a file of its own, and waits for no
        other rank. The checkpoint is complete when all files exist. All ranks call it
        after the same step.

        Raises:
            OSError: a file cannot be written.
        """
        self._check_alive()
        for s, run in self._runs.items():
            if self.schedule.stages[s][0] == self.rank:
                save_stage(self._place(folder, s), self.steps, run, self._life)

    def restore(self, folder: str | os.PathLike[str]) -> int | None:
        """Returns to the newest step that all stages have saved. All ranks call it
        together.

        Stages may have other numbers of replicas than when they were saved. A file that
        cannot be read counts as missing, with a warning. A step counts only if one
        pipeline wrote all its files since one restore.

        Returns:
            The number of batches that had been trained on, which is the value of
            `steps` from now on; None if there is no complete checkpoint.

        Raises:
            ConfigError: the files belong to another plan; the text names the stage.
            AbortedError: another rank, which is named, could not load its part. Other
                ranks may have loaded theirs, so the pipeline has ended.
        """
        self._check_alive()
        places = {s: self._place(folder, s) for s in self._runs}
        found = newest_states(places, self._runs, self.schedule.stages, self._ranks)
        step = None
        if found is not None:
            step, states = found
            with self._telling():
                self._ranks.together(lambda: load_stages(states, self._runs))
        self.steps = self.steps if step is None else step
        self._begin_life()
        return step

    def close(self) -> None:
        """Ends the groups of the pipeline. The modules stay as they are."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._watch is not None:
            self._watch.close()
        self._ranks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin_life(self) -> None:
        """Starts a new life: only files of one life form a checkpoint."""
        self._life = self._ranks.together(lambda: uuid.uuid4().hex)[0]

    def _place(self, folder: str | os.PathLike[str], stage: int) -> Place:
        return Place(Path(folder), stage, len(self.schedule.stages))

    def _updates(self) -> list[tuple[float, float]]:
        last = self._runs.get(len(self.schedule.stages) - 1)
        return last.update_losses if last is not None else []

    def _compare(self, order: Order, runs: int, *, is_last: bool) -> None:
        """Checks that the loaders of this `train` yielded equal targets.

        Rarely done, because all ranks wait for each other: after 1, 2, 4, ... runs.
        """
        stages = self.schedule.stages
        holders = {*stages[0], *stages[-1]}
        if len(holders) == 1 or not (is_last or runs & (runs - 1) == 0):
            return
        with self._telling():
            marks = self._ranks.gather(order.mark)
            found = Order.differing({rank: marks[rank] for rank in sorted(holders)})
            if found is not None:
                one, other = map(self._ranks.name_of, found)
                raise ConfigError(
                    f"the loaders of {one} and {other} gave other targets for the same "
                    "batches, so outputs were compared with those of other rows. Give "
                    "all ranks the same batches in the same order: one that shuffles "
                    "takes generator=torch.Generator().manual_seed(...), with a seed "
                    "that is the same on all; then restore, or start again."
                )

    def _run(self, feed: Feed) -> None:
        with self._telling():
            if torch.is_inference_mode_enabled():
                raise ConfigError(
                    f"{self._ranks.name_of(self.rank)} trains under "
                    "torch.inference_mode(), which keeps nothing for gradients; train "
                    "outside of it."
                )
            self._is_running = True
            self._num_runs += 1
            is_looked_at = self._adapt and self._num_runs % self._adapt.every == 0
            self._executor.observer = Observer() if is_looked_at else None
            try:
                with self._teller.run():
                    for pending in self._executor.run(self._program, feed):
                        pending.wait()
            except BaseException as error:
                if not isinstance(error, AikidoError):
                    at = self._program.steps[self._executor.at].text
                    me = self._ranks.name_of(self.rank)
                    error.add_note(f"{me}, at {at} of its schedule")
                raise
            finally:
                self._is_running = False

            if self._executor.observer is not None:
                self._look(self._executor.observer)

    def _look(self, observer: Observer) -> None:
        """Measures and adapts; all ranks see the same reports, so they choose
        equally.
        """
        assert self._adapter is not None
        reports = self._ranks.gather(observer.report())
        times = live_times(reports, self.schedule.stages)
        if times is None:
            return
        self.times = times
        self._adapter.on_times(times)
        change = self._adapter.decide(reports[0].now)
        if change is not None:
            self.adaptations.append(change)
            self.schedule = change.schedule
            self._set_program()

    def _set_program(self) -> None:
        made = self.schedule
        self._program = Program(made.ranks[self.rank], made.micro_batches, made.stages)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Context whose errors end the pipeline on all ranks."""
        self._check_alive()
        try:
            yield
        except BaseException as error:
            self._fail(error)

    def _needs(self, rank: int) -> bool:
        last = self._program.last_needs.get(rank, -1)
        return self._is_running and self._executor.at <= last

    def _check_alive(self) -> None:
        if self._is_closed:
            raise ConfigError("the pipeline was closed; make another one.")
        failure = self._failure or (self._watch.failure if self._watch else None)
        if failure is not None:
            raise failure.error()

    def _fail(self, error: BaseException) -> NoReturn:
        """Reports this rank's error to all ranks, or raises the error of another
        rank.
        """
        me = self._ranks.name_of(self.rank)
        if self._watch is not None:
            failure = self._watch.fail(error, me)
        else:
            failure = Failure(f"{me} has failed: {error}", self.rank, is_lost=False)
        self._failure = failure
        is_mine = failure.rank == self.rank and not failure.is_lost
        if is_mine or isinstance(error, ConfigError):  # this rank's own error
            raise error
        raise failure.error() from error


def _planned(plan: _C.Plan | None, num_stages: int) -> list[float]:
    """Planned seconds of each stage on one machine; empty without a plan."""
    if plan is None:
        return []
    if not isinstance(plan, _C.Plan):
        raise ConfigError(
            f"plan is a {type(plan).__name__}; pass what pipeline.partition returns."
        )
    if len(plan.stages) != num_stages:
        raise ConfigError(
            f"the plan has {len(plan.stages)} stages and there are {num_stages} "
            "modules; pass the plan that the model was cut by."
        )
    return [stage.compute_s for stage in plan.stages]


def _check(stages: Sequence[Any], schedule: Schedule) -> None:
    if not isinstance(schedule, Schedule):
        raise ConfigError(
            f"schedule is a {type(schedule).__name__}; pass what "
            "pipeline.schedule(...) makes."
        )
    schedule.validate()
    count, batches = len(schedule.stages), schedule.micro_batches
    if len(stages) != count:
        raise ConfigError(
            f"there are {len(stages)} modules and the schedule has {count} stages; "
            "give one for each."
        )
    if batches < count:
        raise ConfigError(
            f"the schedule has {batches} micro-batches for {count} stages: when stage "
            f"{count - 1} gets its first, stage 0 has had its last, and most wait most "
            f"of the time. Give it {count} or more."
        )
    owners: dict[nn.Parameter, int] = {}
    for s, stage in enumerate(stages):
        if not callable(stage):
            raise ConfigError(
                f"stage {s} is a {type(stage).__name__}; pass a module, or a function "
                "that makes it."
            )
        for name, parameter in stage.named_parameters() if _is_module(stage) else ():
            if owners.setdefault(parameter, s) != s:
                raise ConfigError(
                    f'stages {owners[parameter]} and {s} share the parameter "{name}" '
                    "of the latter; a parameter belongs to one stage."
                )


def _check_policy(
    policy: Policy | None, runs: Mapping[int, StageRun], schedule: Schedule
) -> None:
    """Checks that each sum has gradients and weights of the same replicas."""
    if not isinstance(policy, SkipStraggler):
        return
    for s, run in runs.items():
        if len(schedule.stages[s]) == 1:
            continue
        if policy.granularity != "bucket":
            raise ConfigError(
                f'policy has granularity="{policy.granularity}", and stage {s} has '
                "replicas: parts of their sum could be of other replicas than its "
                "weight. Use "
                'SkipStraggler(granularity="bucket", ...).'
            )
        dtypes = sorted({str(p.dtype) for p in run.parameters})
        if num_tensors(run.parameters) > 1:
            raise ConfigError(
                f"policy may skip replicas of stage {s}, whose parameters are of "
                f"{', '.join(dtypes)}: their gradients would be several sums, of other "
                "replicas each. Give the stage parameters of float32 or of float64 "
                "alone, or leave the policy out."
            )


def _is_module(stage: Any) -> bool:
    return isinstance(stage, nn.Module)


def _module_of(number: int, stage: nn.Module | Callable[[], nn.Module]) -> nn.Module:
    module = stage if isinstance(stage, nn.Module) else stage()
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"stage {number}: the function made a {type(module).__name__}; it makes a "
            "module."
        )
    return module
