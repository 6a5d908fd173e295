# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Split of a model into the modules of a plan's stages."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from torch import nn

from aikido_torch import _C
from aikido_torch.errors import ConfigError

__all__ = ["cut"]


def cut(model: nn.Sequential, plan: _C.Plan) -> list[nn.Module]:
    """The modules of a plan's stages, for `Pipeline`.

    Args:
        model: an `nn.Sequential`, which may contain nested ones; every other module
            inside is kept whole on one stage. The stages share its parameters.
        plan: plan from a profile of this model; its layers are named like the modules.

    Raises:
        ConfigError: the model is no Sequential, or the plan belongs to another model,
            or cuts inside a module that is kept whole; the text names the layer.
    """
    if not isinstance(model, nn.Sequential):
        raise ConfigError(
            f"the model is a {type(model).__name__}; only an nn.Sequential is cut "
            "by itself. Write a module for each stage, and pass these to Pipeline."
        )
    if not isinstance(plan, _C.Plan):
        raise ConfigError(
            f"plan is a {type(plan).__name__}; pass what pipeline.partition returns."
        )
    stage_of = {
        layer: s for s, stage in enumerate(plan.stages) for layer in stage.layers
    }
    pieces: list[OrderedDict[str, nn.Module]] = [OrderedDict() for _ in plan.stages]
    used: set[str] = set()
    # By stage: a module with parameters but without layers of the plan.
    unknown: dict[int, str] = {}
    at = 0
    for path, module in _pieces(model, "", stage_of):
        layers = [name for name in stage_of if name == path or _is_in(name, path)]
        used |= {*layers}
        # A module without layers stays on the present stage.
        stages = {stage_of[name] for name in layers} or {at}
        if len(stages) > 1:
            raise ConfigError(
                f'the plan has layers of "{path}" on stages '
                f"{' and '.join(map(str, sorted(stages)))}; a {type(module).__name__} "
                "is not cut. Profile the model with whole= naming it."
            )
        (stage,) = stages
        if stage < at:
            raise ConfigError(
                f'the plan has layer "{path}" on stage {stage}, after a layer on '
                f"stage {at}; stages of a Sequential are layers in a row."
            )
        at = stage
        pieces[stage][path.replace(".", "_")] = module
        if not layers and any(True for _ in module.parameters()):
            unknown[stage] = path
    if missing := stage_of.keys() - used:
        raise ConfigError(
            f'the plan has layer "{min(missing)}", and the model has not; it is the '
            "plan of another model."
        )
    made = [nn.Sequential(piece) for piece in pieces]
    # Merged layers have one entry in the profile: the first layer, with the bytes of
    # all.
    for stage, path in unknown.items():
        has = sum(p.numel() * p.element_size() for p in made[stage].parameters())
        told = plan.stages[stage].parameter_bytes
        if has > told:
            raise ConfigError(
                f'the model has "{path}", which the plan has not: stage {stage} would '
                f"have {has} bytes of parameters, and the plan has {told:.0f} there. "
                "It is the plan of another model; profile this one."
            )
    return list(made)


def _is_in(layer: str, path: str) -> bool:
    return layer.startswith((f"{path}.", f"{path}#"))


def _pieces(
    module: nn.Module, path: str, stage_of: Mapping[str, int]
) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        at = f"{path}.{name}" if path else name
        if isinstance(child, nn.Sequential) and at not in stage_of:
            yield from _pieces(child, at, stage_of)
        else:
            yield at, child
