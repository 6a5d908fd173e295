// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The one table of settings: each has a name ("transport.chunk_bytes"), an environment
// variable made from it (AIKIDO_TRANSPORT_CHUNK_BYTES), an option of
// aikido_torch.Options (transport_chunk_bytes), a default, a range and a help text. An
// option given in code wins over the variable, the variable over the default. Any
// thread.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"

namespace aikido {

// Value of collectives.algorithm that chooses an algorithm by size.
inline constexpr const char* kAutoAlgorithm = "auto";

// Values of role.
inline constexpr const char* kTransient = "transient";
inline constexpr const char* kReliable = "reliable";

struct Settings {
  int64_t transport_chunk_bytes = 256 << 10;
  int64_t transport_eager_bytes = 256 << 10;
  int64_t transport_window_bytes = 64 << 20;
  int64_t transport_handshake_timeout_ms = 5000;
  int64_t transport_shared_memory_bytes = 1 << 20;
  int64_t transport_credit_bytes = 0;
  int64_t transport_priority = 0;
  int64_t transport_spin_us = 0;
  int64_t heartbeat_interval_ms = 1000;
  int64_t heartbeat_timeout_ms = 30'000;
  std::string socket_ifname;
  std::string role = kTransient;
  int64_t collectives_min_shard_bytes = 16 << 10;
  int64_t collectives_lead_bytes = 3 << 19;
  std::string collectives_algorithm = "direct";
  std::string devices_nccl = "auto";
  std::string devices_ipc = "auto";
  int64_t straggler_log_bytes = 256 << 20;
  int64_t memory_pool_bytes = 256 << 20;
  int64_t shutdown_linger_ms = 5000;
};

struct SettingSpec {
  const char* name;
  std::variant<int64_t Settings::*, std::string Settings::*> field;
  int64_t minimum;  // numbers only
  int64_t maximum;
  bool is_agreed;  // must be equal on all members of a group
  const char* help;
  std::vector<std::string> choices = {};  // for texts; empty: any text

  std::string variable() const;  // "AIKIDO_TRANSPORT_CHUNK_BYTES"
  std::string option() const;    // "transport_chunk_bytes"
  bool is_number() const { return field.index() == 0; }
  std::string value(const Settings& settings) const;
  // Valid values: "4096 to 16777216", "direct, ring, tree", or "text".
  std::string range() const;
};

const std::vector<SettingSpec>& settings_table();

// Source of a value.
enum class SettingSource : uint8_t { kDefault, kEnvironment, kOption };

struct ResolvedSettings {
  Settings values;
  std::map<std::string, SettingSource> sources;  // by option()

  bool is_given(const std::string& option) const {
    const auto it = sources.find(option);
    return it != sources.end() && it->second != SettingSource::kDefault;
  }
};

// `options` by option(); `environment` answers like getenv. kInvalidArgument names the
// setting, its value and its valid values; the same for an unknown option.
Result<ResolvedSettings> resolve_settings(
    const std::map<std::string, std::string>& options,
    const std::function<std::optional<std::string>(const std::string&)>& environment);

// "name=value;name=value" of the settings that all members must share.
std::string agreed_text(const Settings& settings);

}  // namespace aikido
