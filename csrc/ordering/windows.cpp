// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "ordering/windows.h"

#include <algorithm>

namespace aikido::ordering {

Result<Windows> windows_of(const Graph& graph) {
  AIKIDO_TRY(validate(graph));
  std::vector<double> begin_s(graph.ops.size()), done_s(graph.ops.size());
  const auto [before, after] = neighbours_of(graph);
  Windows windows;
  for (const size_t op : program_order(graph)) {
    if (graph.ops[op].kind == OpKind::kCompute) {
      begin_s[op] = windows.end_s;
      windows.end_s = done_s[op] = begin_s[op] + graph.ops[op].time_s;
      continue;
    }
    for (const size_t needed : before[op])
      begin_s[op] = std::max(begin_s[op], done_s[needed]);
    done_s[op] = begin_s[op];
  }
  for (const size_t op : transfers_of(graph)) {
    Window window{op, begin_s[op], windows.end_s, 0, 0};
    for (const size_t user : after[op])
      window.first_use_s = std::min(window.first_use_s, begin_s[user]);
    window.tail_s = windows.end_s - window.first_use_s;
    window.slack_s = window.first_use_s - window.ready_s - graph.ops[op].time_s;
    windows.of.push_back(window);
  }
  return windows;
}

}  // namespace aikido::ordering
