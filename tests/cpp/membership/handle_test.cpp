// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/handle.h"

#include "harness/catch.h"

using aikido::Code;
using aikido::membership::MemberHandle;

namespace {

const std::string kText =
    "aikido1/127.0.0.1/4711/00000000000000ff/000102030405060708090a0b0c0d0e0f";

MemberHandle handle() {
  MemberHandle h;
  h.address = {"127.0.0.1", 4711};
  h.id = 255;
  for (size_t i = 0; i < h.secret.size(); ++i) h.secret[i] = static_cast<std::byte>(i);
  return h;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a handle has one text, and the text one handle") {
  CHECK(handle().to_string() == kText);
  auto parsed = MemberHandle::parse(kText);
  REQUIRE(parsed.is_ok());
  CHECK(*parsed == handle());
}

TEST_CASE("the handle of a reliable member says so") {
  MemberHandle h = handle();
  h.is_reliable = true;
  CHECK(h.to_string() == kText + "/reliable");
  auto parsed = MemberHandle::parse(h.to_string());
  REQUIRE(parsed.is_ok());
  CHECK(*parsed == h);
}

TEST_CASE("a handle of an IPv6 address travels as well") {
  MemberHandle h = handle();
  h.address = {"fe80::1", 65535};
  auto parsed = MemberHandle::parse(h.to_string());
  REQUIRE(parsed.is_ok());
  CHECK(*parsed == h);
}

TEST_CASE("two members at one address are different members") {
  const MemberHandle a = MemberHandle::random({"127.0.0.1", 1}, false),
                     b = MemberHandle::random({"127.0.0.1", 1}, false);
  CHECK(a.id != b.id);
  CHECK(a.secret != b.secret);
  auto parsed = MemberHandle::parse(a.to_string());
  REQUIRE(parsed.is_ok());
  CHECK(*parsed == a);
}

TEST_CASE("text that is no handle is refused with the reason") {
  const auto reason = [](const std::string& text) {
    const auto parsed = MemberHandle::parse(text);
    REQUIRE(!parsed.is_ok());
    CHECK(parsed.status().code() == Code::kInvalidArgument);
    return parsed.status().message();
  };
  CHECK(says(reason(""), "\"\" is no handle: it does not begin with aikido1"));
  CHECK(says(reason("gloo:0:-1:0:x"), "does not begin"));
  CHECK(says(reason("aikido2" + kText.substr(7)), "does not begin"));
  CHECK(says(reason(kText.substr(0, kText.rfind('/'))), "it has 4 parts, not 5 or 6"));
  CHECK(says(reason(kText + "/reliable/"), "it has 7 parts"));
  CHECK(says(reason(kText + "/"), "its last part is not \"reliable\""));
  CHECK(says(reason(kText + "/transient"), "its last part is not \"reliable\""));
  CHECK(says(reason(kText + "0"), "its secret is none"));
  CHECK(says(reason(kText.substr(0, kText.size() - 1) + "g"), "its secret"));
  CHECK(says(reason(kText.substr(0, kText.size() - 1) + "F"), "its secret"));
  CHECK(says(reason("aikido1/localhost/4711/00000000000000ff/" + std::string(32, '0')),
             "its address is none"));
  CHECK(says(reason("aikido1/127.0.0.1/04711/00000000000000ff/" + std::string(32, '0')),
             "its address is none"));
  CHECK(says(reason("aikido1/127.0.0.1/0/00000000000000ff/" + std::string(32, '0')),
             "its address is none"));
  CHECK(says(reason("aikido1/127.0.0.1/4711/ff/" + std::string(32, '0')),
             "its id is none"));
  CHECK(says(reason(std::string(100'000, 'x')), "it has 100000 bytes"));
}

TEST_CASE("the sentence about a broken handle keeps its secret") {
  const auto parsed = MemberHandle::parse(kText + "/");
  CHECK(parsed.status().message().find("0c0d0e0f") == std::string::npos);
  CHECK(parsed.status().message().find("\"aikido1/127.0.0.1/") == 0);
}

TEST_CASE("a refusal can be printed, wherever the text is cut") {
  // The 24th byte is the first half of a character.
  const std::string text = "aikido1/" + std::string(15, 'x') + "\xc3\xa9";
  CHECK(says(MemberHandle::parse(text).status().message(), "xxx?...\" is no handle"));
}
