// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Calls of AikidoBackend that only wait for all ranks.

#include <algorithm>
#include <string>
#include <utility>

#include "c10d/aikido_backend.h"
#include "c10d/common/error.h"

namespace aikido::adapter {

using ::c10d::OpType;
using collectives::Call;
using collectives::CallKind;

WorkPtr AikidoBackend::barrier(const ::c10d::BarrierOptions& opts) {
  const CallScope scope = calls_.collective("barrier");
  Call call;
  call.kind = CallKind::kBarrier;
  return calls_.submit(scope, std::move(call), {OpType::BARRIER, "aikido:barrier"}, {},
                       {}, {}, opts.timeout);
}

// Rank 0 collects the calls of all and answers all. The texts begin like those of Gloo,
// which programs look for.
void AikidoBackend::monitoredBarrier(const ::c10d::BarrierOptions& opts,
                                     bool wait_all) {
  const Milliseconds limit =
      opts.timeout.count() < 0 ? timeout() : bounded(opts.timeout);
  if (limit.count() == 0) {
    raise({Code::kTimedOut,
           concat("Rank ", getRank(), " timed out in monitoredBarrier after 0 ",
                  "milliseconds. No ranks successfully processed in "
                  "monitoredBarrier; give a longer timeout")});
  }
  const CallScope in_batch = calls_.message("monitored_barrier");
  if (calls_.is_in_batch()) {
    raise({Code::kInvalidArgument,
           concat("monitored_barrier on rank ", getRank(),
                  ": it waits, so it cannot be coalesced with other calls")});
  }
  Call call;
  call.kind = CallKind::kMonitoredBarrier;
  const OwnWork work = [&] {
    const CallScope scope = calls_.collective("monitored_barrier");
    return calls_.submit(scope, std::move(call),
                         {OpType::BARRIER, "aikido:monitored_barrier"}, {}, {}, {},
                         limit);
  }();
  try {
    work->wait(kNoTimeout);
  } catch (const Error& error) {
    const Status& why = error.status();
    if (getRank() != 0) {
      raise(why.with_context(concat(
                "Rank ", getRank(),
                " successfully reached monitoredBarrier, but received errors while "
                "waiting for send/recv from rank 0. Please check rank 0 logs for "
                "faulty rank")),
            error.operation(), error.seq());
    }
    const std::vector<Rank> missing = work->missing();
    const bool is_known = std::count(missing.begin(), missing.end(), why.culprit()) > 0;
    // A rank that has called and was then lost. A rank that has not called yet has not
    // failed.
    const bool is_another = why.culprit() != kNoRank && !is_known;
    if (missing.empty() || is_another) throw;
    const Rank first = is_known ? why.culprit() : missing.front();
    std::string who;
    for (const Rank r : missing) who += concat(who.empty() ? "" : ", ", r.value);
    const bool is_one = missing.size() == 1 || !wait_all;
    const std::string text =
        concat(is_one ? concat("Rank ", first.value) : concat("Ranks ", who),
               " failed to pass monitoredBarrier in ", limit.count(), " ms");
    raise({why.code(), why.with_context(text).message(), first}, error.operation(),
          error.seq());
  }
}

}  // namespace aikido::adapter
