// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/order.h"

#include <algorithm>

#include "harness/catch.h"

namespace aikido::pipeline {
namespace {

// Text such as "F0 F1 B0" of stage 0; "F0.2" with stages.
std::string text_of(const Program& program, bool with_stages = false) {
  std::string text;
  for (const Instruction& it : program) {
    const std::string word = to_text(it);
    text += text.empty() ? "" : " ";
    text += word[0];
    text += with_stages ? word.substr(1, word.find('@') - 1)
                        : std::to_string(it.micro_batch);
  }
  return text;
}

TEST_CASE("all forwards come before all backwards in GPipe") {
  const auto programs = gpipe_order(stages_in_a_row({1, 2}), {{0}, {0, 1}}, 3);
  REQUIRE(programs.size() == 3);
  CHECK(text_of(programs[0], true) == "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2");
  CHECK(text_of(programs[1], true) == "F1.0 F1.2 B1.0 B1.2");
  CHECK(text_of(programs[2], true) == "F1.1 B1.1");
}

TEST_CASE("forwards and backwards take turns after the warm-up in 1F1B") {
  const auto programs =
      one_f_one_b_order(stages_in_a_row({1, 1, 1}), {{0}, {0}, {0}}, {2, 1, 0}, 4);
  CHECK(text_of(programs[0]) == "F0 F1 F2 B0 F3 B1 B2 B3");
  CHECK(text_of(programs[1]) == "F0 F1 B0 F2 B1 F3 B2 B3");
  CHECK(text_of(programs[2]) == "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST_CASE("micro-batches go to replicas in turns, there and back") {
  const auto stages = stages_in_a_row({3, 1});
  const auto programs = one_f_one_b_order(stages, even_turns(stages), {1, 0}, 7);
  CHECK(text_of(programs[0]) == "F0 F3 B0 F6 B3 B6");
  CHECK(text_of(programs[1]) == "F1 F4 B1 B4");
  CHECK(text_of(programs[2]) == "F2 F5 B2 B5");
  CHECK(text_of(programs[3]) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6");
}

TEST_CASE("with fewer micro-batches than stages the warm-up is all forwards") {
  const auto programs = one_f_one_b_order(stages_in_a_row({1, 1, 1, 1}),
                                          {{0}, {0}, {0}, {0}}, {3, 2, 1, 0}, 2);
  CHECK(text_of(programs[0]) == "F0 F1 B0 B1");
  CHECK(text_of(programs[3]) == "F0 B0 F1 B1");
}

TEST_CASE("a warm-up is the stages that follow, and more before uneven replicas") {
  CHECK(warmups_of({1, 1, 1, 1}) == std::vector<int>{3, 2, 1, 0});
  CHECK(warmups_of({4}) == std::vector<int>{0});
  CHECK(warmups_of({2, 2, 2}) == std::vector<int>{2, 1, 0});
  CHECK(warmups_of({3, 1}) == std::vector<int>{1, 0});
  CHECK(warmups_of({15, 1}) == std::vector<int>{1, 0});
  CHECK(warmups_of({1, 2, 1}) == std::vector<int>{4, 1, 0});
  CHECK(warmups_of({1, 1, 3, 1}) == std::vector<int>{7, 6, 1, 0});
  CHECK(warmups_of({3, 2, 1}) == std::vector<int>{2, 1, 0});
  CHECK(warmups_of({1, 2, 3}) == std::vector<int>{6, 2, 0});
}

TEST_CASE("several stages of a rank take portions of micro-batches in turns") {
  const auto programs = interleaved_order(2, 2, 4, false);
  CHECK(text_of(programs[0], true) ==
        "F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 "
        "B0.3");
  CHECK(text_of(programs[1], true) ==
        "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 "
        "B1.3");
}

TEST_CASE("weight gradients come as late as all ranks hold the same in zero bubble") {
  const auto programs = interleaved_order(3, 1, 4, true);
  CHECK(text_of(programs[0]) == "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  CHECK(text_of(programs[1]) == "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3");
  CHECK(text_of(programs[2]) == "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

TEST_CASE("every order does each micro-batch once") {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (int each = 1; each <= 3; ++each)
      for (int batches = 1; batches <= 3 * ranks; ++batches) {
        if (batches % std::max(1, batches / ranks) != 0) continue;
        for (const bool zero_bubble : {false, true})
          for (const Program& program :
               interleaved_order(ranks, each, batches, zero_bubble)) {
            auto sorted = program;
            const auto key = [](const Instruction& it) {
              return std::tuple(it.kind, it.stage, it.micro_batch);
            };
            std::sort(sorted.begin(), sorted.end(),
                      [&](auto& a, auto& b) { return key(a) < key(b); });
            REQUIRE(std::unique(sorted.begin(), sorted.end()) == sorted.end());
            REQUIRE(sorted.size() ==
                    static_cast<size_t>(each * batches * (zero_bubble ? 3 : 2)));
          }
      }
}

TEST_CASE("a forward is done again before its backward, but at once after itself") {
  const auto programs =
      one_f_one_b_order(stages_in_a_row({1, 1}), {{0}, {0}}, {1, 0}, 2);
  CHECK(text_of(with_recomputing(programs[0])) == "F0 F1 C0 B0 C1 B1");
  CHECK(text_of(with_recomputing(programs[1])) == "F0 B0 F1 B1");
  CHECK(text_of(with_recomputing(interleaved_order(3, 1, 2, true)[1])) ==
        "F0 F1 C0 I0 C1 I1 W0 W1");
}

}  // namespace
}  // namespace aikido::pipeline
