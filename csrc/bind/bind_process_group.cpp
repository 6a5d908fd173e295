// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <cstdlib>

#include "bind/named_types.h"
#include "bind/register.h"
#include "c10d/aikido_backend.h"
#include "c10d/common/error.h"
#include "c10d/device/ipc.h"
#include "engine/votes.h"
#include "trace/span.h"
#include "transport/address.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;
using adapter::AikidoBackend;
using adapter::AikidoWork;
using collectives::Outcome;
using collectives::OutcomeKind;

constexpr char kCounters[] = "aikido_torch._rows.Counters";
using Counters = Named<py::dict, kCounters>;
constexpr char kOutcomeKind[] = "typing.Literal['complete', 'partial', 'aborted']";
using OutcomeKindName = Named<py::str, kOutcomeKind>;
constexpr char kAdvice[] = "typing.Literal['none', 'caller', 'link']";
using AdviceName = Named<py::str, kAdvice>;
constexpr char kMemberState[] =
    "typing.Literal['member', 'returning', 'refused', 'ended']";
using MemberStateName = Named<py::str, kMemberState>;
constexpr char kDevice[] = "torch.device";
using AnyDevice = Named<py::object, kDevice>;
constexpr char kEndHook[] =
    "collections.abc.Callable[[datetime.timedelta], typing.Any]";
using EndHook = Named<py::function, kEndHook>;
constexpr char kNoReturn[] = "typing.NoReturn";
using NoReturn = Named<py::none, kNoReturn>;

// Engine and callback thread of this process, shared by its groups.
struct Runtime {
  std::shared_ptr<engine::Engine> engine;
  std::shared_ptr<adapter::CallbackThread> callback_thread;
};

std::vector<int> values(const std::vector<Rank>& ranks) {
  std::vector<int> out;
  for (const Rank r : ranks) out.push_back(r.value);
  return out;
}

std::vector<std::pair<int, int>> pairs(
    const std::vector<straggler::StandIn>& stand_ins) {
  std::vector<std::pair<int, int>> out;
  for (const auto& [data_shard, backup] : stand_ins)
    out.emplace_back(data_shard.value, backup.value);
  return out;
}

const char* name_of_kind(OutcomeKind kind) {
  constexpr const char* kNames[] = {"complete", "partial", "aborted"};
  return kNames[static_cast<size_t>(kind)];
}

// Empty for a call without a policy, which waits for all ranks anyway.
std::string reason_of(const Outcome& o) {
  return o.reason.empty() ? name_of_kind(o.kind) : o.reason;
}

ResolvedSettings settings_from(const std::map<std::string, std::string>& options) {
  auto resolved = resolve_settings(options, [](const std::string& name) {
    const char* text = std::getenv(name.c_str());
    return text == nullptr ? std::nullopt : std::optional<std::string>(text);
  });
  adapter::raise_if_failed(resolved.status());
  return *resolved;
}

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

std::shared_ptr<Runtime> start_runtime(const std::string& host,
                                       std::chrono::milliseconds handshake_timeout,
                                       size_t shared_memory_bytes,
                                       size_t credit_bytes) {
  auto started =
      engine::Engine::start(host, handshake_timeout, shared_memory_bytes, credit_bytes);
  adapter::raise_if_failed(started.status());
  const std::shared_ptr<Runtime> runtime(new Runtime, [](Runtime* last) {
    // The ending threads may wait for Python's lock. An interpreter that is shutting
    // down never gives it to them.
    if (is_finalizing()) return;
    if (PyGILState_Check()) {
      const py::gil_scoped_release release;
      delete last;
    } else {
      delete last;
    }
  });
  runtime->engine = *started;
  runtime->callback_thread = std::make_shared<adapter::CallbackThread>();
  return runtime;
}

void register_outcome(py::module_& m) {
  py::class_<collectives::ShardOutcome>(m, "ShardOutcome", "One shard of an Outcome.")
      .def_property_readonly(
          "owner", [](const collectives::ShardOutcome& s) { return s.owner.value; })
      .def_property_readonly(
          "contributors",
          [](const collectives::ShardOutcome& s) { return values(s.contributors); })
      .def_property_readonly(
          "stand_ins",
          [](const collectives::ShardOutcome& s) { return pairs(s.stand_ins); })
      .def_readonly("scale", &collectives::ShardOutcome::scale)
      .def_readonly("weight", &collectives::ShardOutcome::weight,
                    "Sum of the contributors' weights; None without weights.")
      .def_readonly("first_element", &collectives::ShardOutcome::first_element)
      .def_readonly("num_elements", &collectives::ShardOutcome::num_elements)
      .def("__repr__", [](const collectives::ShardOutcome& s) {
        const py::object contributors = py::cast(values(s.contributors));
        return concat("ShardOutcome(owner=", s.owner.value,
                      ", contributors=", py::repr(contributors).cast<std::string>(),
                      ", scale=", s.scale, ", first_element=", s.first_element,
                      ", num_elements=", s.num_elements, ")");
      });
  py::class_<Outcome>(m, "Outcome",
                      "How a call ended: contributors, skipped ranks, and the reason.")
      .def_property_readonly(
          "kind",
          [](const Outcome& o) { return OutcomeKindName(name_of_kind(o.kind)); })
      .def_property_readonly(
          "sequence_number", [](const Outcome& o) { return o.seq.value; },
          "Number of the collective in its group.")
      .def_property_readonly(
          "contributors", [](const Outcome& o) { return values(o.contributors); },
          "Ranks whose contributions are in every shard, ascending.")
      .def_property_readonly(
          "skipped", [](const Outcome& o) { return values(o.skipped); },
          "Ranks that are missing in at least one shard, ascending.")
      .def_property_readonly(
          "stand_ins", [](const Outcome& o) { return pairs(o.stand_ins); },
          "Pairs of a primary and of the backup that contributed instead, ascending.")
      .def_property_readonly(
          "out", [](const Outcome& o) { return values(o.out); },
          "With backups: ranks outside of the view when the call was new, ascending.")
      .def_property_readonly(
          "skipped_by", [](const Outcome& o) { return values(o.skipped_by); },
          "Owners of the shards without this rank's contribution, ascending.")
      .def_property_readonly(
          "scale",
          [](const Outcome& o) {
            return o.shards.empty() ? 1.0 : o.shards.front().scale;
          },
          "Factor of the sum in the first shard.")
      .def_readonly("weight", &Outcome::weight,
                    "Sum of the contributors' weights; None without weights. The "
                    "smallest sum if the shards differ.")
      .def_readonly("shards", &Outcome::shards, "Empty unless the call could skip.")
      .def_property_readonly("reason", &reason_of, "Why the call ended as it did.")
      .def_property_readonly(
          "deadline_ms", [](const Outcome& o) { return to_ms(o.deadline); },
          "Longest time that a skipped rank was given, 0 for a complete result.")
      .def_property_readonly(
          "duration_ms", [](const Outcome& o) { return to_ms(o.duration); },
          "Time from the call to the result.")
      .def_readonly("was_committed", &Outcome::was_committed,
                    "True if the result had arrived before this rank called.")
      .def_readonly("cancelled_bytes", &Outcome::cancelled_bytes,
                    "Bytes of this rank's late contribution that were not sent.")
      .def("__repr__", [](const Outcome& o) {
        const py::object skipped = py::cast(values(o.skipped));
        return concat("Outcome(kind='", name_of_kind(o.kind),
                      "', skipped=", py::repr(skipped).cast<std::string>(),
                      ", reason='", reason_of(o), "', duration_ms=", to_ms(o.duration),
                      ")");
      });
}

Counters counters(AikidoBackend& backend) {
  const auto communicator = backend.communicator().operator->();
  const engine::GroupCounters& c = communicator->counters();
  Counters out;
  out["operations"] = c.operations.load();
  out["partial_operations"] = c.partial_operations.load();
  out["skipped_own"] = c.skipped_own.load();
  out["failures"] = c.failures.load();
  out["stale_frames"] = c.stale_frames.load();
  out["cancelled_bytes"] = c.cancelled_bytes.load();
  out["given_bytes"] = c.given_bytes.load();
  out["replayed_operations"] = c.replayed_operations.load();
  out["replayed_bytes"] = c.replayed_bytes.load();
  out["replayed_bytes_in"] = c.replayed_bytes_in.load();
  out["replayed_us"] = c.replayed_us.load();
  out["replayed_wait_all_us"] = c.replayed_wait_all_us.load();
  out["inner_operations"] = backend.routes().nccl()->num_calls();
  out["ipc_operations"] = backend.routes().ipc()->num_calls();
  // Counters of this process, over all its groups.
  const transport::SendCounters& sent = communicator->engine().send_counters();
  out["chunks"] = sent.chunks.load();
  out["preemptions"] = sent.preemptions.load();
  out["inversions"] = sent.inversions.load();
  out["overdue_chunks"] = sent.overdue_chunks.load();
  out["queued_us"] = sent.queued_ns.load() / 1000;
  out["paused_us"] = sent.paused_ns.load() / 1000;
  out["wire_us"] = sent.wire_ns.load() / 1000;
  out["credit_bytes"] = sent.credit_bytes.load();
  out["uplink_bytes_per_s"] = sent.bytes_per_s.load();
  return out;
}

using BackendClass =
    py::class_<AikidoBackend, c10::intrusive_ptr<AikidoBackend>, ::c10d::Backend>;

// Calls with a policy or a priority.
void register_calls(BackendClass& backend) {
  backend
      .def("send_message", &AikidoBackend::send_with, py::arg("tensor"), py::arg("dst"),
           py::arg("tag"), py::arg("priority"), py::arg("timeout"),
           py::call_guard<py::gil_scoped_release>())
      .def(
          "receive_message",
          [](AikidoBackend& self, const at::Tensor& tensor, int src, int tag) {
            std::vector<at::Tensor> tensors{tensor};
            return self.recv(tensors, src, tag);
          },
          py::arg("tensor"), py::arg("src"), py::arg("tag"),
          py::call_guard<py::gil_scoped_release>())
      .def(
          "refuse_call",
          [](AikidoBackend& self, const std::string& call,
             const std::string& why) -> NoReturn { self.refuse_call(call, why); },
          py::arg("call"), py::arg("why"), py::call_guard<py::gil_scoped_release>(),
          "Refuses the next collective, because its arguments are wrong on this rank. "
          "Raises ConfigError; the other ranks get the reason.")
      .def("leave_out_call", &AikidoBackend::leave_out_call, py::arg("why"),
           py::arg("tells"), py::call_guard<py::gil_scoped_release>(),
           "Uses up the number of the next collective, which this rank does not make. "
           "If "
           "`tells`, the collective fails on the other ranks with ConfigError.")
      .def(
          "all_reduce",
          [](AikidoBackend& self, const at::Tensor& tensor, const ::c10d::ReduceOp& op,
             const straggler::PolicyOptions& policy, std::optional<Priority> priority,
             std::chrono::milliseconds timeout, int32_t data_shard,
             std::optional<double> weight) {
            return self.allreduce_with(tensor, op,
                                       {policy, priority, data_shard, weight}, timeout);
          },
          py::arg("tensor"), py::arg("op"), py::arg("policy"), py::arg("priority"),
          py::arg("timeout"), py::arg("data_shard") = straggler::kAnyDataShard,
          py::arg("weight") = std::nullopt, py::call_guard<py::gil_scoped_release>())
      .def(
          "reduce_scatter",
          [](AikidoBackend& self, const at::Tensor& output,
             const std::vector<at::Tensor>& inputs, const ::c10d::ReduceOp& op,
             const straggler::PolicyOptions& policy, std::optional<Priority> priority,
             std::chrono::milliseconds timeout, std::optional<double> weight) {
            return self.reduce_scatter_with(
                output, inputs, op,
                {policy, priority, straggler::kAnyDataShard, weight}, timeout);
          },
          py::arg("output"), py::arg("inputs"), py::arg("op"), py::arg("policy"),
          py::arg("priority"), py::arg("timeout"), py::arg("weight") = std::nullopt,
          py::call_guard<py::gil_scoped_release>())
      .def(
          "reduce_scatter_tensor",
          [](AikidoBackend& self, const at::Tensor& output, const at::Tensor& input,
             const ::c10d::ReduceOp& op, const straggler::PolicyOptions& policy,
             std::optional<Priority> priority, std::chrono::milliseconds timeout,
             std::optional<double> weight) {
            return self.reduce_scatter_tensor_with(
                output, input, op, {policy, priority, straggler::kAnyDataShard, weight},
                timeout);
          },
          py::arg("output"), py::arg("input"), py::arg("op"), py::arg("policy"),
          py::arg("priority"), py::arg("timeout"), py::arg("weight") = std::nullopt,
          py::call_guard<py::gil_scoped_release>());
}

MemberStateName name_of_state(engine::MemberState state) {
  constexpr const char* kNames[] = {"member", "returning", "refused", "ended"};
  return MemberStateName(kNames[static_cast<size_t>(state)]);
}

straggler::Advice advice_of(const std::string& name) {
  if (name == "none") return straggler::Advice::kNone;
  if (name == "caller") return straggler::Advice::kCaller;
  if (name == "link") return straggler::Advice::kLink;
  throw py::value_error(concat("advice '", name, "'"));
}

// Functions for ranks that give and copy states.
void register_states(BackendClass& backend) {
  backend
      .def(
          "seal",
          [](AikidoBackend& self, uint64_t seq, int rank, int tag) {
            self.communicator()->seal({Seq(seq), Rank(rank), tag});
          },
          py::arg("seq"), py::arg("rank"), py::arg("tag"),
          py::call_guard<py::gil_scoped_release>(),
          "Sends `rank` an int64 with this tag from the progress thread: 1 as soon as "
          "is_acked(seq, rank), -1 if this rank is excluded from the view before.")
      .def_property_readonly(
          "is_waited_for",
          [](AikidoBackend& self) {
            const py::gil_scoped_release release;
            return self.communicator()->is_waited_for();
          },
          "True if the other ranks have made a call that cannot end without this rank.")
      .def_property_readonly(
          "gone",
          [](AikidoBackend& self) {
            std::vector<int> ranks;
            const py::gil_scoped_release release;
            for (const Rank r : self.communicator()->gone()) ranks.push_back(r.value);
            return ranks;
          },
          "Ranks that have left or are lost.");
}

// Functions for the return of a rank that has copied the state of another rank.
void register_returns(BackendClass& backend) {
  backend
      .def(
          "skip_through",
          [](AikidoBackend& self, uint64_t seq) {
            adapter::raise_if_failed(self.communicator()->skip_through(Seq(seq)));
          },
          py::arg("seq"), py::call_guard<py::gil_scoped_release>(),
          "Declares that this rank has copied a state with the collectives up to "
          "`seq`, "
          "and will not call them.")
      .def(
          "is_acked",
          [](AikidoBackend& self, uint64_t seq, int except_rank) {
            return self.communicator()->is_acked(Seq(seq), Rank(except_rank));
          },
          py::arg("seq"), py::arg("except_rank"),
          py::call_guard<py::gil_scoped_release>(),
          "True if no rank but `except_rank` still needs a result up to `seq`.")
      .def(
          "members",
          [](AikidoBackend& self) {
            std::vector<int> ranks;
            self.communicator()->members().for_each(
                [&](Rank r) { ranks.push_back(r.value); });
            return ranks;
          },
          py::call_guard<py::gil_scoped_release>(),
          "Ranks in the view, which take part in skippable calls, ascending.")
      .def(
          "advise",
          [](AikidoBackend& self, int rank, const AdviceName& name) {
            if (rank < 0 || rank >= self.getSize())
              throw py::value_error(concat("rank ", rank, " of ", self.getSize()));
            const straggler::Advice advice = advice_of(name);
            const py::gil_scoped_release release;
            self.communicator()->advise(Rank(rank), advice);
          },
          py::arg("rank"), py::arg("advice"),
          "Sets the reason for which `rank` is late in most steps, until the next "
          "call.")
      .def(
          "sharing_failure",
          [](AikidoBackend& self) { return self.communicator()->sharing_failure(); },
          "Reason for which no memory is shared with a rank of this host. Empty: it is "
          "shared.")
      .def(
          "clock_of_rank_0",
          [](AikidoBackend& self)
              -> std::optional<std::tuple<int64_t, int64_t, double, int64_t>> {
            const auto line = self.communicator()->clock_of_rank_0();
            if (!line) return std::nullopt;
            return std::tuple(trace::to_ns(line->at), line->offset.count(), line->drift,
                              line->error.count());
          },
          py::call_guard<py::gil_scoped_release>(),
          "The clock of rank 0 against this rank's clock: time of the measurement "
          "(ns), "
          "offset (ns), drift, error (ns). None: not known.")
      .def_property_readonly(
          "num_calls",
          [](AikidoBackend& self) { return self.communicator()->num_calls(); },
          "Number of the last collective that this rank has called.")
      .def_property_readonly(
          "call_timeout", [](AikidoBackend& self) { return self.timeout(); },
          "Time-out of calls without a time-out of their own.")
      .def_property_readonly(
          "standing",
          [](AikidoBackend& self) {
            return name_of_state(self.communicator()->member_state());
          },
          "State of this rank in skippable calls: a member; or excluded and returning, "
          "refused, or ended.");
}

membership::Agreement agree_members(AikidoBackend& self, const std::vector<int>& lost,
                                    std::optional<std::chrono::milliseconds> limit) {
  const int own = self.getRank();
  std::vector<Rank> ranks;
  for (const int rank : lost) {
    if (rank < 0 || rank >= self.getSize() || rank == own)
      adapter::raise(
          {Code::kInvalidArgument,
           concat("agree_members: rank ", rank, " is in lost on rank ", own,
                  "; pass other ranks of the group, 0 to ", self.getSize() - 1)});
    ranks.emplace_back(rank);
  }
  self.communicator().check();
  const auto communicator = self.communicator().get();
  auto agreed =
      engine::agree_on_members(*communicator, ranks, limit.value_or(self.timeout()));
  adapter::raise_if_failed(agreed.status().with_context(
      concat("agree_members of group \"", self.group_name(), "\" on rank ", own)));
  return *std::move(agreed);
}

// Functions that change the members of a group, or make groups from it.
void register_members(BackendClass& backend) {
  backend
      .def("handle", &AikidoBackend::handle,
           "Text by which other members find this one.")
      .def(
          "change_members",
          [](AikidoBackend& self, int64_t uuid, std::vector<std::string> handles,
             bool is_ordered, std::optional<std::chrono::milliseconds> timeout) {
            return self.change_members({uuid, std::move(handles), is_ordered, timeout});
          },
          py::arg("uuid"), py::arg("handles"), py::arg("is_ordered"),
          py::arg("timeout"), py::call_guard<py::gil_scoped_release>(),
          "Connects the group to the members with these handles.")
      .def(
          "agree_members",
          [](AikidoBackend& self, const std::vector<int>& lost,
             std::optional<std::chrono::milliseconds> timeout) {
            const auto agreed = agree_members(self, lost, timeout);
            std::vector<int> ranks;
            agreed.ranks.for_each([&](Rank r) { ranks.push_back(r.value); });
            return std::make_pair(agreed.number, std::move(ranks));
          },
          py::arg("lost"), py::arg("timeout"), py::call_guard<py::gil_scoped_release>(),
          "Number of the next agreement on the members that are left, and these ranks.")
      .def(
          "set_link",
          [](AikidoBackend& self, const cost::LinkCost& link, double message_s,
             const cost::LinkCost& local) {
            adapter::raise_if_failed(self.set_link(link, message_s, local));
          },
          py::arg("link"), py::arg("message_s"), py::arg("local"),
          "Sets the cost of a message. Call it with the same values on all ranks, "
          "between "
          "the same calls.")
      .def("set_hosts", &AikidoBackend::set_hosts, py::arg("hosts"),
           py::call_guard<py::gil_scoped_release>(),
           "Sets the host of each rank. All ranks call it at the same point; it waits "
           "for "
           "all of them.")
      .def_property_readonly(
          "host",
          [](AikidoBackend& self) {
            return self.communicator()->engine().address().host;
          },
          "Numeric address at which other ranks find this process.")
      .def_property_readonly(
          "place",
          [](AikidoBackend& self) {
            return std::make_pair(self.getRank(), self.getSize());
          },
          "Rank and size in the present view.")
      .def_property_readonly("group_name", &AikidoBackend::group_name)
      .def_property_readonly("epoch", &AikidoBackend::epoch,
                             "Number of the present view, 0 before the first one.")
      .def(
          "set_end_hook",
          [](AikidoBackend& self, const EndHook& hook) {
            self.set_end_hook(hook.cast<std::function<void(adapter::Milliseconds)>>());
          },
          py::arg("hook"),
          "Sets the function that the first shutdown() calls with shutdown.linger_ms "
          "before it ends anything. shutdown() raises an error of the function at its "
          "end. The function is not called after abort(), nor at the end of a process.")
      .def("shut_down_family", &AikidoBackend::shut_down_family,
           py::call_guard<py::gil_scoped_release>(),
           "Shuts down this group and all groups that were made from it.")
      .def(
          "perform_nocolor_split", [](AikidoBackend&, const AnyDevice&) {},
          py::arg("device"),
          "Does nothing: ranks that are not in a split take no part in it.");
}

void register_runtime(py::module_& m) {
  py::class_<Runtime, std::shared_ptr<Runtime>>(
      m, "Runtime", "Progress thread and listener of a process.")
      .def(py::init(&start_runtime), py::arg("host"), py::arg("handshake_timeout"),
           py::arg("shared_memory_bytes"), py::arg("credit_bytes"),
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("address",
                             [](Runtime& r) { return r.engine->address().to_string(); })
      .def(
          "stop", [](Runtime& r) { r.callback_thread->stop(); },
          "Ends the thread that runs callbacks. For the end of the process.",
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("recorder",
                             [](Runtime& r) { return r.engine->recorder(); })
      .def_property_readonly("num_strangers", [](Runtime& r) {
        const py::gil_scoped_release release;
        return r.engine->num_strangers();
      });
}

}  // namespace

void register_process_group(py::module_& m) {
  register_outcome(m);
  m.def(
      "priority_range", [] { return std::make_pair(kMinPriority, kMaxPriority); },
      "Lowest and highest priority of a call.");
  register_runtime(m);
  m.def(
      "interface_address",
      [](const std::string& name) {
        return adapter::value_or_raise(transport::interface_address(name));
      },
      py::arg("name"), "Numeric address of a network interface of this machine.");
  m.def(
      "source_address",
      [](const std::string& peer) {
        return adapter::value_or_raise(transport::source_address(peer));
      },
      py::arg("peer"), py::call_guard<py::gil_scoped_release>(),
      "Numeric address of this machine that `peer` sees.");

  py::class_<AikidoWork, c10::intrusive_ptr<AikidoWork>, ::c10d::Work>(
      m, "AikidoWork", "The handle of a call of aikido_torch.")
      .def("outcome", &AikidoWork::outcome,
           "How the call ended; None while it is in progress. Raises the error of a "
           "failed call.")
      .def(
          "is_completed",
          [](AikidoWork& work) {
            work.end_batch_of_this_thread();
            return work.isCompleted();
          },
          py::call_guard<py::gil_scoped_release>(),
          "True if the call has ended. Ends a batch of calls of this thread.");

  BackendClass backend(m, "AikidoBackend",
                       "The c10d backend; made by init_process_group(\"aikido\").");
  backend
      .def(py::init([](const std::shared_ptr<Runtime>& runtime,
                       const c10::intrusive_ptr<::c10d::Store>& store, int rank,
                       int size, std::chrono::milliseconds timeout,
                       const std::string& group_name,
                       const std::map<std::string, std::string>& options, bool connect,
                       std::optional<std::chrono::milliseconds> connect_timeout) {
             AikidoBackend::Config config{group_name, timeout, settings_from(options),
                                          connect, connect_timeout};
             return c10::make_intrusive<AikidoBackend>(runtime->engine,
                                                       runtime->callback_thread, store,
                                                       rank, size, std::move(config));
           }),
           py::arg("runtime"), py::arg("store"), py::arg("rank"), py::arg("size"),
           py::arg("timeout"), py::arg("group_name"), py::arg("options"),
           py::arg("connect") = true, py::arg("connect_timeout") = py::none(),
           py::call_guard<py::gil_scoped_release>())
      .def("leave_after_rank_0", &AikidoBackend::leave_after_rank_0, py::arg("port"),
           py::call_guard<py::gil_scoped_release>(),
           "Declares that the store at `port` ends with this group on rank 0. "
           "shutdown() "
           "then returns after the store has ended.")
      .def_property_readonly("committed_ahead", &AikidoBackend::committed_ahead)
      .def_property_readonly("called_ahead", &AikidoBackend::called_ahead)
      .def_property_readonly("counters", &counters);
  register_calls(backend);
  register_members(backend);
  register_states(backend);
  register_returns(backend);
}

}  // namespace aikido::bind
