// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind/register.h"
#include "c10d/common/error.h"
#include "cost/collective_cost.h"
#include "cost/link_fit.h"
#include "cost/pipelining.h"
#include "ordering/batching.h"
#include "ordering/best_order.h"
#include "ordering/efficiency.h"
#include "ordering/simulate.h"
#include "ordering/tictac.h"
#include "ordering/windows.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;
using cost::LinkCost;
using cost::LinkFit;
using ordering::Graph;
using ordering::Op;
using ordering::OpKind;

// In Python, ops are identified by their names.
using Names = std::vector<std::string>;
using NamedEdges = std::vector<std::pair<std::string, std::string>>;

struct NamedSpan {
  std::string op;
  std::optional<int> processor;  // empty: the link
  double begin_s = 0, end_s = 0;
};

struct NamedTimeline {
  double makespan_s = 0;
  std::vector<NamedSpan> spans;
  std::map<std::string, double> done_s;
  size_t pauses = 0;
};

struct NamedWindow {
  std::string transfer;
  ordering::Window window;
};

struct NamedBatch {
  Names transfers;
  ordering::Batch batch;
};

struct NamedBatchPlan {
  std::vector<NamedBatch> batches;
  double end_s = 0;
  Graph graph;
};

Names names_of(const Graph& graph, const std::vector<size_t>& ops) {
  Names names;
  for (const size_t op : ops) names.push_back(graph.ops[op].name);
  return names;
}

std::vector<size_t> ops_named(const Graph& graph, const Names& names) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < graph.ops.size(); ++i) places[graph.ops[i].name] = i;
  std::vector<size_t> ops;
  for (const auto& name : names) {
    const auto found = places.find(name);
    if (found == places.end())
      adapter::raise({Code::kInvalidArgument,
                      concat("the order has \"", name, "\", which the graph has not")});
    ops.push_back(found->second);
  }
  return ops;
}

std::vector<std::pair<std::string, size_t>> placed(
    const Graph& graph, std::vector<ordering::Placed> (*order)(const Graph&)) {
  const auto made = [&] {
    const py::gil_scoped_release release;
    return order(graph);
  };
  std::vector<std::pair<std::string, size_t>> named;
  for (const auto& it : made()) named.emplace_back(graph.ops[it.op].name, it.place);
  return named;
}

ordering::SimulateOptions options_of(const std::string& link, double chunk_bytes,
                                     const std::string& compute, int processors) {
  ordering::SimulateOptions options;
  options.link = adapter::value_or_raise(ordering::link_rule_named(link));
  options.compute = adapter::value_or_raise(ordering::compute_rule_named(compute));
  options.chunk_bytes = chunk_bytes;
  options.processors = processors;
  return options;
}

NamedTimeline simulate(const Graph& graph, const Names& order, const std::string& link,
                       double chunk_bytes, const std::string& compute, int processors) {
  auto options = options_of(link, chunk_bytes, compute, processors);
  options.order = ops_named(graph, order);
  const auto made = [&] {
    const py::gil_scoped_release release;
    return ordering::simulate(graph, options);
  };
  const auto timeline = adapter::value_or_raise(made());
  NamedTimeline named{timeline.makespan_s, {}, {}, timeline.pauses};
  for (const auto& span : timeline.spans)
    named.spans.push_back(
        {graph.ops[span.op].name,
         span.processor < 0 ? std::nullopt : std::optional(span.processor),
         span.begin_s, span.end_s});
  for (size_t op = 0; op < graph.ops.size(); ++op)
    named.done_s[graph.ops[op].name] = timeline.done_s[op];
  return named;
}

std::pair<Names, double> best_order(const Graph& graph, const std::string& link,
                                    double chunk_bytes, const std::string& compute,
                                    int processors) {
  const auto options = options_of(link, chunk_bytes, compute, processors);
  const auto made = [&] {
    const py::gil_scoped_release release;
    return ordering::best_order(graph, options);
  };
  const auto best = adapter::value_or_raise(made());
  return {names_of(graph, best.order), best.makespan_s};
}

std::vector<NamedWindow> windows(const Graph& graph) {
  const auto windows = adapter::value_or_raise(ordering::windows_of(graph));
  std::vector<NamedWindow> named;
  for (const auto& window : windows.of)
    named.push_back({graph.ops[window.op].name, window});
  return named;
}

NamedBatchPlan plan_batches(const Graph& graph, const Names& order,
                            const LinkCost& link, double most_bytes) {
  const auto ops = ops_named(graph, order);
  const auto items = adapter::value_or_raise(ordering::batch_items(graph, ops));
  const auto made = [&] {
    const py::gil_scoped_release release;
    return ordering::plan_batches(items, link, {most_bytes});
  };
  const auto plan = adapter::value_or_raise(made());
  NamedBatchPlan named{
      {},
      plan.end_s,
      adapter::value_or_raise(ordering::with_batches(graph, ops, plan, link))};
  for (const auto& batch : plan.batches) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(batch.first);
    named.batches.push_back(
        {{first, first + static_cast<std::ptrdiff_t>(batch.count)}, batch});
  }
  return named;
}

void register_graph(py::module_& m) {
  py::class_<LinkCost>(
      m, "LinkCost", "Time of a transfer: alpha_s seconds, plus beta_s for each byte.")
      .def(py::init([](double alpha_s, double beta_s) {
             const LinkCost link{alpha_s, beta_s};
             adapter::raise_if_failed(cost::validate(link));
             return link;
           }),
           py::kw_only(), py::arg("alpha_s"), py::arg("beta_s"))
      .def_readonly("alpha_s", &LinkCost::alpha_s)
      .def_readonly("beta_s", &LinkCost::beta_s)
      .def("time_s", &LinkCost::time_s, py::arg("bytes"),
           "Seconds for a transfer of this size.");
  py::class_<Op>(m, "Op", "A computation or a transfer of one iteration of a training.")
      .def_readonly("name", &Op::name)
      .def_readonly("time_s", &Op::time_s)
      .def_readonly("bytes", &Op::bytes)
      .def_property_readonly("is_transfer",
                             [](const Op& op) { return op.kind == OpKind::kTransfer; })
      .def_static(
          "compute",
          [](std::string name, double time_s) {
            return Op{std::move(name), OpKind::kCompute, time_s, 0};
          },
          py::arg("name"), py::kw_only(), py::arg("time_s"),
          "A computation that takes a processor for this time.")
      .def_static(
          "transfer",
          [](std::string name, double time_s, double bytes) {
            return Op{std::move(name), OpKind::kTransfer, time_s, bytes};
          },
          py::arg("name"), py::kw_only(), py::arg("time_s") = 0.0,
          py::arg("bytes") = 0.0, "A transfer that takes the link for this time.");
  py::class_<Graph>(
      m, "OpGraph",
      "Ops of one iteration, and their edges: pairs of names, of which the "
      "second op needs the first.")
      .def(
          py::init([](std::vector<Op> ops, const NamedEdges& edges) {
            return adapter::value_or_raise(ordering::make_graph(std::move(ops), edges));
          }),
          py::arg("ops"), py::arg("edges"))
      .def_readonly("ops", &Graph::ops)
      .def_property_readonly("edges",
                             [](const Graph& graph) {
                               NamedEdges named;
                               for (const auto& edge : graph.edges)
                                 named.emplace_back(graph.ops[edge.from].name,
                                                    graph.ops[edge.to].name);
                               return named;
                             })
      .def_property_readonly("transfers",
                             [](const Graph& graph) {
                               return names_of(graph, ordering::transfers_of(graph));
                             })
      .def("with_link", &ordering::with_link, py::arg("link"),
           "The graph with the times that this link has for the transfers.");
}

void register_results(py::module_& m) {
  using ordering::Bounds;
  py::class_<Bounds>(
      m, "Bounds", "Bounds for the time of an iteration on one link and one processor.")
      .def_readonly("communication_s", &Bounds::communication_s)
      .def_readonly("computation_s", &Bounds::computation_s)
      .def_property_readonly("upper_s", &Bounds::upper_s)
      .def_property_readonly("lower_s", &Bounds::lower_s)
      .def_property_readonly("ratio", &Bounds::ratio)
      .def_property_readonly("speed_up", &Bounds::speed_up)
      .def("efficiency", &Bounds::efficiency, py::arg("makespan_s"),
           "1 with full overlap, 0 without overlap.");
  py::class_<NamedSpan>(m, "OpSpan", "Time in which an op ran without a pause.")
      .def_readonly("op", &NamedSpan::op)
      .def_readonly("processor", &NamedSpan::processor)
      .def_readonly("begin_s", &NamedSpan::begin_s)
      .def_readonly("end_s", &NamedSpan::end_s);
  py::class_<NamedTimeline>(m, "Timeline", "Times of all ops of one iteration.")
      .def_readonly("makespan_s", &NamedTimeline::makespan_s)
      .def_readonly("spans", &NamedTimeline::spans)
      .def_readonly("done_s", &NamedTimeline::done_s)
      .def_readonly("pauses", &NamedTimeline::pauses);
  const auto of_window = [](auto field) {
    return [field](const NamedWindow& named) { return named.window.*field; };
  };
  using ordering::Window;
  py::class_<NamedWindow>(m, "TransferWindow",
                          "Time window of a transfer: from ready to its first use.")
      .def_readonly("transfer", &NamedWindow::transfer)
      .def_property_readonly("ready_s", of_window(&Window::ready_s))
      .def_property_readonly("first_use_s", of_window(&Window::first_use_s))
      .def_property_readonly("tail_s", of_window(&Window::tail_s))
      .def_property_readonly("slack_s", of_window(&Window::slack_s));
  const auto of_batch = [](auto field) {
    return [field](const NamedBatch& named) { return named.batch.*field; };
  };
  using ordering::Batch;
  py::class_<NamedBatch>(m, "TransferBatch", "Transfers that are sent as one.")
      .def_readonly("transfers", &NamedBatch::transfers)
      .def_property_readonly("bytes", of_batch(&Batch::bytes))
      .def_property_readonly("begin_s", of_batch(&Batch::begin_s))
      .def_property_readonly("end_s", of_batch(&Batch::end_s));
  py::class_<NamedBatchPlan>(m, "BatchPlan", "Batches in the order of sending.")
      .def_readonly("batches", &NamedBatchPlan::batches)
      .def_readonly("end_s", &NamedBatchPlan::end_s)
      .def_readonly("graph", &NamedBatchPlan::graph);
}

void register_orders(py::module_& m) {
  m.def(
      "tic", [](const Graph& graph) { return placed(graph, &ordering::tic); },
      py::arg("graph"), "Names and places of aikido_torch.ordering.tic.");
  m.def(
      "tac", [](const Graph& graph) { return placed(graph, &ordering::tac); },
      py::arg("graph"), "Names and places of aikido_torch.ordering.tac.");
  m.def("iteration_bounds", &ordering::bounds_of, py::arg("graph"),
        "aikido_torch.ordering.bounds.");
  m.def("simulate_iteration", &simulate, py::arg("graph"), py::kw_only(),
        py::arg("order"), py::arg("link"), py::arg("chunk_bytes"), py::arg("compute"),
        py::arg("processors"), "aikido_torch.ordering.simulate without its defaults.");
  m.def("best_order", &best_order, py::arg("graph"), py::kw_only(), py::arg("link"),
        py::arg("chunk_bytes"), py::arg("compute"), py::arg("processors"),
        "aikido_torch.ordering.best_order without its defaults.");
  m.def("transfer_windows", &windows, py::arg("graph"),
        "aikido_torch.ordering.windows.");
  m.def("plan_batches", &plan_batches, py::arg("graph"), py::kw_only(),
        py::arg("order"), py::arg("link"), py::arg("most_bytes"),
        "aikido_torch.ordering.plan_batches without its defaults.");
}

cost::CollectiveCosts costs_of(const LinkCost& message, double gamma_s,
                               double message_s, double shard_bytes,
                               std::vector<int> hosts, const LinkCost& local) {
  return {message, gamma_s, message_s, shard_bytes, std::move(hosts), local};
}

void register_costs(py::module_& m) {
  m.def(
      "collective_time",
      [](const std::string& collective, int members, double bytes,
         const LinkCost& message, double gamma_s, double message_s, double shard_bytes,
         std::vector<int> hosts, const LinkCost& local) {
        const auto which = adapter::value_or_raise(cost::algorithm_named(collective));
        return adapter::value_or_raise(
            cost::cost_of(which, members, bytes,
                          costs_of(message, gamma_s, message_s, shard_bytes,
                                   std::move(hosts), local)));
      },
      py::arg("collective"), py::kw_only(), py::arg("members"), py::arg("bytes"),
      py::arg("message"), py::arg("gamma_s"), py::arg("message_s"),
      py::arg("shard_bytes"), py::arg("hosts"), py::arg("local"),
      "aikido_torch.ordering.collective_time without its defaults.");
  m.def(
      "choose_collective",
      [](int members, double bytes, const LinkCost& message, double gamma_s,
         double message_s, double shard_bytes, std::vector<int> hosts,
         const LinkCost& local, const Names& among) {
        std::vector<Algorithm> some;
        for (const auto& name : among)
          some.push_back(adapter::value_or_raise(cost::algorithm_named(name)));
        const auto choice = adapter::value_or_raise(cost::choose_collective(
            members, bytes,
            costs_of(message, gamma_s, message_s, shard_bytes, std::move(hosts), local),
            some));
        return std::pair(std::string(name_of(choice.algorithm)), choice.time_s);
      },
      py::kw_only(), py::arg("members"), py::arg("bytes"), py::arg("message"),
      py::arg("gamma_s"), py::arg("message_s"), py::arg("shard_bytes"),
      py::arg("hosts"), py::arg("local"), py::arg("among"),
      "aikido_torch.ordering.choose_collective without its defaults.");
  m.def(
      "pipelining_depth",
      [](double bytes, int hops, int most, const LinkCost& link) {
        const auto found =
            adapter::value_or_raise(cost::pipelining_of(bytes, hops, most, link));
        return std::pair(found.depth, found.time_s);
      },
      py::kw_only(), py::arg("bytes"), py::arg("hops"), py::arg("most"),
      py::arg("link"), "aikido_torch.ordering.pipelining_depth without its defaults.");
  py::class_<LinkFit>(
      m, "LinkFit",
      "Estimate of a link's cost from measured transfers. Stalled transfers "
      "do not change it. A changed rate does, at its `change`-th sample.")
      .def(py::init([](size_t window, size_t change, double tolerance) {
             return adapter::value_or_raise(LinkFit::make({window, change, tolerance}));
           }),
           py::kw_only(), py::arg("window") = cost::LinkFitOptions{}.window,
           py::arg("change") = cost::LinkFitOptions{}.change,
           py::arg("tolerance") = cost::LinkFitOptions{}.tolerance)
      .def(
          "add",
          [](LinkFit& fit, double bytes, double seconds) {
            adapter::raise_if_failed(fit.add(bytes, seconds));
          },
          py::kw_only(), py::arg("bytes"), py::arg("seconds"),
          "Adds a measured transfer.")
      .def_property_readonly("link", &LinkFit::link)
      .def_property_readonly("size", &LinkFit::size)
      .def_property_readonly("changes", &LinkFit::changes);
}

}  // namespace

void register_ordering(py::module_& m) {
  register_graph(m);
  register_results(m);
  register_orders(m);
  register_costs(m);
}

}  // namespace aikido::bind
