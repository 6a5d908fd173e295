# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Comparison of the running loop with the loop that `register` was told.

A replayed step does only the work that `register` was given. Any other work of the loop
in a step would be missing in the replay, and a late rank would continue with other
parameters than the other ranks. All ranks detect that in the first steps, before any
rank is late.
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from aikido_torch import _C
from aikido_torch._hook import Hook
from aikido_torch.ddp._buckets import stride_of_gradient
from aikido_torch.recovery._backward import after_backward
from aikido_torch.recovery._digest import option_values
from aikido_torch.recovery._report import Check, report

__all__ = ["AUDIT_PERIOD", "StepAudit"]

# Steps that are multiples of it are examined in a long training. Python handles the
# same steps (_quiet.py), so that gauges and messages are at most this old.
AUDIT_PERIOD = 32

# Each of the first steps is examined completely, and then a sample of every n-th step.
# An examination takes about 0.25 ms, because its code leaves the caches in between. So
# n grows. A change of the loop that comes later is seen after 32 steps at most; if a
# step was replayed without it before that, the digests differ (_state_check.py).
_FIRST_STEPS = 10
# n before that step, and AUDIT_PERIOD later.
_PERIODS = ((_FIRST_STEPS, 1), (32, 8), (64, 16))
_SAMPLE = 3  # tensors of a step that are examined
_MOST_BYTES = 64 << 10  # larger tensors are not read

_TELL = "Give register what your loop does in a step: register(..., apply=...)."
_SO = (
    "aikido_torch.ddp.register was not told. A step that is replayed leaves that out, "
    "and a late rank goes on with other parameters than others. "
)


class StepAudit:
    """Detector that reports each kind of difference once. For the training thread only.

    Args:
        optimizer: optimizer of the loop.
        check: "warn", "error" or "off": the effect of a report.
        has_apply: True if `register` was given `apply`.
        has_after_step: True if `register` was given `after_step`, such as a scheduler.

    Attributes:
        findings: a short phrase for each report.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        check: Check,
        has_apply: bool,
        has_after_step: bool,
    ) -> None:
        self._optimizer = optimizer
        self._check = check
        self._has_apply = has_apply
        self._has_after_step = has_after_step
        self._in_buckets: set[int] | None = None
        self._sizes: list[int] = []
        self._parameters: list[torch.Tensor] = []
        self._is_replaying = False
        self._num_backwards = 0
        self._step = -1
        self._gradients: list[object] | None = None
        self._options: dict[str, object] | None = None
        self._values: list[tuple[int, int]] | None = None
        self._num_noted = 0  # number of parameters when the notes were taken
        self._rates: list[object] | None = None
        self.findings: list[str] = []
        # Record of the quiet steps, in which step() is observed; None: not observed.
        self._quiet: _C.QuietSteps | None = None
        self._has_passed = False  # the present step of the optimizer, unexamined
        if check != "off":
            optimizer.register_step_pre_hook(Hook(self._before_step))
            optimizer.register_step_post_hook(Hook(self._after_step))

    # ---- called by the handle ----

    def on_backward(self, step: int, in_buckets: set[int] | None) -> None:
        """In the last hook of the backward of `step`.

        Args:
            step: number of the step.
            in_buckets: ids of the parameters whose gradients are replayed; None if not
                known yet.
        """
        if self._check == "off":
            return
        self._num_backwards += 1
        self._step, self._in_buckets = step, in_buckets
        # A schedule may change the rate once in an epoch, so it is compared in each
        # step.
        # A note is valid for one top of the loop only.
        rates, self._rates = self._rates, None
        if rates is not None and rates != self._rates_now():
            self._report_options("between catch_up() and the backward", "lr")
        if self._is_due(step):
            after_backward(self._at_end_of_backward)

    def follow(self, quiet: _C.QuietSteps) -> None:
        """Examines quiet steps as well, for which `on_backward` is not called."""
        if self._check == "off":
            return
        look = partial(_call, weakref.WeakMethod(self._at_end_of_quiet_backward))
        if self._has_apply:
            quiet.look(look, self._optimizer)
        else:
            quiet.look(look, None)
            self._quiet = quiet

    def steps_before_look(self, step: int) -> int:
        """Number of steps from `step` on that need no call of `on_top` and
        `on_backward`.
        """
        if self._check == "off":
            return sys.maxsize
        if self._has_apply:
            return 0 if step < _FIRST_STEPS else -step % _period(step)
        # quiet_period() changes there.
        return _FIRST_STEPS - step if step < _FIRST_STEPS else sys.maxsize

    def quiet_period(self, step: int) -> int:
        """Quiet steps whose number is a multiple of it are examined; 0: none is.

        Args:
            step: the first quiet step. Steps from there to the next multiple of
                `AUDIT_PERIOD` have one period, except that the first steps of a
                training have their own (`steps_before_look`).
        """
        if self._check == "off" or self._has_apply:
            return 0
        return _period(step)

    def on_catch_up(self) -> None:
        """Forgets the notes of a step that the loop has omitted.

        Called at the beginning of `catch_up`.
        """
        self._gradients = None
        if self._has_apply or self._has_after_step:
            return
        if hasattr(self._optimizer.step, "_wrapped_by_lr_sched"):
            self._report(
                "a learning rate scheduler",
                "The optimizer has a learning rate scheduler of whose steps "
                "aikido_torch.ddp.register was not told. A step that is replayed or "
                "copied leaves it behind, and a late rank goes on with other "
                "parameters than others. Give register what your loop does in a step, "
                'and the scheduler: register(..., apply=..., state={"scheduler": '
                "scheduler}).",
            )

    def on_top(self, step: int, has_moved: bool) -> None:
        """At the end of `catch_up`, before `step`.

        Args:
            step: number of the step.
            has_moved: True if catch_up has applied steps.
        """
        if self._check == "off":
            return
        if self._has_apply or has_moved:
            self._forget_top()
        if not self._has_apply:
            return
        self._rates = self._rates_now()
        if self._is_due(step):
            self._note()

    def on_quiet_top(self) -> None:
        """C++ has passed the top of the loop of the present step.

        Notes of an earlier top do not belong to this step.
        """
        if self._has_apply:
            self._forget_top()

    def _forget_top(self) -> None:
        self._rates = self._options = self._values = None

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Context of a replay, in which only the registered optimizer may step."""
        if self._check == "off":
            yield
            return
        self._is_replaying = True
        handle = register_optimizer_step_pre_hook(self._on_any_step)
        try:
            yield
        finally:
            handle.remove()
            self._is_replaying = False

    # ---- within a step ----

    def _is_due(self, step: int) -> bool:
        return step % _period(step) == 0

    def _at_end_of_backward(self) -> None:
        if not self._has_apply:
            self._gradients = self._gradients_now()
            return
        # No apply() runs between the end of catch_up and the end of the backward.
        self._compare("between catch_up() and the end of the backward")
        self._options = self._values = None

    def _at_end_of_quiet_backward(self, step: int) -> None:
        self._step = step
        if self._has_apply:
            self._report_options("between catch_up() and the backward", "lr")
        else:
            self._at_end_of_backward()

    def _before_step(self, *_: object) -> None:
        if self._is_replaying or self._passes_update():
            return
        self._count_quiet()
        noted, self._gradients = self._gradients, None
        count, self._num_backwards = self._num_backwards, 0
        if self._has_apply:
            if self._is_due(self._step):
                self._look_outside()
            return
        if count != 1 and self._step > 0:
            self._report(
                "several backwards for one step",
                f"The loop makes {count} backwards that reduce gradients for one step "
                f"of the optimizer, and {_SO}Have all backwards of a step but the last "
                "under no_sync() and give register batches_per_step, or one loss.",
            )
        # A GradScaler passes its scale to a fused optimizer, which divides by it.
        is_scaled = getattr(self._optimizer, "grad_scale", None) is not None
        if noted is not None and (is_scaled or noted != self._gradients_now()):
            self._report(
                "changed gradients",
                "Gradients change between the backward and the optimizer's step, as by "
                f"clipping or by the unscaling of a GradScaler, and {_SO}{_TELL}",
            )
        self._compare("between two steps of the optimizer")
        if self._is_due(self._step):
            self._look_outside()

    def _after_step(self, *_: object) -> None:
        if self._is_replaying or self._has_apply:
            return
        if self._has_passed:
            self._has_passed = False
            return
        self._options = self._values = None
        if self._is_due(self._step + 1):
            self._note()

    def _passes_update(self) -> bool:
        """True if nothing is compared before and after this step of the optimizer.

        Cheap, because it is called in each step.
        """
        self._has_passed = (
            self._quiet is not None
            and self._num_backwards == 0
            and self._values is None
            and self._gradients is None
            and self._quiet.passes_update()
        )
        return self._has_passed

    def _count_quiet(self) -> None:
        """Counts the backwards of quiet steps, as `on_backward` does for other
        steps.
        """
        if self._quiet is None:
            return
        step, count = self._quiet.count_backwards()
        self._step = max(self._step, step)
        self._num_backwards += count

    def _on_any_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if optimizer is self._optimizer:
            return
        self._report(
            "another optimizer in apply",
            f"apply() steps another optimizer, {type(optimizer).__name__}, than the "
            "one that aikido_torch.ddp.register was given; its gradients are not "
            "replayed, so a late rank goes on with other parameters than others. Give "
            "its parameters to the one optimizer, as a group, or wrap and register its "
            "model, too.",
        )

    def _look_outside(self) -> None:
        """Reports a parameter that is stepped although no bucket holds its gradient."""
        if self._in_buckets is None:
            return
        parameters = self._all_parameters()
        for place in self._places(len(parameters)):
            p = parameters[place]
            if p.grad is not None and id(p) not in self._in_buckets:
                self._report(
                    "a parameter in no bucket",
                    f"The optimizer steps a parameter of size {list(p.shape)} whose "
                    "gradient DistributedDataParallel does not reduce (it was added or "
                    "unfrozen since the model was wrapped). Its gradient is not "
                    "replayed, so a late rank goes on with other parameters than "
                    "others. Wrap the model again and register it.",
                )

    # ---- notes ----

    def _note(self) -> None:
        self._options = option_values(self._optimizer)
        self._num_noted = len(self._all_parameters())
        self._values = self._values_at(self._places(len(self._all_parameters())))

    def _compare(self, when: str) -> None:
        options, values = self._options, self._values
        if options is None or values is None:
            return
        if len(self._all_parameters()) != self._num_noted:
            return  # a group was added; _look_outside() reports its parameters
        now = option_values(self._optimizer)
        changed = [key for key in [*options, *now] if options.get(key) != now.get(key)]
        is_schedule = self._has_after_step and not self._has_apply
        if changed and not is_schedule:
            key = changed[0]
            what = f"{key} from {options.get(key)!r} to {now.get(key)!r}"
            self._report_options(when, what)
        if values != self._values_at([place for place, _ in values]):
            self._report(
                "changed parameters",
                f"Parameters change {when}, as by clamping or averaging them, and "
                f"{_SO}{_TELL}",
            )

    def _report_options(self, when: str, what: str) -> None:
        self._report(
            "changed options",
            f"Options of the optimizer change {when} ({what}), as by a learning rate "
            f"schedule, and {_SO}{_TELL}",
        )

    def _rates_now(self) -> list[object]:
        rates = [group.get("lr") for group in self._optimizer.param_groups]
        return [rate for rate in rates if isinstance(rate, float)]

    def _all_parameters(self) -> list[torch.Tensor]:
        groups = self._optimizer.param_groups
        sizes = [len(group["params"]) for group in groups]
        if sizes != self._sizes:
            self._sizes = sizes
            self._parameters = [p for group in groups for p in group["params"]]
        return self._parameters

    def _places(self, count: int) -> list[int]:
        """Indices of the tensors to examine in this step, out of `count`."""
        if self._step < _FIRST_STEPS or count <= _SAMPLE:
            return list(range(count))
        turn = self._step // _period(self._step)
        return [(turn + i * count // _SAMPLE) % count for i in range(_SAMPLE)]

    def _gradients_now(self) -> list[object]:
        """Identity and version of the sampled gradients, and one value.

        The value is needed because a GradScaler writes to gradients without changing
        their version.
        """
        parameters = self._all_parameters()
        sampled = [parameters[place].grad for place in self._places(len(parameters))]
        looked_at = [gradient for gradient in sampled if gradient is not None]
        found: list[object] = [(id(g), g._version) for g in looked_at]
        if looked_at:
            found.append(_value(min(looked_at, key=torch.Tensor.numel)))
        return found

    def _values_at(self, places: list[int]) -> list[tuple[int, int]]:
        """(index, digest) of the small parameters among those at `places`."""
        parameters = self._all_parameters()
        found = {
            place: _dense(parameters[place])
            for place in places
            if parameters[place].is_cpu and parameters[place].nbytes <= _MOST_BYTES
        }
        return list(zip(found, _C.digests(list(found.values())), strict=True))

    def _report(self, finding: str, text: str) -> None:
        if finding not in self.findings:
            self.findings.append(finding)
            report(text, self._check)


# C++ holds this callable, and must not keep the audit alive.
def _call(known: "weakref.WeakMethod[Callable[..., None]]", step: int) -> None:
    if (method := known()) is not None:
        method(step)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    is_dense = stride_of_gradient(tensor.size(), tensor.stride()) == tensor.stride()
    return tensor if is_dense else tensor.contiguous()


def _value(gradient: torch.Tensor) -> object:
    """A value that is cheap to compute, and equal for equal bits."""
    if gradient.layout is not torch.strided:
        return None
    if gradient.is_cpu and gradient.nbytes <= _MOST_BYTES:
        return _C.digests([_dense(gradient)])[0]
    # As text, in which nan equals nan.
    return repr(gradient.detach().flatten()[:1].tolist())


def _period(step: int) -> int:
    """Every n-th step is examined around `step`."""
    return next((n for end, n in _PERIODS if step < end), AUDIT_PERIOD)
