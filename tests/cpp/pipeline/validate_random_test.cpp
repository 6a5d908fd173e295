// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The validity check, compared with execution of valid and mutated schedules.
#include <map>

#include "harness/catch.h"
#include "pipeline/executor.h"
#include "pipeline/random_schedule.h"
#include "pipeline/validate.h"

namespace aikido::pipeline {
namespace {

using testing::Executor;

// Assertions are slow, so cheap comparisons come before them.
void require_runs(const Schedule& schedule, const Validation& validation,
                  std::mt19937& dice) {
  Executor executor(schedule);
  const std::string trouble = executor.run(dice);
  bool is_memory_right = true;
  for (size_t r = 0; r < schedule.ranks.size(); ++r)
    is_memory_right = is_memory_right &&
                      executor.most_activations(r) == validation.ranks[r].activations;
  if (trouble.empty() && is_memory_right) return;
  INFO(to_text(schedule));
  CHECK(trouble == "");
  FAIL("activations are not as many as were held");
}

// True if the error begins with "rank 1, instruction 3 (F1.0@0): ", for an instruction
// that exists.
bool names_its_place(const Schedule& schedule, const Status& status) {
  const int rank = status.culprit().value;
  if (rank < 0) return false;
  for (size_t i = 0; i < schedule.ranks[static_cast<size_t>(rank)].size(); ++i)
    if (status.message().find(place_of(schedule, rank, i) + ": ") == 0) return true;
  return false;
}

// Text of the error without its numbers.
std::string reason_of(const Status& status) {
  std::string reason = status.message().substr(status.message().find("): ") + 3);
  std::string kept;
  for (const char c : reason)
    if (c < '0' || c > '9') kept += c;
  return kept.substr(0, 40);
}

TEST_CASE(
    "accepted schedules run to the end, and schedules that do not run are refused") {
  std::mt19937 dice(7);
  size_t num_refused = 0, num_valid = 0, num_instructions = 0;
  std::map<std::string, int> reasons;
  for (int i = 0; i < 10'000; ++i) {
    const Schedule schedule = testing::RandomSchedule(dice).make();
    for (const auto& program : schedule.ranks) num_instructions += program.size();
    auto validation = validate(schedule, {});
    if (!validation) FAIL(validation.status().message() << "\n" << to_text(schedule));
    require_runs(schedule, *validation, dice);
    for (int k = 0; k < 4; ++k) {
      const Schedule changed = testing::mutated(schedule, dice);
      if (changed == schedule) continue;
      auto verdict = validate(changed, {});
      if (verdict) {
        ++num_valid;
        require_runs(changed, *verdict, dice);
        continue;
      }
      ++num_refused;
      ++reasons[reason_of(verdict.status())];
      const std::string trouble = Executor(changed).run(dice);
      if (!trouble.empty() && names_its_place(changed, verdict.status())) continue;
      FAIL(verdict.status().message() << "\nbut " << trouble << "\n"
                                      << to_text(changed));
    }
  }
  INFO(num_refused << " refused, " << num_valid << " valid");
  for (const auto& [reason, count] : reasons) UNSCOPED_INFO(count << ' ' << reason);
  CHECK(num_instructions > 300'000);
  CHECK(num_refused > 10'000);
  CHECK(num_valid > 2'000);
  CHECK(reasons.size() >= 30);
}

TEST_CASE("broken text is refused, or read and checked") {
  std::mt19937 dice(3);
  const std::string letters = "0123456789 .@<>:#FCBIWAGreducstpho_m\n";
  size_t num_read = 0, num_valid = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string text = to_text(testing::RandomSchedule(dice).make());
    for (size_t k = 1 + dice() % 3; k > 0; --k) {
      const size_t at = dice() % text.size();
      const char letter = letters[dice() % letters.size()];
      if (dice() % 2 == 0) {
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text[digit] = letters[dice() % 10];
      } else if (dice() % 3 == 0) {
        text.erase(at, 1);
      } else if (dice() % 2 == 0) {
        text.insert(at, 1, letter);
      } else {
        text[at] = letter;
      }
    }
    auto schedule = parse_schedule(text);
    if (!schedule) continue;
    ++num_read;
    auto verdict = validate(*schedule, {});
    if (!verdict) continue;
    ++num_valid;
    require_runs(*schedule, *verdict, dice);
  }
  CHECK(num_read > 2'000);
  CHECK(num_valid > 200);
}

}  // namespace
}  // namespace aikido::pipeline
