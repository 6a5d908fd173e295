// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/grant_size.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace aikido::reassign {
namespace {

// An end that is later by this share of the moved work is the same end.
constexpr double kSameEnd = 0.1;

Status check_share(const char* name, double value, double least) {
  if (value >= least && value <= 1) return Status::ok();
  return invalid(std::string(name) + " is " + std::to_string(value) +
                 "; it must be between " + std::to_string(least) + " and 1");
}

// Times of a question, in nanoseconds.
struct Outlook {
  double total_cost = 0;
  double end = 0;            // of the owner, if nothing moves
  double common_finish = 0;  // of the owner and all helpers
};

Outlook outlook_of(const GrantQuestion& question) {
  std::vector<Load> ranks(question.others.begin(), question.others.end());
  ranks.push_back(question.owner);
  ranks.push_back(question.helper);
  Outlook outlook;
  outlook.total_cost =
      std::accumulate(question.costs.begin(), question.costs.end(), 0.0);
  outlook.end =
      question.owner.ready_ns + outlook.total_cost * question.owner.ns_per_cost;
  outlook.common_finish = common_finish_ns(ranks, outlook.total_cost);
  return outlook;
}

double noise_ns(const GrantQuestion& question, std::span<const double> costs,
                const GrantOptions& options) {
  const double squares =
      std::inner_product(costs.begin(), costs.end(), costs.begin(), 0.0);
  return options.noise * question.deviation * question.owner.ns_per_cost *
         std::sqrt(squares);
}

// True if a move of the last `count` items brings the end forward.
bool is_gain(const GrantQuestion& question, uint32_t count, const Outlook& outlook,
             const GrantOptions& options) {
  const auto tail = question.costs.last(count);
  const double moved = std::accumulate(tail.begin(), tail.end(), 0.0);
  const double least = static_cast<double>(options.move_cost.count()) +
                       noise_ns(question, tail, options);
  return is_gain({outlook.end, question.owner.ns_per_cost}, question.helper, moved,
                 least);
}

uint32_t equal_share(const GrantQuestion& question, const Outlook& outlook) {
  double share =
      (outlook.common_finish - question.helper.ready_ns) / question.helper.ns_per_cost;
  uint32_t count = 0;
  // A small tolerance for sums of costs that are equal but for rounding.
  for (auto cost = question.costs.rbegin(); cost != question.costs.rend(); ++cost) {
    share -= *cost;
    if (share < -1e-6 * outlook.total_cost) break;
    ++count;
  }
  return std::max<uint32_t>(count, 1);
}

uint32_t block(const GrantQuestion& question, const GrantOptions& options) {
  const double share = question.is_first ? options.first_block : options.next_block;
  const auto count =
      static_cast<uint32_t>(std::lround(share * question.num_begun_with));
  return std::clamp<uint32_t>(count, 1, static_cast<uint32_t>(question.costs.size()));
}

}  // namespace

Status check(const GrantOptions& options) {
  AIKIDO_TRY(check_share("first_block", options.first_block, 0));
  AIKIDO_TRY(check_share("next_block", options.next_block, 0));
  AIKIDO_TRY(check_share("least_gain", options.least_gain, 0));
  if (options.move_cost.count() < 0)
    return invalid("move_cost is " + std::to_string(to_ms(options.move_cost)) +
                   " ms; it must be 0 or more");
  if (!(options.noise >= 0 && options.noise <= 100))
    return invalid("noise is " + std::to_string(options.noise) +
                   " deviations; it must be between 0 and 100");
  if (options.most_items == 0 || options.most_items > 0xffff)
    return invalid("most_items is " + std::to_string(options.most_items) +
                   "; it must be between 1 and 65535");
  return Status::ok();
}

double common_finish_ns(std::span<const Load> ranks, double cost) {
  std::vector<Load> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Load& a, const Load& b) { return a.ready_ns < b.ready_ns; });
  // With the first k ranks: sum (T - ready) / ns = cost.
  double speed = 0, offset = 0, finish = 0;
  for (size_t k = 0; k < sorted.size(); ++k) {
    if (k > 0 && finish <= sorted[k].ready_ns) break;
    speed += 1 / sorted[k].ns_per_cost;
    offset += sorted[k].ready_ns / sorted[k].ns_per_cost;
    finish = (cost + offset) / speed;
  }
  return finish;
}

bool is_gain(const Load& owner, const Load& helper, double cost, double least_ns) {
  const double at_owner = cost * owner.ns_per_cost;
  const double at_helper = cost * helper.ns_per_cost;
  const double end = std::max(owner.ready_ns - at_owner, helper.ready_ns + at_helper);
  if (owner.ready_ns - end > least_ns) return true;
  return end <= owner.ready_ns + kSameEnd * at_helper &&
         at_owner - 2 * at_helper > least_ns;
}

uint32_t grant_size(const GrantQuestion& question, const GrantOptions& options) {
  if (question.costs.empty()) return 0;
  const Outlook outlook = outlook_of(question);
  const double least = static_cast<double>(options.move_cost.count()) +
                       options.least_gain * outlook.end +
                       noise_ns(question, question.costs, options);
  if (outlook.end - outlook.common_finish <= least) return 0;
  uint32_t count = options.rule == GrantRule::kBlocks ? block(question, options)
                                                      : equal_share(question, outlook);
  count = std::min(count, options.most_items);
  while (count > 0 && !is_gain(question, count, outlook, options)) --count;
  return count;
}

}  // namespace aikido::reassign
