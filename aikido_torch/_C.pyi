# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Types of the native module, written by `make stubs` from csrc/bind. Do not edit."""
import aikido_torch._rows
import collections.abc
import datetime
import torch
import torch._C._distributed_c10d
import torch.futures
import typing
__all__: list[str] = ['AikidoBackend', 'AikidoWork', 'BackwardWatch', 'BatchPlan', 'Bounds', 'Claim', 'Instruction', 'Layer', 'LinkCost', 'LinkFit', 'Loss', 'Op', 'OpGraph', 'OpSpan', 'Outcome', 'Plan', 'PolicyOptions', 'Profile', 'QuietSteps', 'RankMemory', 'ReassignExchange', 'Recorder', 'Runtime', 'Schedule', 'ShardOutcome', 'Simulation', 'Span', 'Stage', 'StageTimes', 'StepReport', 'StepWeight', 'Timeline', 'TransferBatch', 'TransferWindow', 'Validation', 'best_order', 'build_info', 'choose_collective', 'collective_time', 'digests', 'hook_work', 'interface_address', 'iteration_bounds', 'offer_device_memory', 'operation_names', 'partition', 'pipelining_depth', 'plan_batches', 'priority_range', 'resolve_settings', 'set_inner_finder', 'set_ipc_finder', 'settings_table', 'share_device_memory', 'simulate_iteration', 'source_address', 'tac', 'tic', 'transfer_windows', 'try_device_memory']
class PolicyOptions:
    """
    A straggler policy in the engine's form.
    """
    @staticmethod
    def skip(*, min_contributors: int, floor_ms: float, ceiling_ms: float, max_consecutive_skips: int, warmup_operations: int, slack: float, worth: float, divisor: str, granularity: str, on_log_full: str, backups: int | None = None, mode: str = 'shadow', verify_shadows: bool = False) -> PolicyOptions:
        ...
    @staticmethod
    def wait_all(*, rebalance: bool) -> PolicyOptions:
        ...
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def check(self, world_size: int) -> None:
        """
        Raises ConfigError if a group of this size cannot use the policy.
        """
class LinkCost:
    """
    Time of a transfer: alpha_s seconds, plus beta_s for each byte.
    """
    def __init__(self, *, alpha_s: float, beta_s: float) -> None:
        ...
    def time_s(self, bytes: float) -> float:
        """
        Seconds for a transfer of this size.
        """
    @property
    def alpha_s(self) -> float:
        ...
    @property
    def beta_s(self) -> float:
        ...
class Op:
    """
    A computation or a transfer of one iteration of a training.
    """
    @staticmethod
    def compute(name: str, *, time_s: float) -> Op:
        """
        A computation that takes a processor for this time.
        """
    @staticmethod
    def transfer(name: str, *, time_s: float = 0.0, bytes: float = 0.0) -> Op:
        """
        A transfer that takes the link for this time.
        """
    @property
    def bytes(self) -> float:
        ...
    @property
    def is_transfer(self) -> bool:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def time_s(self) -> float:
        ...
class OpGraph:
    """
    Ops of one iteration, and their edges: pairs of names, of which the second op needs the first.
    """
    def __init__(self, ops: collections.abc.Sequence[Op], edges: collections.abc.Sequence[tuple[str, str]]) -> None:
        ...
    def with_link(self, link: LinkCost) -> OpGraph:
        """
        The graph with the times that this link has for the transfers.
        """
    @property
    def edges(self) -> list[tuple[str, str]]:
        ...
    @property
    def ops(self) -> list[Op]:
        ...
    @property
    def transfers(self) -> list[str]:
        ...
class Bounds:
    """
    Bounds for the time of an iteration on one link and one processor.
    """
    def efficiency(self, makespan_s: float) -> float:
        """
        1 with full overlap, 0 without overlap.
        """
    @property
    def communication_s(self) -> float:
        ...
    @property
    def computation_s(self) -> float:
        ...
    @property
    def lower_s(self) -> float:
        ...
    @property
    def ratio(self) -> float:
        ...
    @property
    def speed_up(self) -> float:
        ...
    @property
    def upper_s(self) -> float:
        ...
class OpSpan:
    """
    Time in which an op ran without a pause.
    """
    @property
    def begin_s(self) -> float:
        ...
    @property
    def end_s(self) -> float:
        ...
    @property
    def op(self) -> str:
        ...
    @property
    def processor(self) -> int | None:
        ...
class Timeline:
    """
    Times of all ops of one iteration.
    """
    @property
    def done_s(self) -> dict[str, float]:
        ...
    @property
    def makespan_s(self) -> float:
        ...
    @property
    def pauses(self) -> int:
        ...
    @property
    def spans(self) -> list[OpSpan]:
        ...
class TransferWindow:
    """
    Time window of a transfer: from ready to its first use.
    """
    @property
    def first_use_s(self) -> float:
        ...
    @property
    def ready_s(self) -> float:
        ...
    @property
    def slack_s(self) -> float:
        ...
    @property
    def tail_s(self) -> float:
        ...
    @property
    def transfer(self) -> str:
        ...
class TransferBatch:
    """
    Transfers that are sent as one.
    """
    @property
    def begin_s(self) -> float:
        ...
    @property
    def bytes(self) -> float:
        ...
    @property
    def end_s(self) -> float:
        ...
    @property
    def transfers(self) -> list[str]:
        ...
class BatchPlan:
    """
    Batches in the order of sending.
    """
    @property
    def batches(self) -> list[TransferBatch]:
        ...
    @property
    def end_s(self) -> float:
        ...
    @property
    def graph(self) -> OpGraph:
        ...
class LinkFit:
    """
    Estimate of a link's cost from measured transfers. Stalled transfers do not change it. A changed rate does, at its `change`-th sample.
    """
    def __init__(self, *, window: int = 32, change: int = 4, tolerance: float = 0.25) -> None:
        ...
    def add(self, *, bytes: float, seconds: float) -> None:
        """
        Adds a measured transfer.
        """
    @property
    def changes(self) -> int:
        ...
    @property
    def link(self) -> LinkCost | None:
        ...
    @property
    def size(self) -> int:
        ...
class Stage:
    """
    Layers between two cuts, and their costs. Seconds are for one mini-batch, bytes for one machine.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    @property
    def activation_bytes(self) -> float:
        ...
    @property
    def compute_s(self) -> float:
        ...
    @property
    def input_bytes(self) -> float:
        ...
    @property
    def layers(self) -> list[str]:
        ...
    @property
    def machines(self) -> int:
        ...
    @property
    def memory_bytes(self) -> float:
        ...
    @property
    def parameter_bytes(self) -> float:
        ...
    @property
    def period_s(self) -> float:
        ...
    @property
    def replicas(self) -> list[int]:
        ...
    @property
    def sync_s(self) -> float:
        ...
    @property
    def transfer_s(self) -> float:
        ...
    @property
    def versions(self) -> int:
        ...
class Plan:
    """
    Stages of a pipeline, in order, and its speed.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    @property
    def data_parallel_s(self) -> float:
        ...
    @property
    def machines(self) -> int:
        ...
    @property
    def note(self) -> str:
        ...
    @property
    def one_machine_s(self) -> float:
        ...
    @property
    def period_s(self) -> float:
        ...
    @property
    def stages(self) -> list[Stage]:
        ...
    @property
    def text(self) -> str:
        ...
class Layer:
    """
    Measurements of one layer: times and sizes of a mini-batch.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def __init__(self, id: str, *, description: str = '', forward_ms: float = 0.0, backward_ms: float = 0.0, activation_bytes: float = 0.0, parameter_bytes: float = 0.0) -> None:
        ...
    @property
    def activation_bytes(self) -> float:
        ...
    @property
    def backward_ms(self) -> float:
        ...
    @property
    def description(self) -> str:
        ...
    @property
    def forward_ms(self) -> float:
        ...
    @property
    def id(self) -> str:
        ...
    @property
    def parameter_bytes(self) -> float:
        ...
    @property
    def stage(self) -> int | None:
        ...
class Profile:
    """
    Layers of a model, and their edges: pairs of ids, of which the second layer needs the output of the first.
    """
    @staticmethod
    def parse(text: str) -> Profile:
        """
        Reads the text form of PipeDream's profiler.
        """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def __init__(self, layers: collections.abc.Sequence[Layer], edges: collections.abc.Sequence[tuple[str, str]]) -> None:
        ...
    def text(self) -> str:
        """
        The text form that parse() reads.
        """
    def with_stages(self, plan: Plan) -> Profile:
        """
        The profile with the stage of each layer. Requires: `plan` was made from this profile.
        """
    @property
    def edges(self) -> list[tuple[str, str]]:
        ...
    @property
    def layers(self) -> list[Layer]:
        ...
class Instruction:
    """
    One item of the work of a rank of a pipeline. csrc/pipeline/instruction.h has the text form.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def text(self) -> str:
        ...
    @property
    def kind(self) -> str:
        ...
    @property
    def micro_batch(self) -> int | None:
        ...
    @property
    def peer(self) -> int | None:
        ...
    @property
    def stage(self) -> int:
        ...
    @property
    def version(self) -> int | None:
        ...
class RankMemory:
    """
    Largest amounts that a rank holds at one time: micro-batches with activations, micro-batches that are recomputed and of which only the input is kept, versions of weights.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    @property
    def activations(self) -> int:
        ...
    @property
    def inputs(self) -> int:
        ...
    @property
    def versions(self) -> int:
        ...
class Validation:
    """
    Memory of a valid schedule, by rank. `lags`, by stage and update: the number of updates that the oldest used weights had missed.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    @property
    def lags(self) -> list[list[int]]:
        ...
    @property
    def ranks(self) -> list[RankMemory]:
        ...
class Span:
    """
    Time in which a rank executes one of its instructions.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    @property
    def begin(self) -> float:
        ...
    @property
    def end(self) -> float:
        ...
    @property
    def instruction(self) -> int:
        ...
    @property
    def rank(self) -> int:
        ...
class Simulation:
    """
    Times of a schedule. `busy` and `bubbles` have one value for each rank. `period` is None if the schedule flushes, or has too few micro-batches to show it.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    @property
    def bubbles(self) -> list[float]:
        ...
    @property
    def busy(self) -> list[float]:
        ...
    @property
    def makespan(self) -> float:
        ...
    @property
    def period(self) -> float | None:
        ...
    @property
    def spans(self) -> list[Span]:
        ...
class StageTimes:
    """
    Times of a stage for one micro-batch on one rank, and for an update, in any unit.
    """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def __init__(self, *, forward: float, backward: float, input_gradient: float, weight_gradient: float, recompute: float, reduce: float, step: float) -> None:
        ...
class Schedule:
    """
    Instructions of each rank of a pipeline; aikido_torch.pipeline.Schedule wraps it.
    """
    @staticmethod
    def make(name: str, *, stages: int, micro_batches: int, replicas: collections.abc.Sequence[int], stages_per_rank: int, weights: str | None, micro_batches_per_step: int | None, turns: collections.abc.Sequence[collections.abc.Sequence[int]], warmups: collections.abc.Sequence[int], recompute: bool, overlap_sums: bool) -> Schedule:
        """
        aikido_torch.pipeline.schedule without its defaults.
        """
    @staticmethod
    def parse(text: str) -> Schedule:
        """
        Reads the text form.
        """
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def grid(self, simulation: Simulation, slot: float, max_slots: int) -> str:
        ...
    def simulate(self, stages: collections.abc.Sequence[StageTimes], links: collections.abc.Sequence[float], slowdown: collections.abc.Sequence[float]) -> Simulation:
        ...
    def text(self) -> str:
        ...
    def validate(self, max_activations: int | None) -> Validation:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def num_micro_batches(self) -> int:
        ...
    @property
    def ranks(self) -> list[list[Instruction]]:
        ...
    @property
    def stages(self) -> list[list[int]]:
        ...
    @property
    def weights(self) -> str:
        ...
class Recorder:
    """
    Records the calls and steps of a process while it is armed.
    """
    def __init__(self, spans_per_thread: int = 32768) -> None:
        ...
    def arm(self) -> None:
        """
        Records from now on, until disarm().
        """
    def arm_steps(self, first: int, last: int) -> None:
        """
        Records the steps from `first` to `last`, both included.
        """
    def disarm(self) -> None:
        ...
    def events(self, after: int) -> list[aikido_torch._rows.MemberEvent]:
        """
        Events of members of groups with a number above `after`. They are recorded even if the recorder is not armed.
        """
    def name(self, text: str) -> int:
        """
        Returns the number that stands for a name in spans.
        """
    def next_step(self) -> bool:
        """
        Begins the next step. Returns True if it is recorded.
        """
    def section(self, name: int, begin_ns: int, end_ns: int, step: int, number: int = 0, peer: int = -1) -> None:
        """
        Records a section of a step. Times are those of time.monotonic_ns(). `number` and `peer` are the label and the owner of a micro-batch that was taken over.
        """
    def set_step(self, step: int) -> None:
        ...
    def take(self) -> tuple[bytes, int, list[str]]:
        """
        Removes and returns everything recorded: the spans as they are in memory, the number of dropped spans, and the names by their numbers.
        """
    def took_over(self, group: str, rank: int, owner: int) -> None:
        """
        Adds an event: `rank` computes a micro-batch of `owner`.
        """
    @property
    def is_armed(self) -> bool:
        ...
    @property
    def step(self) -> int:
        """
        The present step of the training loop.
        """
class BackwardWatch:
    """
    Records each backward pass, from the first gradient of an output to the end.
    """
    def __init__(self, recorder: Recorder, name: int) -> None:
        ...
    def add(self, output: torch.Tensor) -> None:
        """
        Watches an output of the model. Requires: it requires a gradient.
        """
    def end_step(self) -> None:
        """
        Ends the step. A backward that has not ended is not recorded.
        """
class ShardOutcome:
    """
    One shard of an Outcome.
    """
    @property
    def contributors(self) -> list[int]:
        ...
    @property
    def first_element(self) -> int:
        ...
    @property
    def num_elements(self) -> int:
        ...
    @property
    def owner(self) -> int:
        ...
    @property
    def scale(self) -> float:
        ...
    @property
    def stand_ins(self) -> list[tuple[int, int]]:
        ...
    @property
    def weight(self) -> float | None:
        """
        Sum of the contributors' weights; None without weights.
        """
class Outcome:
    """
    How a call ended: contributors, skipped ranks, and the reason.
    """
    @property
    def cancelled_bytes(self) -> int:
        """
        Bytes of this rank's late contribution that were not sent.
        """
    @property
    def contributors(self) -> list[int]:
        """
        Ranks whose contributions are in every shard, ascending.
        """
    @property
    def deadline_ms(self) -> float:
        """
        Longest time that a skipped rank was given, 0 for a complete result.
        """
    @property
    def duration_ms(self) -> float:
        """
        Time from the call to the result.
        """
    @property
    def kind(self) -> typing.Literal['complete', 'partial', 'aborted']:
        ...
    @property
    def out(self) -> list[int]:
        """
        With backups: ranks outside of the view when the call was new, ascending.
        """
    @property
    def reason(self) -> str:
        """
        Why the call ended as it did.
        """
    @property
    def scale(self) -> float:
        """
        Factor of the sum in the first shard.
        """
    @property
    def sequence_number(self) -> int:
        """
        Number of the collective in its group.
        """
    @property
    def shards(self) -> list[ShardOutcome]:
        """
        Empty unless the call could skip.
        """
    @property
    def skipped(self) -> list[int]:
        """
        Ranks that are missing in at least one shard, ascending.
        """
    @property
    def skipped_by(self) -> list[int]:
        """
        Owners of the shards without this rank's contribution, ascending.
        """
    @property
    def stand_ins(self) -> list[tuple[int, int]]:
        """
        Pairs of a primary and of the backup that contributed instead, ascending.
        """
    @property
    def was_committed(self) -> bool:
        """
        True if the result had arrived before this rank called.
        """
    @property
    def weight(self) -> float | None:
        """
        Sum of the contributors' weights; None without weights. The smallest sum if the shards differ.
        """
class Runtime:
    """
    Progress thread and listener of a process.
    """
    def __init__(self, host: str, handshake_timeout: datetime.timedelta, shared_memory_bytes: int, credit_bytes: int) -> None:
        ...
    def stop(self) -> None:
        """
        Ends the thread that runs callbacks. For the end of the process.
        """
    @property
    def address(self) -> str:
        ...
    @property
    def num_strangers(self) -> int:
        ...
    @property
    def recorder(self) -> Recorder:
        ...
class AikidoWork(torch._C._distributed_c10d.Work):
    """
    The handle of a call of aikido_torch.
    """
    def is_completed(self) -> bool:
        """
        True if the call has ended. Ends a batch of calls of this thread.
        """
    def outcome(self) -> Outcome | None:
        """
        How the call ended; None while it is in progress. Raises the error of a failed call.
        """
class AikidoBackend(torch._C._distributed_c10d.Backend):
    """
    The c10d backend; made by init_process_group("aikido").
    """
    def __init__(self, runtime: Runtime, store: torch._C._distributed_c10d.Store, rank: int, size: int, timeout: datetime.timedelta, group_name: str, options: collections.abc.Mapping[str, str], connect: bool = True, connect_timeout: datetime.timedelta | None = None) -> None:
        ...
    def advise(self, rank: int, advice: typing.Literal['none', 'caller', 'link']) -> None:
        """
        Sets the reason for which `rank` is late in most steps, until the next call.
        """
    def agree_members(self, lost: collections.abc.Sequence[int], timeout: datetime.timedelta | None) -> tuple[int, list[int]]:
        """
        Number of the next agreement on the members that are left, and these ranks.
        """
    def all_reduce(self, tensor: torch.Tensor, op: torch._C._distributed_c10d.ReduceOp, policy: PolicyOptions, priority: int | None, timeout: datetime.timedelta, data_shard: int = -1, weight: float | None = None) -> AikidoWork:
        ...
    def change_members(self, uuid: int, handles: collections.abc.Sequence[str], is_ordered: bool, timeout: datetime.timedelta | None) -> torch._C._distributed_c10d.Work:
        """
        Connects the group to the members with these handles.
        """
    def clock_of_rank_0(self) -> tuple[int, int, float, int] | None:
        """
        The clock of rank 0 against this rank's clock: time of the measurement (ns), offset (ns), drift, error (ns). None: not known.
        """
    def handle(self) -> str:
        """
        Text by which other members find this one.
        """
    def is_acked(self, seq: int, except_rank: int) -> bool:
        """
        True if no rank but `except_rank` still needs a result up to `seq`.
        """
    def leave_after_rank_0(self, port: int) -> None:
        """
        Declares that the store at `port` ends with this group on rank 0. shutdown() then returns after the store has ended.
        """
    def leave_out_call(self, why: str, tells: bool) -> None:
        """
        Uses up the number of the next collective, which this rank does not make. If `tells`, the collective fails on the other ranks with ConfigError.
        """
    def members(self) -> list[int]:
        """
        Ranks in the view, which take part in skippable calls, ascending.
        """
    def perform_nocolor_split(self, device: torch.device) -> None:
        """
        Does nothing: ranks that are not in a split take no part in it.
        """
    def receive_message(self, tensor: torch.Tensor, src: int, tag: int) -> torch._C._distributed_c10d.Work:
        ...
    def reduce_scatter(self, output: torch.Tensor, inputs: collections.abc.Sequence[torch.Tensor], op: torch._C._distributed_c10d.ReduceOp, policy: PolicyOptions, priority: int | None, timeout: datetime.timedelta, weight: float | None = None) -> AikidoWork:
        ...
    def reduce_scatter_tensor(self, output: torch.Tensor, input: torch.Tensor, op: torch._C._distributed_c10d.ReduceOp, policy: PolicyOptions, priority: int | None, timeout: datetime.timedelta, weight: float | None = None) -> AikidoWork:
        ...
    def refuse_call(self, call: str, why: str) -> typing.NoReturn:
        """
        Refuses the next collective, because its arguments are wrong on this rank. Raises ConfigError; the other ranks get the reason.
        """
    def seal(self, seq: int, rank: int, tag: int) -> None:
        """
        Sends `rank` an int64 with this tag from the progress thread: 1 as soon as is_acked(seq, rank), -1 if this rank is excluded from the view before.
        """
    def send_message(self, tensor: torch.Tensor, dst: int, tag: int, priority: int | None, timeout: datetime.timedelta) -> AikidoWork:
        ...
    def set_end_hook(self, hook: collections.abc.Callable[[datetime.timedelta], typing.Any]) -> None:
        """
        Sets the function that the first shutdown() calls with shutdown.linger_ms before it ends anything. shutdown() raises an error of the function at its end. The function is not called after abort(), nor at the end of a process.
        """
    def set_hosts(self, hosts: collections.abc.Sequence[int]) -> None:
        """
        Sets the host of each rank. All ranks call it at the same point; it waits for all of them.
        """
    def set_link(self, link: LinkCost, message_s: float, local: LinkCost) -> None:
        """
        Sets the cost of a message. Call it with the same values on all ranks, between the same calls.
        """
    def sharing_failure(self) -> str:
        """
        Reason for which no memory is shared with a rank of this host. Empty: it is shared.
        """
    def shut_down_family(self) -> None:
        """
        Shuts down this group and all groups that were made from it.
        """
    def skip_through(self, seq: int) -> None:
        """
        Declares that this rank has copied a state with the collectives up to `seq`, and will not call them.
        """
    @property
    def call_timeout(self) -> datetime.timedelta:
        """
        Time-out of calls without a time-out of their own.
        """
    @property
    def called_ahead(self) -> int:
        ...
    @property
    def committed_ahead(self) -> int:
        ...
    @property
    def counters(self) -> aikido_torch._rows.Counters:
        ...
    @property
    def epoch(self) -> int:
        """
        Number of the present view, 0 before the first one.
        """
    @property
    def gone(self) -> list[int]:
        """
        Ranks that have left or are lost.
        """
    @property
    def group_name(self) -> str:
        ...
    @property
    def host(self) -> str:
        """
        Numeric address at which other ranks find this process.
        """
    @property
    def is_waited_for(self) -> bool:
        """
        True if the other ranks have made a call that cannot end without this rank.
        """
    @property
    def num_calls(self) -> int:
        """
        Number of the last collective that this rank has called.
        """
    @property
    def place(self) -> tuple[int, int]:
        """
        Rank and size in the present view.
        """
    @property
    def standing(self) -> typing.Literal['member', 'returning', 'refused', 'ended']:
        """
        State of this rank in skippable calls: a member; or excluded and returning, refused, or ended.
        """
class StepWeight:
    """
    Weight of this rank's gradients in the present step; see aikido_torch.ddp._step_weight.
    """
    def __init__(self) -> None:
        ...
    def begin_step(self) -> None:
        """
        The backward of the step starts its first bucket.
        """
    def drop_step(self) -> None:
        """
        This rank goes past the step without an own contribution: the weight of a backward that has begun and thrown is dropped.
        """
    def end_step(self) -> None:
        """
        All buckets of the step are started: the weight is 1.0 again, if the means have weights.
        """
    def set(self, weight: float) -> None:
        """
        Sets the weight of the present step. Raises ConfigError if it is out of range, and changes nothing then.
        """
    @property
    def value(self) -> float | None:
        """
        None: the means have no weights.
        """
class QuietSteps:
    """
    Steps in which the gradients are summed without Python code of the handle.
    """
    def __init__(self, buckets: AikidoBackend, calls: AikidoBackend, check: collections.abc.Callable[[], typing.Any], rescue: collections.abc.Callable[[BaseException], bool]) -> None:
        ...
    def allow(self, steps: range, policy: PolicyOptions, num_buckets: int, awaited: collections.abc.Sequence[torch._C._distributed_c10d.Work], look_each: int) -> None:
        """
        Allows these steps to be quiet, until the hook or pass_top() finds something to do. The call given to look() is made in steps whose number is a multiple of `look_each` (0: in none).
        """
    def count_backwards(self) -> tuple[int, int]:
        """
        The last quiet step that has begun (-1: none), and the number of quiet backwards since the last count.
        """
    def install(self, reducer: torch._C._distributed_c10d.Reducer, state: typing.Any, hook: collections.abc.Callable[[typing.Any, torch._C._distributed_c10d.GradBucket], torch.futures.Future[torch.Tensor]]) -> None:
        """
        Makes quiet steps run as the communication hook of `reducer`, once in its life. In all other steps the hook is hook(state, bucket). It must not keep the model alive, because the garbage collector does not see it.
        """
    def look(self, call: collections.abc.Callable[[int], typing.Any], rates: typing.Any) -> None:
        """
        Calls call(step) at the end of the backward of a quiet step in two cases. The step is one that `look_each` of allow() selects. Or the learning rates of the optimizer `rates` (None: not watched) have changed since the top of the loop. Call look() before allow().
        """
    def pass_top(self) -> bool:
        """
        Begins a step of the loop. False: Python has something to do. Never blocks.
        """
    def passes_update(self) -> bool:
        """
        Before a step of the optimizer. True: it belongs to one quiet backward, which then counts as counted, and neither this step nor the next one is examined.
        """
    def place(self) -> tuple[int, int]:
        """
        The last quiet step that has begun (-1: none), and the calls of the loop before it. Any thread.
        """
    def set_alarm(self, is_on: bool) -> None:
        """
        While it is on, no step is quiet, and `check` is called at the end of a backward that is in progress. Any thread.
        """
    def take(self) -> tuple[list[tuple[float, list[tuple[AikidoWork, int]]]], bool]:
        """
        Removes and returns the quiet steps since the last take(), and True if the loop has begun another step. A step has the time at which its last bucket was started (time.monotonic()), and its sums with their numbers of elements.
        """
    @property
    def weight(self) -> StepWeight:
        """
        Weight of the gradients. A quiet step calls its end_step().
        """
class Claim:
    """
    Item that the caller of claim() computes next.
    """
    @property
    def cost(self) -> float:
        """
        Predicted cost, in the unit of begin().
        """
    @property
    def index(self) -> int:
        """
        Place of the item in the list of its owner, from 0.
        """
    @property
    def is_last(self) -> bool:
        """
        True: nothing follows in this step, so the sum of the gradients may start in the backward of the item. False: claim() decides.
        """
    @property
    def label(self) -> int:
        """
        Label that the owner gave to the item.
        """
    @property
    def num_left(self) -> int:
        """
        Own items that nobody has claimed.
        """
    @property
    def owner(self) -> int:
        """
        Rank that began the step with the item.
        """
class Loss:
    """
    Own item that this rank gave away and that is in no sum.
    """
    @property
    def cost(self) -> float:
        ...
    @property
    def helper(self) -> int:
        """
        Rank to which the item was given.
        """
    @property
    def index(self) -> int:
        ...
    @property
    def label(self) -> int:
        ...
    @property
    def reason(self) -> typing.Literal['skipped', 'refused_late', 'returned_late', 'in_doubt']:
        """
        'skipped': the outcome is without the helper. 'refused_late': the helper refused the item after the end of the step here. 'returned_late': it gave the item back after that end. In these cases the item may be issued again. 'in_doubt': the helper contributed and died, and it is not known if the item is in its contribution; drop and count it.
        """
    @property
    def step(self) -> int:
        ...
class StepReport:
    """
    Work of this rank in one step.
    """
    @property
    def num_begun_with(self) -> int:
        """
        Own items at the begin of the step.
        """
    @property
    def num_bytes(self) -> int:
        """
        Bytes of these messages, without their padding.
        """
    @property
    def num_given(self) -> int:
        """
        Own items that other ranks took, without returned items.
        """
    @property
    def num_messages(self) -> int:
        """
        Messages that this rank has sent in the step.
        """
    @property
    def step(self) -> int:
        """
        Number of the step; -1 before the first one.
        """
    @property
    def taken(self) -> list[tuple[int, int]]:
        """
        (owner, label) of the items of other ranks that this rank has begun, in that order.
        """
class ReassignExchange:
    """
    Moves items of a step between the ranks of a group, peer to peer. All ranks of the group make it in the same order and with the same arguments. It works on the present members of the backend, and ends with them.
    
    begin(), claim(), finished(), leave() and outcome() are for one thread. Other ranks are served on the progress thread, without Python. All calls release Python's lock; only claim() blocks.
    """
    def __init__(self, backend: AikidoBackend, hosts: collections.abc.Sequence[int], helpers: int, *, behind: float = 0.2, answer_timeout_s: float = 0.05) -> None:
        """
        hosts: number of the host of each rank; empty: all on one host. helpers: ranks that may take items of a rank. behind: share of a step by which another rank must be late before this rank asks it for items while it still has own ones. answer_timeout_s: seconds until an answer is given up. Raises ConfigError for a value out of its range.
        """
    def begin(self, step: int, labels: collections.abc.Sequence[int], costs: collections.abc.Sequence[float]) -> None:
        """
        Begins a step with own items, large ones first. `labels` are any numbers of 64 bits, `costs` are predicted, above 0, in a unit that all ranks share. Raises ConfigError if the step before is not over, if `step` is not later than it, or for a wrong cost. Raises as claim() does after an end.
        """
    def claim(self, timeout_s: float) -> Claim | None:
        """
        The next item of this rank: own ones first, then items taken over. None: nothing more in this step. Waits while an answer of another rank could bring an item, for at most `timeout_s` seconds; then it raises TimedOutError, and may be called again. After stop() it raises AbortedError. After the end of the group it raises the reason of that end.
        """
    def finished(self, seconds: float) -> None:
        """
        The gradient of the item claimed last is in this rank's sum. It took that time.
        """
    def leave(self) -> list[tuple[int, int, int]]:
        """
        Ends the step on this rank. Returns (owner, index, label) of the own items that are not computed here; the item claimed last is one of them unless finished() was called for it. Items of other ranks go back to them.
        """
    def outcome(self, step: int, contributors: collections.abc.Sequence[int]) -> None:
        """
        The sum of `step` has the contributions of these ranks. Call it once for each step, in order, when the step is over here. Raises ConfigError otherwise.
        """
    def report(self) -> StepReport:
        """
        Work of this rank in the present or last step. Any thread.
        """
    def stop(self) -> None:
        """
        Takes no part any more, and ends a claim() that waits. The other ranks go on without this rank. Never blocks. May be called again, from any thread.
        """
    def take_losses(self) -> list[Loss]:
        """
        Own items that were given away and are in no sum. Each is returned once. Any thread.
        """
def best_order(graph: OpGraph, *, link: str, chunk_bytes: float, compute: str, processors: int) -> tuple[list[str], float]:
    """
    aikido_torch.ordering.best_order without its defaults.
    """
def build_info() -> aikido_torch._rows.BuildInfo:
    """
    Version, torch minor, compiler, CUDA and C++ ABI of this build, and the instruction sets of its kernels that this CPU has, fastest last.
    """
def choose_collective(*, members: int, bytes: float, message: LinkCost, gamma_s: float, message_s: float, shard_bytes: float, hosts: collections.abc.Sequence[int], local: LinkCost, among: collections.abc.Sequence[str]) -> tuple[str, float]:
    """
    aikido_torch.ordering.choose_collective without its defaults.
    """
def collective_time(collective: str, *, members: int, bytes: float, message: LinkCost, gamma_s: float, message_s: float, shard_bytes: float, hosts: collections.abc.Sequence[int], local: LinkCost) -> float:
    """
    aikido_torch.ordering.collective_time without its defaults.
    """
def digests(tensors: collections.abc.Sequence[torch.Tensor]) -> list[int]:
    """
    A 64-bit digest of the bytes of each tensor. Releases Python's lock. Raises ValueError for a tensor that is not dense or not in host memory.
    """
def hook_work(work: AikidoWork, value: torch.Tensor, rescue: collections.abc.Callable[[BaseException], bool]) -> torch._C._distributed_c10d.Work:
    """
    A work for a communication hook. When `work` has ended, its future has `value`. If `work` has failed, the future has the error, unless rescue(error) returns True.
    """
def interface_address(name: str) -> str:
    """
    Numeric address of a network interface of this machine.
    """
def iteration_bounds(graph: OpGraph) -> Bounds:
    """
    aikido_torch.ordering.bounds.
    """
def offer_device_memory(type: str, memory: typing.Any) -> None:
    """
    Registers the way in which processes share memory of a type of device. memory: a capsule with a std::shared_ptr<DeviceMemory> (csrc/c10d/common/device_memory.h).
    """
def operation_names() -> dict[int, str]:
    """
    Names of the kinds of collectives, by their numbers in spans.
    """
def partition(profile: Profile, *, machines: collections.abc.Sequence[int], bandwidths: collections.abc.Sequence[float], cost_model: str, count_transfers: bool, straight: bool, fewer_machines: bool, memory_bytes: float | None, max_cuts: int) -> Plan:
    """
    aikido_torch.pipeline.partition without its defaults.
    """
def pipelining_depth(*, bytes: float, hops: int, most: int, link: LinkCost) -> tuple[int, float]:
    """
    aikido_torch.ordering.pipelining_depth without its defaults.
    """
def plan_batches(graph: OpGraph, *, order: collections.abc.Sequence[str], link: LinkCost, most_bytes: float) -> BatchPlan:
    """
    aikido_torch.ordering.plan_batches without its defaults.
    """
def priority_range() -> tuple[int, int]:
    """
    Lowest and highest priority of a call.
    """
def resolve_settings(options: collections.abc.Mapping[str, str]) -> dict[str, tuple[int | str, str]]:
    """
    Value and source of each setting, from the environment and from options as text. Raises ConfigError.
    """
def set_inner_finder(finder: collections.abc.Callable[[torch._C._distributed_c10d.Backend, str, torch.device, torch._C._distributed_c10d.Store | None, datetime.timedelta], torch._C._distributed_c10d.Backend | None]) -> None:
    """
    Sets the function that returns the backend for strict calls with tensors on devices. None: the tensors are staged in host memory.
    """
def set_ipc_finder(finder: collections.abc.Callable[[torch._C._distributed_c10d.Backend, str, torch.device, datetime.timedelta], bool]) -> None:
    """
    Sets the function that decides whether all_reduces of tensors on devices use the shared memory of the devices.
    """
def settings_table() -> list[aikido_torch._rows.SettingRow]:
    """
    All settings: name, option, variable, default, range.
    """
def share_device_memory(tensor: torch.Tensor) -> bytes:
    """
    A handle by which other processes of this host can open the memory of a contiguous tensor on a device, as long as the tensor exists.
    """
def simulate_iteration(graph: OpGraph, *, order: collections.abc.Sequence[str], link: str, chunk_bytes: float, compute: str, processors: int) -> Timeline:
    """
    aikido_torch.ordering.simulate without its defaults.
    """
def source_address(peer: str) -> str:
    """
    Numeric address of this machine that `peer` sees.
    """
def tac(graph: OpGraph) -> list[tuple[str, int]]:
    """
    Names and places of aikido_torch.ordering.tac.
    """
def tic(graph: OpGraph) -> list[tuple[str, int]]:
    """
    Names and places of aikido_torch.ordering.tic.
    """
def transfer_windows(graph: OpGraph) -> list[TransferWindow]:
    """
    aikido_torch.ordering.windows.
    """
def try_device_memory(tensor: torch.Tensor, handles: collections.abc.Sequence[bytes]) -> None:
    """
    Adds up a float32 tensor of one element and the shared ones of other processes, and writes the sum to all of them. Raises if that is impossible.
    """
