// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/cost.h"

#include <iomanip>
#include <iterator>

#include "sim/simulation.h"

namespace aikido::sim {

using std::chrono::milliseconds;
using transport::FrameKind;

namespace {

constexpr Duration kDelay = milliseconds(1);

// One measured case: the call time of the last rank, or its death.
struct Case {
  const char* name;
  Duration late{};    // call time of the last rank
  bool dies = false;  // the last rank dies instead, and the view changes
};

Script script_of(int32_t members, uint64_t count, const Case& c) {
  Script script;
  script.members = members;
  script.chunk_bytes = 256 << 10;
  collectives::Call call;
  call.dtype = DType::kFloat32;
  call.count = count;
  call.shape.num_dims = 1;
  call.shape.dims[0] = count;
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.floor = milliseconds(10);
  call.policy.ceiling = milliseconds(10);
  script.ops.push_back(call);
  Event delay;
  delay.kind = EventKind::kDelay;
  delay.duration = kDelay;
  script.events.push_back(delay);
  for (int32_t r = 0; r < members; ++r) {
    Event event;
    event.a = r;
    event.op = 1;
    if (r == members - 1) event.at = c.late;
    if (r == members - 1 && c.dies) event.kind = EventKind::kKill;
    script.events.push_back(event);
  }
  return script;
}

}  // namespace

void print_cost(int max_members, std::ostream& out) {
  const Case cases[] = {{"no straggler", Duration{}},
                        {"late by 50 ms", milliseconds(50)},
                        {"it dies", Duration{}, true}};
  out << "one operation, delay " << to_text(kDelay)
      << " each way; a late member is waited for 10 ms\n\n"
      << "members  bucket  case           contributions  results  others      bytes  "
         "bytes/member  others end after\n";
  for (const int32_t n : {8, 64, 512}) {
    if (n > max_members) continue;
    // One owner, then one owner for each member.
    for (const uint64_t count :
         {uint64_t{16}, uint64_t{16} * static_cast<uint64_t>(n)}) {
      for (const Case& c : cases) {
        const Script script = script_of(n, count, c);
        const Report report = run(script, {});
        uint64_t others = 0, bytes = 0;
        const auto& kinds = report.traffic.by_kind;
        for (size_t kind = 0; kind < std::size(kinds); ++kind) {
          bytes += kinds[kind].bytes;
          if (kind != static_cast<size_t>(FrameKind::kContrib) &&
              kind != static_cast<size_t>(FrameKind::kResult))
            others += kinds[kind].messages;
        }
        const auto of = [&](FrameKind kind) {
          return kinds[static_cast<size_t>(kind)].messages;
        };
        out << std::setw(7) << n << std::setw(8) << count * 4 << "  " << std::left
            << std::setw(14) << c.name << std::right << std::setw(14)
            << of(FrameKind::kContrib) << std::setw(9) << of(FrameKind::kResult)
            << std::setw(8) << others << std::setw(11) << bytes << std::setw(14)
            << bytes / static_cast<uint64_t>(n) << "  "
            << (report.violation.empty() ? to_text(report.took_first)
                                         : report.violation)
            << "\n"
            << std::flush;
      }
    }
  }
}

}  // namespace aikido::sim
