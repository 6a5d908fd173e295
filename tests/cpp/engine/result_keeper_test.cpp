// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/result_keeper.h"

#include "harness/catch.h"
#include "harness/ended_operation.h"
#include "harness/idle_host.h"

using namespace aikido;
using engine::ResultKeeper;

namespace {

struct Case {
  testing::IdleHost host{2};
  ResultKeeper keeper;

  Case() {
    // 100 bytes each, and failures between them.
    for (const uint64_t seq : {2, 3, 5})
      keeper.keep(std::make_shared<testing::EndedOperation>(&host, seq), 100);
    for (const uint64_t seq : {4, 6})
      keeper.note_failed(seq, Status(Code::kTimedOut, "late"));
  }
  std::vector<uint64_t> kept() const {
    std::vector<uint64_t> numbers;
    for (const auto& [seq, result] : keeper.results()) numbers.push_back(seq);
    return numbers;
  }
  std::vector<uint64_t> failed() const {
    std::vector<uint64_t> numbers;
    for (const auto& [seq, why] : keeper.failures()) numbers.push_back(seq.value);
    return numbers;
  }
};
using Numbers = std::vector<uint64_t>;

}  // namespace

TEST_CASE("results and failures are released once all members have acknowledged them") {
  // Acknowledged by the members and by returning ones, room in bytes; kept afterwards.
  struct Row {
    ResultKeeper::Acknowledged upto;
    uint64_t max_bytes;
    Numbers kept, failed;
    uint64_t forgotten;
  };
  const Row row = GENERATE(values<Row>({
      // Nobody has anything.
      {{1, 1}, 0, {2, 3, 5}, {4, 6}, 0},
      // Everybody has all up to the number.
      {{3, 3}, 0, {5}, {4, 6}, 0},
      {{4, 4}, 0, {5}, {6}, 0},
      {{9, 9}, 0, {}, {}, 0},
      // Returning members may need it, and there is room.
      {{9, 1}, 300, {2, 3, 5}, {4, 6}, 0},
      {{9, 2}, 300, {3, 5}, {4, 6}, 0},
      // There is room for one or two results.
      {{9, 1}, 200, {3, 5}, {4, 6}, 2},
      {{9, 1}, 199, {5}, {4, 6}, 3},
      // Results that a member of the view needs stay, and so does a later failure.
      {{2, 1}, 0, {3, 5}, {4, 6}, 2},
      // A failure below a forgotten result helps nobody.
      {{9, 1}, 0, {}, {6}, 5},
  }));
  Case c;
  c.keeper.release(row.upto, row.max_bytes);
  CHECK(c.kept() == row.kept);
  CHECK(c.failed() == row.failed);
  CHECK(c.keeper.forgotten() == row.forgotten);
  CHECK(c.keeper.bytes() == 100 * row.kept.size());
}

TEST_CASE("failures for excluded members are kept up to a number") {
  ResultKeeper keeper;
  for (uint64_t seq = 1; seq <= ResultKeeper::kMaxFailed + 2; ++seq)
    keeper.note_failed(seq, Status(Code::kTimedOut, "late"));
  keeper.release({10'000, 0}, 0);
  CHECK(keeper.failures().size() == ResultKeeper::kMaxFailed);
  CHECK(keeper.forgotten() == 2);
}

TEST_CASE("nothing is kept up to the number that counts as released") {
  Case c;
  CHECK(c.keeper.released_up_to(1) == 1);
  CHECK(c.keeper.released_up_to(9) == 1);
  c.keeper.release({3, 3}, 0);
  CHECK(c.keeper.released_up_to(9) == 3);  // 4 has failed
  c.keeper.release({9, 9}, 0);
  CHECK(c.keeper.released_up_to(9) == 9);
}

TEST_CASE("the bytes of results count once, and those behind a number are known") {
  Case c;
  CHECK(c.keeper.bytes() == 300);
  c.keeper.keep(c.keeper.results().at(2).operation, 100);
  CHECK(c.keeper.bytes() == 300);
  CHECK(c.keeper.bytes_after(2) == 200);
  CHECK(c.keeper.bytes_after(5) == 0);
}

TEST_CASE("an excluded member releases everything, and forgets nothing new") {
  Case c;
  c.keeper.release({2, 1}, 0);
  c.keeper.clear();
  CHECK(c.keeper.is_empty());
  CHECK(c.keeper.bytes() == 0);
  CHECK(c.keeper.forgotten() == 2);
}
