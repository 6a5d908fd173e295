// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/mutation.h"

#include <set>

#include "harness/catch.h"

using namespace aikido;

TEST_CASE("a mutation is found by its name, and no two mutations share a name") {
  std::set<std::string_view> names;
  for (const auto name : kMutationNames) {
    CHECK(names.insert(name).second);
    const auto found = mutation_named(name);
    REQUIRE(found);
    CHECK(name_of(*found) == name);
  }
  CHECK(mutation_named("minority-view") == Mutation::kMinorityView);
  CHECK_FALSE(mutation_named("minority_view"));
}

TEST_CASE(
    "outside of the simulator no rule is switched off, and the query costs nothing") {
  static_assert(!mutated(Mutation::kAcceptAfterPromise));
  static_assert(!mutated(Mutation::kMaskFromReceiver));
  SUCCEED();
}
