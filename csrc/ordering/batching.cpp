// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "ordering/batching.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "ordering/windows.h"

namespace aikido::ordering {
namespace {

Status check(const std::vector<BatchItem>& items, const BatchOptions& options) {
  for (size_t i = 0; i < items.size(); ++i)
    for (const auto& [name, value] : {std::pair("bytes", items[i].bytes),
                                      {"ready_s", items[i].ready_s},
                                      {"tail_s", items[i].tail_s}})
      if (!std::isfinite(value) || value < 0)
        return invalid(concat(name, " of item ", i, " is ", value,
                              "; it takes a finite number from 0 up"));
  if (std::isnan(options.most_bytes) || options.most_bytes < 0)
    return invalid(concat("the most bytes of a batch are ", options.most_bytes,
                          "; it takes a number from 0 up"));
  return Status::ok();
}

// A way to batch the first items.
struct PrefixPlan {
  double link_free_s = 0;
  double end_s = 0;  // largest end plus tail so far
  size_t batches = 0;
  size_t count = 0;   // of the last batch
  size_t before = 0;  // index of the cut of the items before it
};

// Reads the batches backwards from the last cut.
class Batched {
 public:
  explicit Batched(const cost::LinkCost& link) : link_(link) {}
  void add(const BatchItem& item) {
    bytes_ += item.bytes;
    ready_s_ = std::max(ready_s_, item.ready_s);
    tail_s_ = std::max(tail_s_, item.tail_s);
  }
  double bytes() const { return bytes_; }
  double begin_s(double link_free_s) const { return std::max(link_free_s, ready_s_); }
  double end_s(double link_free_s) const {
    return begin_s(link_free_s) + link_.time_s(bytes_);
  }
  double tail_s() const { return tail_s_; }

 private:
  const cost::LinkCost& link_;
  double bytes_ = 0, ready_s_ = 0, tail_s_ = 0;
};

// Cuts that no other cut beats in both values, by the time when the link is free. If
// two cuts are equal, the cut with fewer batches.
std::vector<PrefixPlan> unbeaten(std::vector<PrefixPlan> cuts) {
  std::stable_sort(cuts.begin(), cuts.end(),
                   [](const PrefixPlan& a, const PrefixPlan& b) {
                     return std::tuple(a.link_free_s, a.end_s, a.batches) <
                            std::tuple(b.link_free_s, b.end_s, b.batches);
                   });
  std::vector<PrefixPlan> kept;
  for (const PrefixPlan& cut : cuts)
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const PrefixPlan& other) { return other.end_s <= cut.end_s; }))
      kept.push_back(cut);
  return kept;
}

}  // namespace

BatchPlan plan_with(const std::vector<BatchItem>& items, const cost::LinkCost& link,
                    const std::vector<size_t>& counts) {
  BatchPlan plan;
  size_t first = 0;
  double link_free_s = 0;
  for (const size_t count : counts) {
    AIKIDO_CHECK(count > 0 && first + count <= items.size(), count, " items from ",
                 first, " of ", items.size());
    Batched batch(link);
    for (size_t i = first + count; i-- > first;) batch.add(items[i]);
    plan.batches.push_back({first, count, batch.bytes(), batch.begin_s(link_free_s),
                            batch.end_s(link_free_s)});
    link_free_s = plan.batches.back().end_s;
    plan.end_s = std::max(plan.end_s, link_free_s + batch.tail_s());
    first += count;
  }
  AIKIDO_CHECK(first == items.size(), first, " of ", items.size(), " items");
  return plan;
}

Result<BatchPlan> plan_batches(const std::vector<BatchItem>& items,
                               const cost::LinkCost& link,
                               const BatchOptions& options) {
  AIKIDO_TRY(validate(link));
  AIKIDO_TRY(check(items, options));
  std::vector<std::vector<PrefixPlan>> cuts(items.size() + 1);  // by number of items
  cuts[0].push_back({});
  for (size_t end = 1; end <= items.size(); ++end) {
    std::vector<PrefixPlan> found;
    Batched last(link);
    for (size_t first = end; first-- > 0;) {
      last.add(items[first]);
      if (end - first > 1 && last.bytes() > options.most_bytes) break;
      for (size_t i = 0; i < cuts[first].size(); ++i) {
        const PrefixPlan& before = cuts[first][i];
        const double end_s = last.end_s(before.link_free_s);
        found.push_back({end_s, std::max(before.end_s, end_s + last.tail_s()),
                         before.batches + 1, end - first, i});
      }
    }
    cuts[end] = unbeaten(std::move(found));
  }
  const auto& whole = cuts.back();
  const auto best = std::min_element(
      whole.begin(), whole.end(), [](const PrefixPlan& a, const PrefixPlan& b) {
        return std::pair(a.end_s, a.batches) < std::pair(b.end_s, b.batches);
      });
  std::vector<size_t> counts;
  const PrefixPlan* at = &*best;
  for (size_t end = items.size(); end > 0;) {
    counts.push_back(at->count);
    end -= at->count;
    at = &cuts[end][at->before];
  }
  std::reverse(counts.begin(), counts.end());
  return plan_with(items, link, counts);
}

Result<std::vector<BatchItem>> batch_items(const Graph& graph,
                                           const std::vector<size_t>& order) {
  auto windows = windows_of(graph);
  if (!windows) return windows.status();
  AIKIDO_TRY(check_order(graph, order));
  std::vector<BatchItem> by_op(graph.ops.size());
  for (const Window& it : windows->of)
    by_op[it.op] = {graph.ops[it.op].bytes, it.ready_s, it.tail_s};
  std::vector<BatchItem> items;
  for (const size_t op : order) items.push_back(by_op[op]);
  return items;
}

Result<Graph> with_batches(const Graph& graph, const std::vector<size_t>& order,
                           const BatchPlan& plan, const cost::LinkCost& link) {
  AIKIDO_TRY(validate(graph));
  AIKIDO_TRY(check_order(graph, order));
  AIKIDO_TRY(validate(link));
  size_t count = 0;
  for (const Batch& batch : plan.batches) count += batch.count;
  if (count != order.size())
    return invalid(concat("the plan is of ", count, " transfers, and the order has ",
                          order.size()));
  Graph made;
  std::vector<size_t> place(graph.ops.size());
  size_t next = 0;
  for (const Batch& batch : plan.batches) {
    const Op& first = graph.ops[order[next]];
    const Op& last = graph.ops[order[next + batch.count - 1]];
    Op op{batch.count == 1 ? first.name : first.name + ".." + last.name,
          OpKind::kTransfer, 0, 0};
    for (size_t i = 0; i < batch.count; ++i, ++next) {
      op.bytes += graph.ops[order[next]].bytes;
      place[order[next]] = made.ops.size();
    }
    op.time_s = link.time_s(op.bytes);
    made.ops.push_back(std::move(op));
  }
  for (const size_t op : program_order(graph)) {
    if (graph.ops[op].kind == OpKind::kTransfer) continue;
    place[op] = made.ops.size();
    made.ops.push_back(graph.ops[op]);
  }
  for (const Edge& edge : graph.edges)
    made.edges.push_back({place[edge.from], place[edge.to]});
  AIKIDO_TRY(validate(made));
  return made;
}

}  // namespace aikido::ordering
