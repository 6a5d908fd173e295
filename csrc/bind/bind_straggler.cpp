// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <cmath>

#include "bind/register.h"
#include "c10d/error.h"
#include "straggler/policy.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;
using straggler::PolicyOptions;

PolicyOptions make_wait_all(bool rebalance) {
  PolicyOptions options;
  options.rebalance = rebalance;
  return options;
}

// Refused here: what no Duration holds would be another number in the text.
Duration duration_of(const char* name, double ms) {
  if (std::abs(ms) <= 2 * to_ms(straggler::kLongestDeadline)) return from_ms(ms);
  adapter::raise({Code::kInvalidArgument,
                  concat("SkipStraggler: ", name, " is ", ms, " but must be between 0 ",
                         "ms and ", to_ms(straggler::kLongestDeadline), " ms.")});
}

PolicyOptions make_skip(int32_t min_contributors, double floor_ms, double ceiling_ms,
                        int64_t max_consecutive_skips, int64_t warmup_operations,
                        double slack, const std::string& divisor,
                        const std::string& masks, const std::string& log_full) {
  PolicyOptions options;
  options.kind = straggler::Kind::kSkip;
  options.min_contributors = min_contributors;
  options.floor = duration_of("floor_ms", floor_ms);
  options.ceiling = duration_of("ceiling_ms", ceiling_ms);
  const auto clamp = [](int64_t v) {
    return static_cast<uint32_t>(std::clamp<int64_t>(v, 0, 4'000'000'000));
  };
  options.max_consecutive_skips = clamp(max_consecutive_skips);
  options.warmup_operations = clamp(warmup_operations);
  options.slack = slack;
  if (divisor != "contributors" && divisor != "world") {
    adapter::raise(
        {Code::kInvalidArgument, "SkipStraggler: divisor is \"" + divisor +
                                     "\"; it takes \"contributors\" or \"world\""});
  }
  options.divisor = divisor == "world" ? straggler::Divisor::kWorld
                                       : straggler::Divisor::kContributors;
  if (masks != "shard" && masks != "bucket") {
    adapter::raise(
        {Code::kInvalidArgument, "SkipStraggler: masks is \"" + masks +
                                     "\"; it takes \"shard\" or \"bucket\""});
  }
  options.masks =
      masks == "bucket" ? straggler::Masks::kBucket : straggler::Masks::kShard;
  if (log_full != "wait" && log_full != "leave") {
    adapter::raise({Code::kInvalidArgument, "SkipStraggler: log_full is \"" + log_full +
                                                "\"; it takes \"wait\" or \"leave\""});
  }
  options.log_full =
      log_full == "leave" ? straggler::LogFull::kLeave : straggler::LogFull::kWait;
  // The size of the world is not known yet: the largest one rules nothing out.
  adapter::raise_if_failed(
      straggler::validate(options, std::numeric_limits<int32_t>::max()));
  return options;
}

}  // namespace

void register_straggler(py::module_& m) {
  py::class_<PolicyOptions>(m, "PolicyOptions",
                            "A straggler policy in the engine's form.")
      .def_static("wait_all", &make_wait_all, py::kw_only(), py::arg("rebalance"))
      .def_static("skip", &make_skip, py::kw_only(), py::arg("min_contributors"),
                  py::arg("floor_ms"), py::arg("ceiling_ms"),
                  py::arg("max_consecutive_skips"), py::arg("warmup_operations"),
                  py::arg("slack"), py::arg("divisor"), py::arg("masks"),
                  py::arg("log_full"))
      .def("__repr__", [](const PolicyOptions& o) { return straggler::to_string(o); })
      .def(
          "__eq__",
          [](const PolicyOptions& a, const PolicyOptions& b) { return a == b; },
          py::is_operator());
}

}  // namespace aikido::bind
