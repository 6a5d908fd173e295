# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A late rank catches up by replay and by copy, with all parts of a training."""

import hashlib
import pickle
import re
from dataclasses import dataclass, field

import pytest
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp, trace
from aikido_torch.ddp import StateCopy
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks

WIDTH = 32
STEPS = 24
LATE_RANK = 2
LATE_STEP = 5
STEPS_LATE = 5
POLICY = SkipStraggler(min_contributors=2, floor_ms=40, ceiling_ms=40)
COPY = {
    "replay": StateCopy(when="never"),
    "copy": StateCopy(when="always", timeout_ms=700),
}


@dataclass(frozen=True)
class Recipe:
    """One kind of training."""

    optimizer: str = "SGD"
    arguments: dict = field(default_factory=lambda: {"lr": 0.05})
    options: dict = field(default_factory=dict)
    accumulate: int = 1
    clip: float = 0.0
    schedule: bool = False
    scaler: bool = False
    norm: bool = False
    unused: bool = False


BUCKETS = {"bucket_cap_mb": 0.005}
RECIPES = {
    "momentum": Recipe(
        arguments={"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        options=BUCKETS,
    ),
    "adam": Recipe("Adam", {"lr": 0.01, "amsgrad": True}, BUCKETS),
    "adamw": Recipe("AdamW", {"lr": 0.01, "foreach": True}),
    "adagrad": Recipe("Adagrad", {"lr": 0.01}),
    "rmsprop": Recipe("RMSprop", {"lr": 0.001, "centered": True, "momentum": 0.5}),
    "adadelta": Recipe("Adadelta", {"lr": 0.5}),
    "adamax": Recipe("Adamax", {"lr": 0.01}),
    "nadam": Recipe("NAdam", {"lr": 0.01}),
    "radam": Recipe("RAdam", {"lr": 0.01}),
    "rprop": Recipe("Rprop", {"lr": 0.001}),
    "asgd": Recipe("ASGD", {"lr": 0.01}),
    "adafactor": Recipe("Adafactor", {"lr": 0.01}),
    "clipped on a schedule": Recipe(
        "AdamW", {"lr": 0.01}, BUCKETS, clip=0.1, schedule=True
    ),
    "clipped views": Recipe(
        options={"gradient_as_bucket_view": True, **BUCKETS}, clip=0.1
    ),
    "accumulated": Recipe("Adam", {"lr": 0.01}, accumulate=3, clip=0.1),
    "mixed precision": Recipe(
        "Adam", {"lr": 0.01}, BUCKETS, scaler=True, clip=0.1, schedule=True
    ),
    "batch norm": Recipe(arguments={"lr": 0.05, "momentum": 0.9}, norm=True),
    "unused parameters": Recipe(
        arguments={"lr": 0.05, "weight_decay": 0.1},
        options={"static_graph": True},
        unused=True,
    ),
}


class Net(nn.Module):
    def __init__(self, recipe):
        super().__init__()
        torch.manual_seed(3)
        middle = [nn.BatchNorm1d(WIDTH)] if recipe.norm else []
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), *middle, nn.ReLU(), nn.Linear(WIDTH, 10)
        )
        if recipe.unused:
            self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self.layers(x)


def digest(*things):
    found = hashlib.sha256()
    for thing in things:
        if isinstance(thing, torch.Tensor):
            thing = thing.detach().contiguous().reshape(-1).view(torch.uint8)
            found.update(thing.numpy().tobytes())
        else:
            found.update(repr(thing).encode())
    return found.hexdigest()


def flat(value):
    """The keys and leaves of a state_dict, in order."""
    if isinstance(value, dict):
        return [leaf for k in sorted(value, key=str) for leaf in (k, *flat(value[k]))]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


class Training:
    """The training loop of one recipe on one rank."""

    def __init__(self, rank, recipe, way):
        self.rank, self.recipe = rank, recipe
        self.net = Net(recipe)
        no_sync = {"broadcast_buffers": False} if recipe.norm else {}
        self.model = DistributedDataParallel(self.net, **recipe.options, **no_sync)
        self.optimizer = getattr(optim, recipe.optimizer)(
            self.net.parameters(), **recipe.arguments
        )
        self.state = {}
        if recipe.schedule:
            self.state["scheduler"] = optim.lr_scheduler.OneCycleLR(
                self.optimizer, max_lr=0.02, total_steps=STEPS + 1
            )
        if recipe.scaler:
            self.state["scaler"] = torch.amp.GradScaler(
                "cpu", init_scale=1024.0, growth_interval=3
            )
        self.watch = trace.watch(self.model, self.optimizer, control=False)
        self.handle = ddp.register(
            self.model,
            optimizer=self.optimizer,
            policy=POLICY,
            apply=self.apply,
            state=self.state,
            copy=COPY[way],
            batches_per_step=recipe.accumulate,
        )

    def apply(self):
        scaler = self.state.get("scaler")
        if scaler:
            scaler.unscale_(self.optimizer)
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.clip)
        if scaler:
            scaler.step(self.optimizer)
            scaler.update()
        else:
            self.optimizer.step()
        if "scheduler" in self.state:
            self.state["scheduler"].step()

    def backward(self, number):
        generator = torch.Generator().manual_seed(1000 * number + self.rank)
        x = torch.randn(8, WIDTH, generator=generator)
        scaler = self.state.get("scaler")
        with torch.autocast("cpu", torch.bfloat16, enabled=scaler is not None):
            loss = self.model(x).square().mean()
        (scaler.scale(loss) if scaler else loss).backward()

    def step(self, number):
        self.optimizer.zero_grad()
        for part in range(self.recipe.accumulate - 1):
            with self.model.no_sync():
                self.backward(number + 50 * (part + 1))
        self.backward(number)
        self.apply()

    def run(self):
        step, ups, buffers, was_late = 0, [], {}, False
        while True:
            up = self.handle.catch_up()
            if up.state_copied_from is not None:
                at = step + up.steps_copied
                ups.append((at, up.state_copied_from, self.buffers()))
            assert up.batches_to_skip == up * self.recipe.accumulate
            step += up
            buffers[step] = self.buffers()
            if step >= STEPS:
                break
            if self.rank == LATE_RANK and step >= LATE_STEP and not was_late:
                was_late = True
                self.fall_behind()
            self.step(step)
            step += 1
            late(0.01)  # a step takes time, so that the late rank can catch up
        dist.barrier()
        others = {name: other.state_dict() for name, other in self.state.items()}
        return {
            "fingerprint": digest(
                *self.net.parameters(), *flat(self.optimizer.state_dict())
            ),
            "others": digest(*flat(others)),
            "step": (step, self.handle.steps),
            "watched": self.watch.step,
            "replayed": self.handle.replayed_steps,
            "copied": self.handle.copied_steps,
            "served": self.handle.served_copies,
            "ups": ups,
            "buffers": buffers,
            "ways": [s.way for s in self.handle.by_step],
        }

    def fall_behind(self, most_s=10.0):
        """Waits until the others are some steps ahead, on a slow machine too."""
        waited = 0.0
        while self.handle._steps_held() < STEPS_LATE and waited < most_s:
            late(0.01)
            waited += 0.01

    def buffers(self):
        return digest(*self.net.buffers())


def train(rank, size, way, names):
    return {name: Training(rank, RECIPES[name], way).run() for name in names}


@pytest.mark.parametrize("way", COPY)
def test_a_late_rank_catches_up_with_the_same_bits(way):
    by_rank = run_ranks(3, train, way, list(RECIPES), deadline=110.0)
    for name in RECIPES:
        results = [found[name] for found in by_rank]
        for key in ("fingerprint", "others"):
            assert len({result[key] for result in results}) == 1, (name, key)
        assert {result["step"] for result in results} == {(STEPS, STEPS)}, name
        # The scaler skips the optimizer in steps with overflow.
        if not RECIPES[name].scaler:
            assert {result["watched"] for result in results} == {STEPS}, name
        last = results[LATE_RANK]
        if way == "replay":
            assert (last["replayed"] > 0, last["copied"]) == (True, 0), name
        else:
            assert last["copied"] > 0, name
            assert sum(result["served"] for result in results) > 0, name
        assert last["ways"].count("copied") == last["copied"], name
        assert last["ways"].count("replayed") == last["replayed"], name
        for result in results:
            for step, donor, buffers in result["ups"]:
                assert results[donor]["buffers"][step] == buffers, name


def fail_to_fit(rank, size, own):
    """A buffer added after registration differs on the late rank."""
    training = Training(rank, Recipe(norm=True), "copy")
    count = own if rank == LATE_RANK else 4
    if count:
        training.net.register_buffer("extra", torch.zeros(count))
    step = 0
    try:
        while step < 100:
            if rank == LATE_RANK and step % 8 == 5:
                training.fall_behind(2.0)
            before = digest(*training.net.state_dict().values())
            step += training.handle.catch_up()
            training.step(step)
            step += 1
            late(0.01)
    except ConfigError as error:
        after = digest(*training.net.state_dict().values())
        late(3.0)  # the others get the error before this rank leaves
        # At its end this rank must not compare states with ranks that wait for it.
        assert training.handle._end_check.has_failed
        return str(error), before == after
    except dist.DistBackendError as error:
        # This rank was in a step that the others do not make any more.
        if "has left group" not in str(error):
            raise
        return None, True
    return "no error", True


@pytest.mark.beside
@pytest.mark.parametrize("count", [0, 5])
def test_a_state_that_does_not_fit_is_an_error_on_all_ranks_and_changes_no_state(count):
    results = run_ranks(3, fail_to_fit, count)
    heard = [text for text, _ in results if text is not None]
    assert len(heard) >= 2
    texts = set(heard)
    assert len(texts) == 1, texts
    # On a busy machine another rank may be late first and ask rank 2.
    fits = re.fullmatch(
        r"catch_up: model differs between ranks: model.extra is (.*) on rank (\d) but "
        r"(.*) on rank (\d); nothing was copied; give all ranks the same model.",
        texts.pop(),
    )
    lates = f"torch.float32 [{count}]" if count else "missing"
    own, asker, theirs, donor = fits.groups()
    assert {own, theirs} == {lates, "torch.float32 [4]"}
    assert (asker == "2") == (own == lates)
    assert "2" in (asker, donor)
    assert all(is_unchanged for _, is_unchanged in results)


def register_differently(rank, size, what):
    net = nn.Linear(3, 3)
    momentum = 0.5 if what == "option" and rank == 1 else 0.9
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=momentum)
    if what == "optimizer" and rank == 2:
        optimizer = optim.Adam(net.parameters(), lr=0.1)
    state = {"scaler": torch.amp.GradScaler("cpu")}
    if what == "state" and rank == 2:
        state = {}
    policy = SkipStraggler(floor_ms=30 if what == "policy" and rank == 2 else 20)
    late_gradients = "carry" if what == "late" and rank == 1 else "drop"
    with pytest.raises(ConfigError) as caught:
        ddp.register(
            DistributedDataParallel(net),
            optimizer=optimizer,
            policy=policy,
            state=state,
            late=late_gradients,
        )
    return str(caught.value)


@pytest.mark.beside
@pytest.mark.parametrize(
    ("what", "text"),
    [
        (
            "option",
            "register: optimizer differs between ranks: "
            "optimizer.param_groups[0].momentum is 0.9 on rank 0 but 0.5 on rank 1; "
            "give all ranks the same optimizer.",
        ),
        (
            "optimizer",
            "register: optimizer differs between ranks: optimizer is SGD on rank 0 but "
            "Adam on rank 2; give all ranks the same optimizer.",
        ),
        (
            "state",
            "register: state differs between ranks: state.scaler is GradScaler on rank "
            "0 but missing on rank 2; give all ranks the same state.",
        ),
        (
            "late",
            "register: late differs between ranks: late is drop on rank 0 but carry on "
            "rank 1; give all ranks the same late.",
        ),
        ("policy", "register: policy differs between ranks: policy"),
    ],
)
def test_ranks_that_register_differently_are_all_told(what, text):
    results = run_ranks(3, register_differently, what)
    assert len(set(results)) == 1
    assert results[0].startswith(text)


def lose_the_donor(rank, size):
    """All ranks but the late one have ended when it asks for a state: none answers."""
    training = Training(rank, Recipe(), "copy")
    for step in range(LATE_STEP if rank == LATE_RANK else LATE_STEP + 5):
        training.step(step)
        late(0.01)
    if rank == LATE_RANK:
        training.fall_behind()
        up = training.handle.catch_up()
        found = pickle.loads(pickle.dumps((int(up), up.steps_copied)))
    else:
        found = None
    dist.barrier()
    return found, digest(*training.net.parameters())


def test_a_rank_without_an_answer_replays():
    results = run_ranks(3, lose_the_donor)
    assert len({fingerprint for _, fingerprint in results}) == 1
    assert results[LATE_RANK][0] == (5, 0)
