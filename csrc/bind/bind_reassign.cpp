// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The exchange of items of a step (engine/reassign_exchange.h) as a Python class.

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>

#include "bind/named_types.h"
#include "bind/register.h"
#include "c10d/aikido_backend.h"
#include "c10d/common/error.h"
#include "engine/reassign_exchange.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;
using engine::ClaimedItem;
using engine::ExchangeReport;
using engine::ReassignExchange;
using reassign::Loss;

constexpr char kLossReason[] =
    "typing.Literal['skipped', 'refused_late', 'returned_late', 'in_doubt']";
using LossReasonName = Named<py::str, kLossReason>;

const char* name_of_reason(Loss::Reason reason) {
  constexpr const char* kReasonNames[] = {"skipped", "refused_late", "returned_late",
                                          "in_doubt"};
  return kReasonNames[static_cast<size_t>(reason)];
}

// Durations above a year are a year.
Duration duration_of(const char* what, double seconds) {
  constexpr double kYear = 366.0 * 24 * 3600;
  if (!(seconds >= 0))
    adapter::raise(
        invalid(concat(what, " is ", seconds, " s; it must be 0 or more seconds")));
  return from_ms(std::min(seconds, kYear) * 1000);
}

uint64_t step_of(int64_t step) {
  if (step < 0)
    adapter::raise(invalid(concat("step is ", step, "; it must be 0 or more")));
  return static_cast<uint64_t>(step);
}

// Ends the exchange without Python's lock, because the progress thread may need it.
void destroy(ReassignExchange* exchange) {
  const py::gil_scoped_release unlocked;
  delete exchange;
}

std::shared_ptr<ReassignExchange> make_exchange(
    const c10::intrusive_ptr<adapter::AikidoBackend>& backend,
    std::vector<int32_t> hosts, int32_t helpers, double behind,
    double answer_timeout_s) {
  engine::ReassignExchangeOptions options;
  options.hosts = std::move(hosts);
  options.num_helpers = helpers;
  options.reassign.behind = behind;
  options.reassign.answer_timeout = duration_of("answer_timeout_s", answer_timeout_s);
  const auto [communicator, number] = backend->communicator().next_exchange();
  auto made = [&] {
    const py::gil_scoped_release unlocked;
    return ReassignExchange::open(communicator, number, options);
  }();
  adapter::raise_if_failed(made.status());
  return {made->release(), &destroy};
}

void begin(ReassignExchange& self, int64_t step, const std::vector<uint64_t>& labels,
           const std::vector<double>& costs) {
  if (labels.size() != costs.size())
    adapter::raise(
        invalid(concat("begin(step=", step, ") has ", labels.size(), " labels and ",
                       costs.size(), " costs; each item has one of both")));
  std::vector<reassign::ItemSpec> items(labels.size());
  for (size_t i = 0; i < items.size(); ++i) items[i] = {labels[i], costs[i]};
  const uint64_t number = step_of(step);
  const py::gil_scoped_release unlocked;
  adapter::raise_if_failed(self.begin(number, std::move(items)));
}

std::optional<ClaimedItem> claim(ReassignExchange& self, double timeout_s) {
  const Duration timeout = duration_of("timeout_s", timeout_s);
  const py::gil_scoped_release unlocked;
  return adapter::value_or_raise(self.claim(timeout));
}

std::vector<std::tuple<int32_t, uint32_t, uint64_t>> leave(ReassignExchange& self) {
  std::vector<std::tuple<int32_t, uint32_t, uint64_t>> left;
  const py::gil_scoped_release unlocked;
  for (const auto& [id, spec] : adapter::value_or_raise(self.leave()))
    left.emplace_back(id.owner.value, id.index, spec.label);
  return left;
}

void set_outcome(ReassignExchange& self, int64_t step,
                 const std::vector<int32_t>& contributors) {
  RankSet ranks(self.num_ranks());
  for (const int32_t rank : contributors) {
    if (rank < 0 || rank >= ranks.world_size())
      adapter::raise(invalid(concat("outcome(step=", step, ") names rank ", rank,
                                    " of a group of ", ranks.world_size())));
    ranks.insert(Rank(rank));
  }
  const uint64_t number = step_of(step);
  const py::gil_scoped_release unlocked;
  adapter::raise_if_failed(self.outcome(number, ranks));
}

std::vector<std::pair<int32_t, uint64_t>> taken_of(const ExchangeReport& report) {
  std::vector<std::pair<int32_t, uint64_t>> taken;
  for (const auto& [id, spec] : report.taken)
    taken.emplace_back(id.owner.value, spec.label);
  return taken;
}

void register_rows(py::module_& m) {
  py::class_<ClaimedItem>(m, "Claim", "Item that the caller of claim() computes next.")
      .def_property_readonly(
          "owner", [](const ClaimedItem& c) { return c.item.id.owner.value; },
          "Rank that began the step with the item.")
      .def_property_readonly(
          "index", [](const ClaimedItem& c) { return c.item.id.index; },
          "Place of the item in the list of its owner, from 0.")
      .def_property_readonly(
          "label", [](const ClaimedItem& c) { return c.item.spec.label; },
          "Label that the owner gave to the item.")
      .def_property_readonly(
          "cost", [](const ClaimedItem& c) { return c.item.spec.cost; },
          "Predicted cost, in the unit of begin().")
      .def_readonly("is_last", &ClaimedItem::is_last,
                    "True: nothing follows in this step, so the sum of the gradients "
                    "may start in the backward of the item. False: claim() decides.")
      .def_readonly("num_left", &ClaimedItem::num_left,
                    "Own items that nobody has claimed.")
      .def("__repr__", [](const ClaimedItem& c) {
        return concat(
            "Claim(owner=", c.item.id.owner.value, ", index=", c.item.id.index,
            ", label=", c.item.spec.label, ", cost=", c.item.spec.cost,
            ", is_last=", c.is_last ? "True" : "False", ", num_left=", c.num_left, ")");
      });
  py::class_<Loss>(m, "Loss",
                   "Own item that this rank gave away and that is in no sum.")
      .def_property_readonly("step", [](const Loss& l) { return l.id.step; })
      .def_property_readonly("index", [](const Loss& l) { return l.id.index; })
      .def_property_readonly("label", [](const Loss& l) { return l.spec.label; })
      .def_property_readonly("cost", [](const Loss& l) { return l.spec.cost; })
      .def_property_readonly(
          "helper", [](const Loss& l) { return l.helper.value; },
          "Rank to which the item was given.")
      .def_property_readonly(
          "reason",
          [](const Loss& l) { return LossReasonName(name_of_reason(l.reason)); },
          "'skipped': the outcome is without the helper. 'refused_late': the helper "
          "refused the item after the end of the step here. 'returned_late': it gave "
          "the item back after that end. In these cases the item may be issued again. "
          "'in_doubt': the helper contributed and died, and it is not known if the "
          "item is in its contribution; drop and count it.")
      .def("__repr__", [](const Loss& l) {
        return concat("Loss(step=", l.id.step, ", index=", l.id.index,
                      ", label=", l.spec.label, ", cost=", l.spec.cost,
                      ", helper=", l.helper.value, ", reason='",
                      name_of_reason(l.reason), "')");
      });
  py::class_<ExchangeReport>(m, "StepReport", "Work of this rank in one step.")
      .def_property_readonly(
          "step",
          [](const ExchangeReport& r) {
            return r.step ? static_cast<int64_t>(*r.step) : int64_t{-1};
          },
          "Number of the step; -1 before the first one.")
      .def_readonly("num_begun_with", &ExchangeReport::num_begun_with,
                    "Own items at the begin of the step.")
      .def_readonly("num_given", &ExchangeReport::num_given,
                    "Own items that other ranks took, without returned items.")
      .def_property_readonly("taken", &taken_of,
                             "(owner, label) of the items of other ranks that this "
                             "rank has begun, in that order.")
      .def_readonly("num_messages", &ExchangeReport::num_messages,
                    "Messages that this rank has sent in the step.")
      .def_readonly("num_bytes", &ExchangeReport::num_bytes,
                    "Bytes of these messages, without their padding.")
      .def("__repr__", [](const ExchangeReport& r) {
        return concat("StepReport(step=", r.step ? static_cast<int64_t>(*r.step) : -1,
                      ", num_begun_with=", r.num_begun_with,
                      ", num_given=", r.num_given, ", num_taken=", r.taken.size(),
                      ", num_messages=", r.num_messages, ", num_bytes=", r.num_bytes,
                      ")");
      });
}

}  // namespace

void register_reassign(py::module_& m) {
  register_rows(m);
  py::class_<ReassignExchange, std::shared_ptr<ReassignExchange>>(
      m, "ReassignExchange",
      "Moves items of a step between the ranks of a group, peer to peer. All ranks of "
      "the group make it in the same order and with the same arguments. It works on "
      "the present members of the backend, and ends with them.\n\n"
      "begin(), claim(), finished(), leave() and outcome() are for one thread. Other "
      "ranks are served on the progress thread, without Python. All calls release "
      "Python's lock; only claim() blocks.")
      .def(py::init(&make_exchange), py::arg("backend"), py::arg("hosts"),
           py::arg("helpers"), py::kw_only(), py::arg("behind") = 0.2,
           py::arg("answer_timeout_s") = 0.05,
           "hosts: number of the host of each rank; empty: all on one host. helpers: "
           "ranks that may take items of a rank. behind: share of a step by which "
           "another rank must be late before this rank asks it for items while it "
           "still has own ones. answer_timeout_s: seconds until an answer is given up. "
           "Raises ConfigError for a value out of its range.")
      .def("begin", &begin, py::arg("step"), py::arg("labels"), py::arg("costs"),
           "Begins a step with own items, large ones first. `labels` are any numbers "
           "of 64 bits, `costs` are predicted, above 0, in a unit that all ranks "
           "share. Raises ConfigError if the step before is not over, if `step` is "
           "not later than it, or for a wrong cost. Raises as claim() does after an "
           "end.")
      .def("claim", &claim, py::arg("timeout_s"),
           "The next item of this rank: own ones first, then items taken over. None: "
           "nothing more in this step. Waits while an answer of another rank could "
           "bring an item, for at most `timeout_s` seconds; then it raises "
           "TimedOutError, and may be called again. After stop() it raises "
           "AbortedError. After the end of the group it raises the reason of that end.")
      .def(
          "finished",
          [](ReassignExchange& self, double seconds) {
            const Duration took = duration_of("seconds", seconds);
            const py::gil_scoped_release unlocked;
            adapter::raise_if_failed(self.finished(took));
          },
          py::arg("seconds"),
          "The gradient of the item claimed last is in this rank's sum. It took that "
          "time.")
      .def("leave", &leave,
           "Ends the step on this rank. Returns (owner, index, label) of the own items "
           "that are not computed here; the item claimed last is one of them unless "
           "finished() was called for it. Items of other ranks go back to them.")
      .def("outcome", &set_outcome, py::arg("step"), py::arg("contributors"),
           "The sum of `step` has the contributions of these ranks. Call it once for "
           "each step, in order, when the step is over here. Raises ConfigError "
           "otherwise.")
      .def(
          "take_losses",
          [](ReassignExchange& self) {
            const py::gil_scoped_release unlocked;
            return adapter::value_or_raise(self.take_losses());
          },
          "Own items that were given away and are in no sum. Each is returned once. "
          "Any thread.")
      .def(
          "report",
          [](const ReassignExchange& self) {
            const py::gil_scoped_release unlocked;
            return adapter::value_or_raise(self.report());
          },
          "Work of this rank in the present or last step. Any thread.")
      .def("stop", &ReassignExchange::stop, py::call_guard<py::gil_scoped_release>(),
           "Takes no part any more, and ends a claim() that waits. The other ranks "
           "go on without this rank. Never blocks. May be called again, from any "
           "thread.");
}

}  // namespace aikido::bind
