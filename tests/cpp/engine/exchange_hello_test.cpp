// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/exchange_hello.h"

#include <string>

#include "harness/catch.h"

using namespace aikido;
using engine::ExchangeHello;

namespace {

ExchangeHello hello_of(const std::vector<int32_t>& hosts, int32_t num_helpers = 4,
                       const reassign::ReassignOptions& options = {}) {
  return ExchangeHello::of(hosts, 4, num_helpers, options);
}

}  // namespace

TEST_CASE("the options of an exchange come back from their bytes") {
  reassign::ReassignOptions options;
  options.behind = 0.5;
  options.absent_patience = 0.75;
  const ExchangeHello hello = hello_of({0, 0, 1, 1}, 2, options);
  const auto bytes = hello.encode();
  CHECK(bytes.size() == 44);
  REQUIRE(engine::is_hello(bytes));
  auto found = engine::decode_hello(bytes);
  REQUIRE(found.is_ok());
  CHECK(found->difference(hello).empty());
  CHECK(found->num_helpers == 2);
  CHECK(found->behind == 0.5);
  CHECK(found->absent_patience == 0.75);
  CHECK(found->answer_timeout_ns == options.answer_timeout.count());
}

TEST_CASE("options that are not whole are refused") {
  auto bytes = hello_of({}).encode();
  bytes.push_back(std::byte{0});
  CHECK(engine::decode_hello(bytes).status().code() == Code::kProtocol);
  bytes.resize(43);
  const Status refused = engine::decode_hello(bytes).status();
  CHECK(refused.code() == Code::kProtocol);
  CHECK(refused.message().find("43 bytes") != std::string::npos);
}

TEST_CASE("a message about items is not taken for options") {
  CHECK_FALSE(engine::is_hello({}));
  CHECK_FALSE(engine::is_hello(reassign::encode(reassign::Message{})));
}

TEST_CASE("hosts differ if they divide the ranks differently") {
  const ExchangeHello all = hello_of({});
  CHECK(all.difference(hello_of({7, 7, 7, 7})).empty());
  CHECK(hello_of({3, 3, 1, 1}).difference(hello_of({0, 0, 5, 5})).empty());
  for (const auto& hosts :
       {std::vector<int32_t>{0, 0, 0, 1}, {0, 1, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 3}})
    CHECK(all.difference(hello_of(hosts)) == "hosts divides the ranks differently");
}

TEST_CASE("the first option that differs is named with both values") {
  const ExchangeHello own = hello_of({});
  CHECK(own.difference(hello_of({}, 2)) == "helpers is 4 and there 2");
  reassign::ReassignOptions options;
  options.behind = 0.5;
  CHECK(own.difference(hello_of({}, 4, options)) == "behind is 0.2 and there 0.5");
  options = {};
  options.answer_timeout = Duration(7);
  CHECK(own.difference(hello_of({}, 4, options)) ==
        "answer_timeout is 50000000 ns and there 7 ns");
  CHECK(own.difference(ExchangeHello::of({}, 5, 4, {})) ==
        "the number of ranks is 4 and there 5");
  options = {};
  options.absent_patience = 1;
  CHECK(own.difference(hello_of({}, 4, options)) ==
        "absent_patience is 0.25 and there 1");
}
