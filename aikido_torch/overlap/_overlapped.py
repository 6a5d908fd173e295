# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Data-parallel training whose gradient sums continue during the next forward."""

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
import torch.distributed as dist
from rich.console import Console
from torch import nn
from torch.utils._pytree import tree_leaves

from aikido_torch import _C
from aikido_torch._backend import backend_of, catching_up_on
from aikido_torch._hook import Hook
from aikido_torch.errors import ConfigError
from aikido_torch.overlap._awaited import claim
from aikido_torch.overlap._checks import (
    ParameterCheck,
    check_arguments,
    check_eager,
    check_gradient,
    check_parameters,
    warn_of_classes,
)
from aikido_torch.overlap._iteration import Iteration, IterationWatch
from aikido_torch.overlap._layout import Layout
from aikido_torch.overlap._loop_state import LoopState, PlanPhase
from aikido_torch.overlap._overlapped_buckets import Sums
from aikido_torch.overlap._parameter_usage import Uses
from aikido_torch.overlap._partial_step import check_in_parts
from aikido_torch.overlap._plain import PlainSums
from aikido_torch.overlap._planner import Planner
from aikido_torch.overlap._report import show
from aikido_torch.overlap._retune import Retune, SumLog
from aikido_torch.overlap._step_override import StepOverride
from aikido_torch.recovery._agreement import (
    Registration,
    agree,
    check_policy,
    gather,
    layout_of,
    options_of,
)
from aikido_torch.straggler import Policy, WaitAll

__all__ = ["OverlappedDataParallel"]


class OverlappedDataParallel(nn.Module):
    """Trains `module` on all ranks, and computes while gradients are summed.

    ```python
    model = aikido_torch.overlap.OverlappedDataParallel(net, optimizer)
    for batch in loader:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    model.synchronize()
    ```

    As DistributedDataParallel it begins to sum gradients in the backward pass. But
    `optimizer.step()` does not wait for the sums. Each parameter gets its step when its
    sum is complete, and the next forward waits for each parameter where it uses it. So
    sums can continue during the next forward, in the order in which it needs them.

    Training begins with the buckets of DistributedDataParallel: the backward waits for
    the sums and the step is done at once, at the cost of DistributedDataParallel. After
    some steps, buckets and order are planned from measured times
    (`aikido_torch.ordering`), and planned again when the links get another rate. A plan
    that promises to be 5 % faster and the first buckets take turns of some steps. The
    plan stays only if it is faster and takes the predicted time within 10 %.

    The results equal those of DistributedDataParallel over aikido with the same
    optimizer, bit for bit; over another backend sums may round differently.

    Differences from DistributedDataParallel:

    - A function of torch that reads or writes a parameter waits for its last step. So
      averages of weights are right. Code outside of torch, such as a C++ extension,
      needs `synchronize()` before. So does copying the module, which is refused
      otherwise.
    - `.grad` is None after `optimizer.step()`, as if zero_grad had been called. Between
      backward and step, reading or setting `.grad` waits until it is the mean of all
      ranks, as `wait_for_gradients()` does. So clipping and a GradScaler are right.
      Such a step waits for all sums and is done in one piece. The same holds for an
      optimizer with step hooks, except those of `trace.watch`. After the wait for
      gradients all ranks may also omit the step, as a GradScaler does after it found
      inf: the next backward begins anew.
    - Parameters that a rank did not use count as zeros. Parameters that no rank used
      get no step, as with find_unused_parameters=True. From the first unused parameter
      on, sums begin when the backward ends. They begin only with `optimizer.step()` if
      the forward's outputs are in objects that `torch.utils._pytree` does not know.
      Then put your own collectives on this group behind the step.
    - Buffers, such as the statistics of BatchNorm, belong to each rank after the start.
    - All backwards of a step except the last are under `no_sync()`.
    - Compiled modules and sparse gradients are refused. Modules on CUDA devices are not
      refused, but no test has used one.

    With a policy that skips late ranks, call `catch_up()` at the top of the training
    loop, as with `register`.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        process_group: dist.ProcessGroup | None = None,
        policy: Policy | None = None,
        plan: bool = True,
        watch: Literal["first", "always"] = "first",
    ) -> None:
        """Called by all ranks of the group, which is checked.

        Parameters and buffers become those of rank 0.

        Args:
            module: all of its parameters are on one device.
            optimizer: has exactly the trained parameters of the module. Each optimizer
                of torch.optim except LBFGS; others if they step each parameter by
                itself, which is tested on small parameters.
            process_group: an aikido group; None is the default group.
            policy: None is `WaitAll()`; or `SkipStraggler(...)`. Then calls of your own
                that may skip need another group.
            plan: False sums a bucket for each module, without plan and plain buckets.
            watch: "first" watches some forwards operation by operation: the first, each
                100th, and each forward after a new order of modules. "always" watches
                each forward, which costs some microseconds for each operation. A model
                needs it if its parameters are of another class than nn.Parameter and
                some of its forwards read parameters of other modules; the 100th forward
                warns.

        Raises:
            ConfigError: an argument is wrong or differs between ranks; the text says
                what to do.
        """
        super().__init__()
        policy = WaitAll() if policy is None else policy
        check_arguments(module, optimizer, policy, plan, watch)
        self._backend = backend_of(process_group)
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        check_parameters(module, optimizer)
        check_in_parts(optimizer)
        layout = {"plan": repr(plan)} | options_of(policy=policy)
        layout |= layout_of(module, optimizer)
        call = "OverlappedDataParallel"
        agree(layout, Registration(0, b""), process_group, call=call)
        check_policy(call, policy, process_group)
        self.module = module
        self._optimizer = optimizer
        self._group = process_group
        self._policy = policy
        self._trained = trained
        self._names = {id(p): name for name, p in trained.items()}
        self._parameter_check = ParameterCheck(module, optimizer, self._names)
        self._loop = LoopState()
        self._phase = PlanPhase(plans=plan, skips=self._skips)
        self._watch = IterationWatch()
        kinds = {name: (p.dtype, p.device) for name, p in trained.items()}
        self._planner = Planner(self._backend, process_group, self._bytes, kinds)
        self._is_close = True  # uses and gradients of all parameters are watched
        self._log = SumLog()
        self._uses = Uses(module, trained.values(), self._use, always=watch == "always")
        self._step_override = StepOverride(optimizer)
        self._watching: list[Any] = []  # hooks that only planned buckets need
        self._broadcast_state()
        first = self._planner.first(
            list(reversed(trained)), list(trained), is_plain=self._phase.tries
        )
        self._adopt(first)
        self._install()

    # ---- for the training loop ----

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the module's forward, which waits for each parameter that it needs."""
        check_eager()
        if self._loop.is_closed or not torch.is_grad_enabled():
            self.synchronize()
            return self.module(*args, **kwargs)
        self._sums.begin_forward()
        if not self._is_close:
            outputs = self.module(*args, **kwargs)
            self._hook_outputs(outputs)
            return outputs
        self._loop.is_in_forward = True
        self._uses.begin()
        try:
            outputs = self.module(*args, **kwargs)
        finally:
            self._uses.end()
            self._loop.is_in_forward = False
        self._hook_outputs(outputs)
        return outputs

    def named_parameters(
        self, *args: Any, **kwargs: Any
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Waits for the last step, and yields parameters as of then."""
        self.synchronize()
        return super().named_parameters(*args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Calls zero_grad of the module; waits for no parameter."""
        self.module.zero_grad(set_to_none)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Context in which backwards keep their gradients local, as in DDP's
        `no_sync`.
        """
        return self._loop.no_sync()

    def synchronize(self) -> None:
        """Waits until parameters and optimizer have the state after the last step."""
        self._sums.finish_all()

    def wait_for_gradients(self) -> None:
        """Waits until `.grad` is the mean of all ranks, between backward and step.

        `.grad` may be read and changed then. A parameter that no rank used has None.
        All ranks must call it.
        """
        self._loop.on_wait()
        self._sums.wait_for_gradients()

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, **options: Any
    ) -> torch.Tensor:
        """`torch.nn.utils.clip_grad_norm_` of the mean gradients, for which it waits.

        The norm is that of all parameters, so such a step does not continue in the next
        forward. Clipping by value, or by the norm of each parameter, must wait as well:
        call `wait_for_gradients()` first.
        """
        self.wait_for_gradients()
        return nn.utils.clip_grad_norm_(
            self.module.parameters(), max_norm, norm_type, **options
        )

    def catch_up(
        self,
        after_step: Callable[[], object] | None = None,
        *,
        apply: Callable[[], object] | None = None,
    ) -> int:
        """Applies the steps that the other ranks have done without this rank.

        Call it at the top of the training loop, with a policy that skips, and skip as
        many batches as it returns.

        Args:
            after_step: called after each replayed step, for work that the loop does
                after its own step.
            apply: the work of your loop between the backward and the next zero_grad:
                clip, unscale, step, update. It is called on the gradients that are
                replayed. None is `optimizer.step`.

        Returns:
            The number of applied steps.

        Raises:
            ConfigError: `apply` is missing in a loop that waits for gradients or clips
                them. This rank would use other gradients than the ranks that were on
                time.
        """
        if self._skips and self._loop.has_waited and apply is None:
            raise ConfigError(
                "OverlappedDataParallel: the loop calls wait_for_gradients() or "
                "clip_grad_norm_() before its step, and catch_up() would step without; "
                "give it apply=..., a function that does all that the loop does "
                "between the backward and the next zero_grad."
            )
        self.synchronize()
        replayed = 0
        with self._loop.catching_up():
            while self._skips and self._phase.is_settled and self._sums.replay(apply):
                replayed += 1
                if after_step is not None:
                    after_step()
        return replayed

    def close(self) -> None:
        """Waits for the last step, and removes all hooks from module and optimizer.

        All ranks must call it. If it is called between backward and step, `.grad` is
        the mean of all ranks afterwards.

        Raises:
            torch.distributed.DistBackendError: a sum has failed, for example because a
                rank was lost. The object is closed nevertheless, and the module may be
                stored, used and wrapped again. Parameters of the failed sum have the
                values before the step.
        """
        if self._loop.is_closed:
            return
        self._loop.is_closed = True
        try:
            self._sums.end()
        finally:
            self._uninstall()

    def _uninstall(self) -> None:
        for hook in (*self._hooks, *self._watching):
            hook.remove()
        self._step_override.remove()

    @property
    def outcomes(self) -> deque[_C.Outcome]:
        """Outcomes of the sums, oldest first, the last 100,000."""
        return self._log.outcomes

    @property
    def layout(self) -> Layout:
        """The buckets in use, and their order."""
        return self._layout

    def report(self, console: Console | None = None) -> None:
        """Prints the plan, its reasons, and the time of an iteration.

        It shows the window of each parameter, from the moment when its gradient is
        ready to its use in the next forward; the buckets; and predicted and measured
        times. The times are measurements of this rank. Before the second step it prints
        that nothing was measured.

        Args:
            console: where to print; None is standard output.
        """
        show(
            self._layout,
            self._retune,
            num_bytes=self._bytes,
            num_steps=self._phase.num_steps,
            members=self._backend.place[1],
            console=console,
        )

    # ---- set-up ----

    @property
    def _skips(self) -> bool:
        """True if the policy may skip ranks."""
        return not isinstance(self._policy, WaitAll)

    @property
    def _bytes(self) -> dict[str, int]:
        """Bytes of each parameter's gradient, by name."""
        return {n: p.numel() * p.element_size() for n, p in self._trained.items()}

    @property
    def _retune(self) -> Retune:
        """Measurements of this rank since the last plan."""
        return self._planner.retune

    def _broadcast_state(self) -> None:
        with torch.no_grad():
            for tensor in (*self.module.parameters(), *self.module.buffers()):
                dist.broadcast(tensor.detach(), group_src=0, group=self._group)

    def _install(self) -> None:
        # torch leaves some methods untyped.
        modules: Iterable[Any] = self.module.modules()
        warn_of_classes(self._trained)
        claim(self._trained.values(), self)
        state = Hook(self._before_state)
        self._hooks: list[Any] = []
        for module in modules:
            self._hooks += [
                module.register_state_dict_pre_hook(state),
                module.register_load_state_dict_pre_hook(state),
            ]
        self._hooks += [
            self._optimizer.register_state_dict_pre_hook(state),
            self._optimizer.register_load_state_dict_pre_hook(state),
        ]
        self._step_override.install(self._step)
        if self._skips:
            catching_up_on[self._backend] = weakref.ref(self)

    def _new_sums(self, kind: type[Sums]) -> Sums:
        return kind(
            self._trained,
            self._optimizer,
            self._step_override.before,
            self._backend,
            wait=self._watch.wait,
            on_sum=self._log.add,
        )

    def _watch_module(self, sums: Sums) -> None:
        """Installs the hooks that `sums` or a first plan needs, and removes others."""
        self._is_close = not (self._layout.is_plain and self._phase.is_settled)
        for hook in self._watching:
            hook.remove()
        self._watching.clear()
        gradient = Hook(self._on_gradient, is_weak=True)
        trained: dict[str, Any] = self._trained  # torch leaves some methods untyped
        for name, parameter in trained.items():
            if self._is_close or name in sums.triggers:
                hook = parameter.register_post_accumulate_grad_hook(gradient)
                self._watching.append(hook)
        if not self._is_close:
            return
        before = Hook(self._before_forward, self._check_copy)
        after = Hook(self._after_forward)
        for module in self.module.modules():
            self._watching += [
                module.register_forward_pre_hook(before),
                module.register_forward_hook(after, always_call=True),
            ]

    def _adopt(self, layout: Layout) -> None:
        self._layout = layout
        is_strict = not (self._skips and self._phase.is_settled)
        policy = WaitAll() if is_strict else self._policy
        sums = self._new_sums(PlainSums if layout.is_plain else Sums)
        sums.lay_out(layout, policy.native(), is_strict=is_strict)
        self._watch_module(sums)
        self._sums: Sums = sums

    # ---- hooks ----

    def _before_state(self, *_: object) -> None:
        self.synchronize()

    def _check_copy(self) -> None:
        if self._sums.num_due:
            raise ConfigError(
                "OverlappedDataParallel: the module is being copied or stored, and a "
                "step of its parameters is still to come; call synchronize() before."
            )

    def _before_forward(self, module: nn.Module, _: object) -> None:
        if not self._loop.is_in_forward or not self._uses.enter(module):
            self.synchronize()
            return
        own = self._uses.by_module[module]
        if self._sums.num_due:
            self._sums.finish(own.values())
        for i in own:
            self._watch.use(self._names[i])

    def _after_forward(self, module: nn.Module, *_: object) -> None:
        if self._loop.is_in_forward:
            self._uses.leave(module)

    def _on_read(self, parameter: torch.Tensor, *, of_gradient: bool) -> None:
        """A parameter or gradient that is not final is about to be read."""
        if self._sums.read(parameter, of_gradient=of_gradient):
            self._loop.on_wait()

    def _use(self, parameter: torch.Tensor) -> None:
        """A watched forward is about to use the parameter."""
        self._sums.finish([parameter])
        self._watch.use(self._names[id(parameter)])

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        name = self._names[id(parameter)]
        if not self._loop.is_syncing:
            self._sums.check_done(name)
            return
        check_gradient(name, parameter)
        if self._is_close:  # else only some parameters would be seen
            self._watch.ready(name)
        self._sums.take(name)

    def _hook_outputs(self, outputs: object) -> None:
        """Hooks the outputs, so that a backward through them sends all sums before it
        ends.

        Otherwise a collective that the user calls between backward and step would come
        before the remaining sums on one rank, and after them on a rank that used each
        parameter.
        """
        hook = Hook(self._on_backward, is_weak=True)
        for output in tree_leaves(outputs):
            if isinstance(output, torch.Tensor) and output.grad_fn is not None:
                output.register_hook(hook)  # type: ignore[no-untyped-call]

    def _on_backward(self, _: torch.Tensor) -> None:
        if not self._loop.begins(torch._C._current_graph_task_id()):
            return
        self._sums.begin_backward()
        torch.autograd.Variable._execution_engine.queue_callback(
            self._sums.end_backward
        )

    # ---- steps ----

    def _step(self, closure: Callable[[], Any] | None) -> None:
        if closure is not None:
            raise ConfigError(
                "OverlappedDataParallel: step(closure) evaluates the model in the "
                "step, which is done in parts here; call backward before step()."
            )
        self._parameter_check.run()
        # A replayed step, which takes no time of this rank's own.
        if self._loop.is_catching_up:
            self._sums.ask_for_step()
            return
        self._sums.send_rest()
        # At this point all ranks know the same signals of the step before, regardless
        # of which of its sums each rank has waited for.
        is_asked = self._sums.was_signalled
        self._sums.ask_for_step()
        iteration, sums = self._watch.step(), self._log.take()
        change = self._phase.on_step(is_asked=is_asked)
        if change == "order":
            self._adopt_order(iteration)
            return
        self._retune.add(iteration, sums)
        if change == "settle" and self._phase.tries:
            self._watch_module(self._sums)
        elif change != "keep":
            self._plan_anew()
        self._sums.signal = self._phase.may_ask and self._retune.wants_plan

    def _adopt_order(self, first: Iteration) -> None:
        """Adopts the order of parameters in the first iteration of rank 0."""
        self.synchronize()
        ready = [name for name, _ in first.ready]
        uses = [self._names[i] for i in self._uses.order]
        ready, uses = gather((ready, uses), self._group)[0]
        for names in (ready, uses):
            names += [name for name in self._trained if name not in names]
        self._adopt(self._planner.first(ready, uses, is_plain=self._phase.tries))

    def _plan_anew(self) -> None:
        """All ranks adopt the plan of rank 0 for the rank that computes longest."""
        self.synchronize()
        before = self._layout
        layout = self._planner.next(before) or before
        if self._phase.tries and layout.sends_as(before):
            self._layout = layout
        else:
            self._adopt(layout)  # from now on with the policy that may skip
        # A rank that asked for a plan repeats its signal until here.
        self._sums.was_signalled = False
        self._log.take()
        self._watch.step()  # the time of planning belongs to no iteration
