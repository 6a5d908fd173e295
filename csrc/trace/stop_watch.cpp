// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/stop_watch.h"

#include <utility>

namespace aikido::trace {

std::optional<Span> StopWatch::look(TimePoint now) {
  const auto last = std::exchange(last_, now);
  if (!last || now - *last < kInterval + kTolerance) return std::nullopt;
  Span span;
  span.kind = SpanKind::kStop;
  span.begin_ns = to_ns(*last);
  span.end_ns = to_ns(now);
  return span;
}

}  // namespace aikido::trace
