# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""`register`: checks a model and installs the communication hook."""

import gc
import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from aikido_torch._backend import backend_of
from aikido_torch._hook import Hook
from aikido_torch.data import BackupSampler
from aikido_torch.data._backups import Backups, layout_of_sampler
from aikido_torch.ddp._dry_run import check_gradients, check_state, where_to_set
from aikido_torch.ddp._futures import future_of
from aikido_torch.ddp._handle import Handle
from aikido_torch.ddp._slack import slack_of, why_no_slack
from aikido_torch.ddp._step_audit import StepAudit
from aikido_torch.ddp._step_training import StepTraining, facts_of, why_no_steps
from aikido_torch.ddp._unwrap import unwrap_model, unwrap_optimizer
from aikido_torch.ddp._user_step import UserStep
from aikido_torch.errors import ConfigError
from aikido_torch.reassign import StepLoader
from aikido_torch.recovery._agreement import (
    Agreed,
    Registration,
    agree,
    check_policy,
    layout_of,
    options_of,
)
from aikido_torch.recovery._catch_up_policy import StateCopy
from aikido_torch.recovery._report import CHECKS, Check
from aikido_torch.recovery._state import Stateful, TrainingState
from aikido_torch.recovery._together import stepped_together
from aikido_torch.straggler import Policy, SkipStraggler, WaitAll

__all__ = ["register"]

_numbers = itertools.count()
_LATE = ("drop", "carry")
# Registered models that are still alive, in any group.
_registered: "weakref.WeakSet[DistributedDataParallel]" = weakref.WeakSet()


def register(
    model: DistributedDataParallel,
    *,
    optimizer: torch.optim.Optimizer,
    policy: Policy | None = None,
    apply: Callable[[], object] | None = None,
    after_step: Callable[[], object] | None = None,
    state: Mapping[str, Stateful] | None = None,
    copy: StateCopy | None = None,
    batches_per_step: int = 1,
    late: Literal["drop", "carry"] = "drop",
    sampler: BackupSampler | None = None,
    steps: StepLoader | None = None,
    check: Check = "warn",
    check_every: int = 100,
    slack: int | None = None,
) -> Handle:
    """Installs the communication hook that averages gradients under `policy`.

    Call it once, after wrapping the model, on all ranks of its group with equal values.
    The first two steps are strict, three with a static graph. A dry run pickles the
    state, reads it back and compares it; objects in `state` load a copy of theirs.

    Args:
        model: wrapped over an aikido group; torch.compile or Fabric may be around it.
        optimizer: of the loop, bare or wrapped; `catch_up` steps it, too.
        policy: None is `SkipStraggler()`; on_log_full="exclude" needs a whole `state`.
        apply: the work of your loop between backward and the next zero_grad: unscale,
            clip, step, update, scheduler. `catch_up` calls it on the gradients that it
            replays. None: `optimizer.step`.
        after_step: called after each step that `catch_up` replays; for schedulers.
        state: other objects by name with state_dict and load_state_dict: schedulers, a
            GradScaler; {}: there are none. With `apply` or `after_step` and without
            `state` steps are only replayed, because a copy needs `state`.
        copy: when to copy, torch's generators too if they are equal; or `StateCopy()`.
        batches_per_step: of accumulated gradients; checked in the first step.
        late: "drop" loses a skipped gradient of this rank, "carry" adds it to its next
            gradient (`aikido_torch.ddp`).
        sampler: the DataLoader's batch_sampler. `ActiveBackup` needs it; torch's
            generators are seeded in each step, and the handle counts from its steps.
        steps: loader of the loop, which calls `catch_up`: `aikido_torch.reassign`.
        check: "warn" warns if the loop does more than these arguments say, and every
            `check_every` steps a rank with a different state copies the majority's.
            "error" raises RanksDifferError; "off" and WaitAll check nothing.
        slack: steps by which updates are late, with WaitAll; or StepLoader(slack=...).

    Raises:
        ConfigError: all ranks would wait in every step again, a late rank could not be
            served, or an argument is wrong or differs between ranks.
    """
    model, optimizer = unwrap_model(model), unwrap_optimizer(optimizer)
    _check_model(model)
    _check_kinds(optimizer, policy, apply, after_step, state, copy, steps)
    policy, rule = policy or SkipStraggler(), copy or StateCopy()
    is_whole = state is not None or (apply is None and after_step is None)
    backups = Backups(sampler, policy, backend_of(model.process_group).place)
    others = dict(state or {}) | backups.states()
    refusal = _refusal(model, optimizer, apply, policy, others, state, is_whole)
    terms, user = (late, batches_per_step, sampler), (optimizer, apply, others)
    refusal = refusal or why_no_steps(steps, model, policy, *terms)
    refusal = refusal or why_no_slack(slack, steps, policy, late, *user)
    values = _values(late, batches_per_step, check, check_every, slack, refusal)
    values |= options_of(policy=policy, copy=rule) | facts_of(steps)
    agreed = _agree(model, optimizer, sampler, others, values)
    _check_choices(policy, late, batches_per_step, model, is_whole, refusal)
    backups.check(policy, state or {}, batches_per_step=batches_per_step, late=late)
    handle = Handle(
        *(model, policy, _user_step(optimizer, apply, after_step)),
        state=_whole_state(model, optimizer, others, agreed, steps),
        copy=rule if is_whole else None,
        batches_per_step=batches_per_step,
        number=agreed.number,
        backups=backups,
        audit=_audit(optimizer, policy, check, apply, after_step),
        checking=_checked(check, check_every),
        carries_late=late == "carry",
        slack=slack_of(slack, steps),
    )
    return _installed(handle, model, backups, steps, agreed.number)


def _values(
    late: str,
    batches_per_step: int,
    check: Check,
    check_every: int,
    slack: object,
    refusal: str,
) -> dict[str, str]:
    """Further facts that must be equal on all ranks, by argument."""
    return {
        "late": str(late),
        "batches_per_step": str(batches_per_step),
        "check": f"{check}, {check_every}",
        "slack": repr(slack),
        "model": refusal or "free",
    }


def _whole_state(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    others: Mapping[str, Stateful],
    agreed: Agreed,
    steps: StepLoader | None,
) -> TrainingState:
    # The micro-batches of a loader seed the generators, differently on each rank.
    has_rng = agreed.has_equal_generators and steps is None
    return TrainingState(model.module, optimizer, others, has_rng=has_rng)


def _refusal(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    apply: Callable[[], object] | None,
    policy: Policy,
    others: Mapping[str, Stateful],
    state: Mapping[str, Stateful] | None,
    is_whole: bool,
) -> str:
    """Reason why this rank cannot register the model; "" if it can.

    The ranks agree on the reason before they raise it. A rank that raised at once would
    leave the other ranks waiting.
    """
    skips = not isinstance(policy, WaitAll)
    try:
        check_gradients(model, skips=skips)
        _check_optimizer(model, optimizer, policy, apply)
        if skips and is_whole:
            taken = TrainingState(model.module, optimizer, others, has_rng=False)
            check_state(taken, state or {})
    except ConfigError as error:
        return str(error)
    return _why_taken(model) or _why_alone(policy)


def _user_step(
    optimizer: torch.optim.Optimizer,
    apply: Callable[[], object] | None,
    after_step: Callable[[], object] | None,
) -> UserStep:
    # Looked up at each call, because schedulers replace optimizer.step.
    return UserStep(optimizer, apply or (lambda: optimizer.step()), after_step)


def _audit(
    optimizer: torch.optim.Optimizer,
    policy: Policy,
    check: Check,
    apply: object,
    after_step: object,
) -> StepAudit:
    return StepAudit(
        optimizer,
        check="off" if isinstance(policy, WaitAll) else check,
        has_apply=apply is not None,
        has_after_step=after_step is not None,
    )


def _installed(
    handle: Handle,
    model: DistributedDataParallel,
    backups: Backups,
    steps: StepLoader | None,
    number: int,
) -> Handle:
    backups.install(model, handle._collect, handle._on_forward)
    if steps is None:
        handle._batches.count_in(model)
    # DDP's reducer holds the state of a hook where the garbage collector does not see
    # it. The handle refers to the user's functions, and these to the model. So the
    # model holds the handle, and the reducer holds only a weak reference.
    object.__setattr__(model, "_aikido_hook", Hook(handle._reduce))
    _install_hook(model, handle)
    _registered.add(model)
    if steps is not None:
        optimizer = handle._user_step.optimizer
        steps.follow(StepTraining(model, handle, optimizer, number))
    return handle


def _install_hook(model: DistributedDataParallel, handle: Handle) -> None:
    """Does what `register_comm_hook` does, which takes no hook in C++."""
    state = weakref.ref(handle)
    call = _call_hook if handle._delay is None else _call_delayed_hook
    handle._quiet.install(model.reducer, state, call)
    model._comm_hooks.append((call, state))
    if model.logger is not None:
        model.logger._set_comm_hook_name(call.__qualname__)


def _call_hook(
    of_model: "weakref.ref[Handle]", bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    handle = of_model()
    assert handle is not None, "the model that has it is in its backward"
    buffer = bucket.buffer()
    return future_of(handle._reduce(bucket, buffer), buffer, handle._rescue)


def _call_delayed_hook(
    of_model: "weakref.ref[Handle]", bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    handle = of_model()
    assert handle is not None
    assert handle._delay is not None
    return handle._delay.hook(handle, bucket)


def _agree(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    sampler: object,
    others: Mapping[str, Stateful],
    values: Mapping[str, str],
) -> Agreed:
    layout = layout_of(model.module, optimizer) | layout_of_sampler(sampler)
    layout |= {f"state.{name}": type(o).__name__ for name, o in others.items()}
    own = Registration(next(_numbers), torch.get_rng_state().numpy().tobytes())
    return agree(layout | dict(values), own, model.process_group)


def _check_kinds(
    optimizer: object,
    policy: object,
    apply: object,
    after_step: object,
    state: object,
    copy: object,
    steps: object,
) -> None:
    def refuse(argument: str, value: object, takes: str) -> ConfigError:
        return ConfigError(f"register: {argument} is {value!r}; it takes {takes}.")

    if not isinstance(optimizer, torch.optim.Optimizer):
        raise refuse("optimizer", optimizer, "an optimizer, such as SGD(...)")
    if policy is not None and not isinstance(policy, Policy):
        raise refuse(
            "policy", policy, "WaitAll(), SkipStraggler(...) or ActiveBackup(...)"
        )
    for name, value in (("apply", apply), ("after_step", after_step)):
        if value is not None and not callable(value):
            raise refuse(name, value, "a function without arguments")
    if copy is not None and not isinstance(copy, StateCopy):
        raise refuse("copy", copy, "StateCopy(...)")
    if steps is not None and not isinstance(steps, StepLoader):
        raise refuse("steps", steps, "aikido_torch.reassign.StepLoader(...)")
    if state is None:
        return
    if not isinstance(state, Mapping):
        raise refuse("state", state, "a dict of names and objects")
    for name, part in state.items():
        methods = ("state_dict", "load_state_dict")
        if isinstance(part, type) or not all(
            callable(getattr(part, method, None)) for method in methods
        ):
            raise refuse(
                f"state[{name!r}]",
                part,
                "an object with state_dict and load_state_dict",
            )


def _checked(check: Check, every: int) -> tuple[Check, int]:
    if check not in CHECKS:
        raise ConfigError(f"register: check is {check!r}; it takes {CHECKS}.")
    if type(every) is not int or every < 1:
        raise ConfigError(
            f"register: check_every is {every!r}; it takes a whole number of steps, at "
            "least 1."
        )
    return check, every


def _why_taken(model: DistributedDataParallel) -> str:
    """Reason why the model cannot be registered once more; "" if it can."""
    if model not in _registered:
        return ""
    net = type(model.module).__name__
    return (
        f"register: this model (DistributedDataParallel of {net}) is registered "
        "already; one DistributedDataParallel has one hook: wrap the net again to "
        "change it."
    )


def _why_alone(policy: Policy) -> str:
    """Reason why the model cannot be registered beside others; "" if it can.

    An excluded rank copies the state of each model separately, from ranks that train on
    meanwhile. So the models would be at different steps of the loop.
    """
    if not _is_beside(policy):
        return ""
    gc.collect()  # a model without references may not have been collected yet
    if not _is_beside(policy):
        return ""
    return (
        'register: on_log_full="exclude" takes one model in a process, and another one '
        "is registered: a rank that was left out would copy them at different steps of "
        'the loop. Use on_log_full="wait" for all of them; or, if the other training '
        "is over, call close() on its handle first."
    )


def _is_beside(policy: Policy) -> bool:
    handles = [h for h in stepped_together.handles() if isinstance(h, Handle)]
    others = [h for h in handles if h._end_check and not h._end_check.is_behind(h)]
    return bool(others) and (
        _excludes(policy) or any(h._policies.excludes for h in others)
    )


def _excludes(policy: Policy) -> bool:
    return getattr(policy, "on_log_full", "wait") == "exclude"


def _check_model(model: DistributedDataParallel) -> None:
    if not isinstance(model, DistributedDataParallel):
        raise ConfigError(
            f"model is a {type(model).__name__}; wrap it in DistributedDataParallel "
            "first."
        )
    if model.find_unused_parameters and not model.static_graph:
        raise ConfigError(
            "find_unused_parameters=True makes DDP all-reduce a map of used parameters "
            "in every step, for which all ranks wait; use False, or static_graph=True. "
            f"({where_to_set('find_unused_parameters', False)}.)"
        )
    # Since torch 2.14 the option is called forward_sync_buffers; torch still sets the
    # old attribute.
    if model.broadcast_buffers and len(list(model.module.buffers())) > 0:
        names = [name for name, _ in model.module.named_buffers()][:3]
        raise ConfigError(
            f"The model has buffers ({', '.join(names)}, ...) which DDP broadcasts in "
            "every forward, for which all ranks wait; wrap it with "
            "forward_sync_buffers=False (broadcast_buffers=False where torch has no "
            "forward_sync_buffers). "
            f"({where_to_set('broadcast_buffers', False)}.)"
        )
    backend_of(model.process_group)


def _check_choices(
    policy: Policy,
    late: str,
    batches_per_step: int,
    model: DistributedDataParallel,
    is_whole: bool,
    refusal: str,
) -> None:
    if refusal:
        raise ConfigError(refusal)
    is_whole_number = type(batches_per_step) is int
    if not is_whole_number or batches_per_step < 1:
        raise ConfigError(
            f"batches_per_step is {batches_per_step!r}; it takes a whole number, at "
            "least 1."
        )
    if late not in _LATE:
        raise ConfigError(f"late is {late!r}; it takes {' or '.join(_LATE)}.")
    check_policy("register", policy, model.process_group)
    if _excludes(policy) and not is_whole:
        raise ConfigError(
            'on_log_full="exclude" makes a rank that was late for too long copy the '
            "state of another one, and with apply or after_step register cannot tell "
            "what that is; give state={...}, {} if there is nothing else, or "
            'on_log_full="wait".'
        )


def _check_optimizer(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    policy: Policy,
    apply: Callable[[], object] | None,
) -> None:
    if not isinstance(policy, WaitAll):
        _check_others(model, optimizer)
    if isinstance(optimizer, torch.optim.LBFGS) and apply is None:
        raise ConfigError(
            "LBFGS evaluates the model in its step, which a late rank cannot do for "
            "the data of the others; take another optimizer."
        )
    stepped = {id(p) for g in optimizer.param_groups for p in g["params"]}
    left_out = [
        name
        for name, p in model.module.named_parameters()
        if p.requires_grad and id(p) not in stepped
    ]
    if left_out:
        raise ConfigError(
            f"The optimizer does not step {len(left_out)} parameters of the model "
            f"({', '.join(left_out[:3])}, ...), so catch_up could not bring them up to "
            "date; give it all parameters that require gradients."
        )


def _check_others(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer
) -> None:
    """Refuses parameters that the optimizer steps but no bucket holds."""
    reduced = {
        id(p)
        for name, p in model.module.named_parameters()
        if name not in model.parameters_to_ignore
    }
    others = [
        f"param_groups[{g}]['params'][{i}] {list(p.shape)}"
        for g, group in enumerate(optimizer.param_groups)
        for i, p in enumerate(group["params"])
        if p.requires_grad and id(p) not in reduced
    ]
    if others:
        raise ConfigError(
            f"register: the optimizer steps {len(others)} parameters whose gradients "
            f"DistributedDataParallel does not reduce ({', '.join(others[:3])}, ...), "
            "so a late rank could not replay their steps; make them parameters of the "
            "module that is wrapped."
        )
