// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/settings.h"

#include <set>

#include "harness/catch.h"

using namespace aikido;

namespace {

using Map = std::map<std::string, std::string>;

Result<ResolvedSettings> resolve(const Map& options, const Map& environment) {
  return resolve_settings(options, [&](const std::string& name) {
    const auto it = environment.find(name);
    return it == environment.end() ? std::nullopt : std::optional(it->second);
  });
}

}  // namespace

TEST_CASE("a setting has three names made from one") {
  const SettingSpec& spec = settings_table().front();
  CHECK(std::string(spec.name) == "transport.chunk_bytes");
  CHECK(spec.variable() == "AIKIDO_TRANSPORT_CHUNK_BYTES");
  CHECK(spec.option() == "transport_chunk_bytes");
}

TEST_CASE("every default is in its range, and every name exists once") {
  std::set<std::string> names;
  const Settings defaults;
  for (const SettingSpec& spec : settings_table()) {
    INFO(spec.name);
    CHECK(names.insert(spec.name).second);
    CHECK(std::string(spec.help) != "");
    if (!spec.is_number()) continue;
    const auto value = std::stoll(spec.value(defaults));
    CHECK(value >= spec.minimum);
    CHECK(value <= spec.maximum);
  }
}

TEST_CASE("an option wins over a variable, a variable over the default") {
  auto all = resolve(
      {{"transport_chunk_bytes", "8192"}},
      {{"AIKIDO_TRANSPORT_CHUNK_BYTES", "4096"}, {"AIKIDO_SOCKET_IFNAME", "eth7"}});
  REQUIRE(all.is_ok());
  CHECK(all->values.transport_chunk_bytes == 8192);
  CHECK(all->sources.at("transport_chunk_bytes") == SettingSource::kOption);
  CHECK(all->values.socket_ifname == "eth7");
  CHECK(all->sources.at("socket_ifname") == SettingSource::kEnvironment);
  CHECK(all->values.shutdown_linger_ms == Settings().shutdown_linger_ms);
  CHECK(all->sources.at("shutdown_linger_ms") == SettingSource::kDefault);
}

TEST_CASE("a given value counts as given, even if it equals the default") {
  auto all =
      resolve({{"transport_priority", "0"}}, {{"AIKIDO_TRANSPORT_CREDIT_BYTES", "0"}});
  REQUIRE(all.is_ok());
  CHECK(all->is_given("transport_priority"));
  CHECK(all->is_given("transport_credit_bytes"));
  CHECK_FALSE(all->is_given("transport_chunk_bytes"));
}

TEST_CASE("a value that does not fit is named with its source and range") {
  for (const char* value :
       {"", "x", "12x", "1.5", "4095", "16777217", "-1", "99999999999999999999"}) {
    const Status a = resolve({{"transport_chunk_bytes", value}}, {}).status();
    INFO(value);
    CHECK(a.code() == Code::kInvalidArgument);
    CHECK(a.message().find(concat("option transport_chunk_bytes is \"", value,
                                  "\"; it takes a whole number from 4096 to "
                                  "16777216 (longest piece of a message between two "
                                  "looks at what is more urgent)")) == 0);
    const Status b = resolve({}, {{"AIKIDO_TRANSPORT_CHUNK_BYTES", value}}).status();
    CHECK(b.message().find("AIKIDO_TRANSPORT_CHUNK_BYTES is") == 0);
  }
}

TEST_CASE("a text setting with choices accepts these choices only") {
  CHECK(
      resolve({{"collectives_algorithm", "tree"}}, {})->values.collectives_algorithm ==
      "tree");
  for (const char* value : {"", "Ring", "direct,ring"}) {
    const Status status = resolve({{"collectives_algorithm", value}}, {}).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find(concat("option collectives_algorithm is \"", value,
                                       "\"; it takes direct, ring, halving_doubling, "
                                       "tree, two_level, one_owner, auto (")) == 0);
  }
  CHECK(resolve({{"socket_ifname", "whatever"}}, {}).is_ok());
}

TEST_CASE("the heartbeat time-out is at least three intervals, or switched off") {
  const auto message = [](const char* interval, const char* timeout) {
    return resolve({{"heartbeat_interval_ms", interval}},
                   {{"AIKIDO_HEARTBEAT_TIMEOUT_MS", timeout}})
        .status()
        .message();
  };
  CHECK(message("1000", "2999") ==
        "heartbeat_timeout_ms is 2999 and heartbeat_interval_ms is 1000; the time-out "
        "takes 3 intervals at least, or 0");
  CHECK(message("1000", "3000").empty());
  CHECK(message("600000", "0").empty());
  CHECK_FALSE(message("600000", "30000").empty());
}

TEST_CASE("the error of an unknown option lists the known options") {
  const Status status = resolve({{"chunk", "1"}}, {}).status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message().find("there is no option \"chunk\"; there are "
                              "transport_chunk_bytes, ") == 0);
}

TEST_CASE("the agreed text holds the settings that all members share, and no others") {
  Settings a, b;
  CHECK(agreed_text(a).find("transport_eager_bytes=262144") == 0);
  b.transport_chunk_bytes = 8192;
  b.socket_ifname = "eth1";
  CHECK(agreed_text(a) == agreed_text(b));
  b.straggler_log_bytes = 2 << 20;
  CHECK(agreed_text(a) != agreed_text(b));
}
