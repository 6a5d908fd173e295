// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/settings.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/types.h"

namespace aikido {

namespace {

std::vector<std::string> names_of_algorithms() {
  std::vector<std::string> names;
  for (int i = 0; i < kNumAlgorithms; ++i)
    names.emplace_back(name_of(static_cast<Algorithm>(i)));
  names.emplace_back(kAutoAlgorithm);
  return names;
}

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kGiB = 1 << 30;

std::vector<SettingSpec> settings_of_links() {
  return {
      {"transport.chunk_bytes", &Settings::transport_chunk_bytes, 4 * kKiB, 16 * kMiB,
       false,
       "longest piece of a message between two looks at what is more urgent; "
       "larger is slightly faster, smaller lets urgent messages through sooner"},
      {"transport.eager_bytes", &Settings::transport_eager_bytes, 0, 16 * kMiB, true,
       "largest message that is sent before the receiver has called; it waits at "
       "the receiver. Of larger blocks in a collective, this many bytes are sent "
       "early"},
      {"transport.window_bytes", &Settings::transport_window_bytes, 64 * kKiB,
       1024 * kGiB, true,
       "bytes from each other rank that may wait at a rank for its calls and "
       "receives; senders hold back the rest"},
      {"transport.handshake_timeout_ms", &Settings::transport_handshake_timeout_ms, 10,
       600'000, false,
       "time after which a connection without a greeting is dropped as a stranger"},
      {"transport.shared_memory_bytes", &Settings::transport_shared_memory_bytes, 0,
       1 * kGiB, false,
       "memory that a group shares with each rank of this host, each way, rounded "
       "up to a power of two and to 4 KiB; 0: ranks of one host use TCP too"},
      {"transport.credit_bytes", &Settings::transport_credit_bytes, 0, 1 * kGiB, false,
       "bytes that may be on their way from this process to other hosts while "
       "calls of different priority are under way; 0: as many as the uplink "
       "carries in 0.5 ms, as measured"},
      {"transport.priority", &Settings::transport_priority, kMinPriority, kMaxPriority,
       false,
       "priority of the group's calls that name none; higher goes first. If this "
       "is set, also to 0, links are ordered from the start of the group on"},
      {"transport.spin_us", &Settings::transport_spin_us, 0, 1'000'000, false,
       "microseconds that a waiting rank polls before it sleeps, beyond the tens "
       "of microseconds of a wake-up; other threads that need its core get it "
       "meanwhile, and its thread moves to another core (sched_setaffinity) if "
       "some thread always does. For the same time, at most 1 ms, other ranks may "
       "wait for a rank that made its calls one after another"},
      {"heartbeat.interval_ms", &Settings::heartbeat_interval_ms, 10, 600'000, true,
       "time between the heartbeats of a rank to each rank that it sends nothing "
       "else"},
      {"heartbeat.timeout_ms", &Settings::heartbeat_timeout_ms, 0, 86'400'000, true,
       "silence of a rank after which strict calls that need it end; 0: only the "
       "time-out of the call ends them"},
      {"socket.ifname", &Settings::socket_ifname, 0, 0, false,
       "network interface to use, such as eth0, or several: the first that this "
       "host has; empty: the interface that routes to MASTER_ADDR"},
  };
}

std::vector<SettingSpec> settings_of_groups() {
  const std::vector<std::string> where_it_can_be = {"auto", "on", "off"};
  return {
      {"role",
       &Settings::role,
       0,
       0,
       false,
       "role of this rank in votes on members, for its whole life: in a group with "
       "reliable ranks, more than half of those must be left, and all transient "
       "ranks may vanish at once; without reliable ranks every rank has a vote",
       {kTransient, kReliable}},
      {"collectives.min_shard_bytes", &Settings::collectives_min_shard_bytes, 64,
       1 * kGiB, true,
       "smallest shard in which a tensor is spread over owners; with the default, "
       "all_reduces up to 128 KiB have one owner if all ranks share memory and "
       "are more than the processors"},
      {"collectives.lead_bytes", &Settings::collectives_lead_bytes, 0, 1024 * kGiB,
       false,
       "bytes that are sent to the owners of shards ahead of results, in an "
       "all_reduce that waits for all ranks: at least two chunks to each owner, "
       "and more on a long way; 0: everything is sent at once"},
      {"collectives.algorithm", &Settings::collectives_algorithm, 0, 0, true,
       "algorithm of an all_reduce that waits for all ranks, with costs in "
       "csrc/collectives/README.md; auto: the fastest for the size of the call, "
       "by the links as measured when the group was made",
       names_of_algorithms()},
      {"devices.nccl", &Settings::devices_nccl, 0, 0, true,
       "use of an inner NCCL for collectives of CUDA tensors that wait for all "
       "ranks: on, if each rank has a GPU of its own, otherwise they fail; off: "
       "all go through the host; auto: NCCL if each rank has its own GPU",
       where_it_can_be},
      {"devices.ipc", &Settings::devices_ipc, 0, 0, true,
       "use of the memory of a shared GPU for an all_reduce of CUDA tensors that "
       "waits for all ranks: on, if all ranks share a GPU, otherwise it fails; "
       "off: through the host; auto: that memory if all ranks share a GPU",
       where_it_can_be},
      {"straggler.log_bytes", &Settings::straggler_log_bytes, 1 * kMiB, 1024 * kGiB,
       true,
       "bytes of results kept for a rank that has not called them, in each group, "
       "for all policies; when full the others wait for that rank, or go on "
       "without it (SkipStraggler(on_log_full))"},
      {"memory.pool_bytes", &Settings::memory_pool_bytes, 0, 1024 * kGiB, false,
       "idle staging memory that each group keeps for reuse"},
      {"shutdown.linger_ms", &Settings::shutdown_linger_ms, 0, 600'000, false,
       "time that destroy_process_group waits for queued data to leave"},
  };
}

}  // namespace

const std::vector<SettingSpec>& settings_table() {
  static const std::vector<SettingSpec> kTable = [] {
    std::vector<SettingSpec> table = settings_of_links();
    for (SettingSpec& spec : settings_of_groups()) table.push_back(std::move(spec));
    return table;
  }();
  return kTable;
}

namespace {

std::string replaced(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

// Heartbeats that a healthy rank may be late with, at least.
constexpr int64_t kMinHeartbeats = 3;

// Checks values that depend on each other.
Status check_together(const Settings& s) {
  if (s.heartbeat_timeout_ms == 0 ||
      s.heartbeat_timeout_ms >= kMinHeartbeats * s.heartbeat_interval_ms) {
    return Status::ok();
  }
  return {Code::kInvalidArgument,
          concat("heartbeat_timeout_ms is ", s.heartbeat_timeout_ms,
                 " and heartbeat_interval_ms is ", s.heartbeat_interval_ms,
                 "; the time-out takes ", kMinHeartbeats, " intervals at least, or 0")};
}

// First phrase of a help text, without its consequences.
std::string gist(const SettingSpec& spec) {
  const std::string help = spec.help;
  return help.substr(0, help.find_first_of(",;:"));
}

Status assign(const SettingSpec& spec, const std::string& where,
              const std::string& text, Settings& settings) {
  if (const auto* field = std::get_if<std::string Settings::*>(&spec.field)) {
    const auto& all = spec.choices;
    if (!all.empty() && std::find(all.begin(), all.end(), text) == all.end()) {
      return {Code::kInvalidArgument, concat(where, " is \"", text, "\"; it takes ",
                                             spec.range(), " (", gist(spec), ")")};
    }
    settings.*(*field) = text;
    return Status::ok();
  }
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < spec.minimum ||
      number > spec.maximum) {
    return {Code::kInvalidArgument,
            concat(where, " is \"", text, "\"; it takes a whole number from ",
                   spec.range(), " (", gist(spec), ")")};
  }
  settings.*std::get<int64_t Settings::*>(spec.field) = number;
  return Status::ok();
}

}  // namespace

std::string SettingSpec::variable() const {
  std::string text = "AIKIDO_" + option();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string SettingSpec::option() const {
  return replaced(name, '.', '_');
}

std::string SettingSpec::value(const Settings& settings) const {
  if (const auto* text = std::get_if<std::string Settings::*>(&field)) {
    return settings.*(*text);
  }
  return std::to_string(settings.*std::get<int64_t Settings::*>(field));
}

std::string SettingSpec::range() const {
  if (is_number()) return concat(minimum, " to ", maximum);
  if (choices.empty()) return "text";
  std::string text;
  for (const auto& choice : choices) text += (text.empty() ? "" : ", ") + choice;
  return text;
}

Result<ResolvedSettings> resolve_settings(
    const std::map<std::string, std::string>& options,
    const std::function<std::optional<std::string>(const std::string&)>& environment) {
  ResolvedSettings resolved;
  auto unused = options;
  for (const SettingSpec& spec : settings_table()) {
    SettingSource& source = resolved.sources[spec.option()];
    if (const auto given = unused.extract(spec.option())) {
      AIKIDO_TRY(
          assign(spec, "option " + spec.option(), given.mapped(), resolved.values));
      source = SettingSource::kOption;
    } else if (const auto text = environment(spec.variable())) {
      AIKIDO_TRY(assign(spec, spec.variable(), *text, resolved.values));
      source = SettingSource::kEnvironment;
    }
  }
  if (!unused.empty()) {
    std::string known;
    for (const SettingSpec& spec : settings_table()) {
      known += (known.empty() ? "" : ", ") + spec.option();
    }
    return Status(
        Code::kInvalidArgument,
        "there is no option \"" + unused.begin()->first + "\"; there are " + known);
  }
  AIKIDO_TRY(check_together(resolved.values));
  return resolved;
}

std::string agreed_text(const Settings& settings) {
  std::string text;
  for (const SettingSpec& spec : settings_table()) {
    if (!spec.is_agreed) continue;
    const char* separator = text.empty() ? "" : ";";
    text += concat(separator, spec.option(), "=", spec.value(settings));
  }
  return text;
}

}  // namespace aikido
