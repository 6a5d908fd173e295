// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <pybind11/stl.h>

#include <cmath>

#include "bind/named_types.h"
#include "bind/register.h"
#include "c10d/common/error.h"
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

// Values of one argument by their names, in the order of the enum.
template <class T>
T chosen(const char* policy, const char* argument, const std::string& name,
         const std::vector<const char*>& names) {
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<T>(i);
    known += concat(i == 0                  ? ""
                    : i + 1 == names.size() ? " or "
                                            : ", ",
                    "\"", names[i], "\"");
  }
  adapter::raise({Code::kInvalidArgument, concat(policy, ": ", argument, " is \"", name,
                                                 "\"; it takes ", known)});
}

// Refused here: a number that does not fit into a Duration would appear as another
// number in the text.
Duration duration_of(const char* policy, const char* name, double ms) {
  if (std::abs(ms) <= 2 * to_ms(straggler::kLongestDeadline)) return from_ms(ms);
  adapter::raise({Code::kInvalidArgument,
                  concat(policy, ": ", name, " is ", ms, " but must be between 0 ",
                         "ms and ", to_ms(straggler::kLongestDeadline), " ms.")});
}

PolicyOptions make_skip(int32_t min_contributors, double floor_ms, double ceiling_ms,
                        int64_t max_consecutive_skips, int64_t warmup_operations,
                        double slack, double worth, const std::string& divisor,
                        const std::string& granularity, const std::string& on_log_full,
                        std::optional<int64_t> backups, const std::string& mode,
                        bool verify_shadows) {
  const char* policy = backups ? "ActiveBackup" : "SkipStraggler";
  PolicyOptions options;
  options.kind = straggler::Kind::kSkip;
  options.min_contributors = min_contributors;
  options.floor = duration_of(policy, "floor_ms", floor_ms);
  options.ceiling = duration_of(policy, "ceiling_ms", ceiling_ms);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto clamp = [](int64_t v) {
    return static_cast<uint32_t>(std::clamp<int64_t>(v, 0, 4'000'000'000));
  };
  options.max_consecutive_skips = clamp(max_consecutive_skips);
  options.warmup_operations = clamp(warmup_operations);
  options.slack = slack;
  options.worth = worth;
  options.divisor =
      chosen<straggler::Divisor>(policy, "divisor", divisor, {"contributors", "world"});
  options.masks =
      chosen<straggler::Masks>(policy, "granularity", granularity, {"shard", "bucket"});
  options.log_full = chosen<straggler::LogFull>(policy, "on_log_full", on_log_full,
                                                {"wait", "exclude"});
  options.backups =
      static_cast<int32_t>(std::clamp<int64_t>(backups.value_or(0), -kMost, kMost));
  options.backup_mode = chosen<straggler::BackupMode>(
      policy, "mode", mode, {"shadow", "substitute", "n_plus_b", "replicate"});
  options.verify_shadows = verify_shadows;
  // The size of the world is not known yet, so the largest size is assumed, which
  // excludes nothing. With a replica for each primary there is only one size.
  const bool is_known = options.backup_mode == straggler::BackupMode::kReplicate &&
                        options.backups > 0 && options.backups <= kMost / 2;
  adapter::raise_if_failed(straggler::validate(
      options, is_known ? 2 * options.backups : static_cast<int32_t>(kMost)));
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
                  py::arg("slack"), py::arg("worth"), py::arg("divisor"),
                  py::arg("granularity"), py::arg("on_log_full"),
                  py::arg("backups") = py::none(), py::arg("mode") = "shadow",
                  py::arg("verify_shadows") = false)
      .def(
          "check",
          [](const PolicyOptions& o, int32_t world_size) {
            adapter::raise_if_failed(straggler::validate(o, world_size));
          },
          py::arg("world_size"),
          "Raises ConfigError if a group of this size cannot use the policy.")
      .def("__repr__", [](const PolicyOptions& o) { return straggler::to_string(o); })
      .def(
          "__eq__",
          [](const PolicyOptions& self, const py::object& other) {
            return compare<PolicyOptions>(
                other, [&](const PolicyOptions& value) { return self == value; });
          },
          py::arg("other"), py::pos_only());
}

}  // namespace aikido::bind
