// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/schedule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/text.h"

namespace aikido::pipeline {
namespace {

constexpr std::array<std::string_view, 4> kPolicies = {"flush", "stash",
                                                       "vertical_sync", "2bw"};
constexpr size_t kWidth = 88;

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  for (size_t at = line.find_first_not_of(kSpace); at != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSpace, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kSpace, end);
  }
  return words;
}

std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text[0] == '-')
    return std::nullopt;
  return value;
}

// Reads line by line.
class Reader {
 public:
  Status read_line(std::string_view line) {
    const auto words = words_of(line);
    if (words.empty()) return Status::ok();
    if (line.front() == ' ' || line.front() == '\t') return go_on(words);
    is_in_rank_ = false;
    const auto head = words[0];
    if (head == "stage") return read_stage(words);
    if (head == "rank") return read_rank(words);
    if (head != "schedule" && head != "micro_batches" && head != "weights")
      return invalid(concat(quoted(head),
                            " begins no line; a line begins with schedule, "
                            "micro_batches, weights, stage, rank or a space"));
    if (words.size() != 2)
      return invalid(concat(
          quoted(head), " takes one word, and ",
          words.size() < 2 ? "there is none" : concat(quoted(words[2]), " is more")));
    return read_fact(head, words[1]);
  }

  Result<Schedule> finish() {
    if (schedule_.name.empty()) return invalid("there is no line schedule <name>");
    if (!has_batches_) return invalid("there is no line micro_batches <number>");
    if (!has_weights_) return invalid("there is no line weights <policy>");
    return std::move(schedule_);
  }

 private:
  Status read_fact(std::string_view head, std::string_view word) {
    const bool is_name = head == "schedule";
    const bool is_weights = head == "weights";
    if (is_name ? !schedule_.name.empty() : is_weights ? has_weights_ : has_batches_)
      return invalid(concat(quoted(head), " is there twice"));
    if (is_name) {
      schedule_.name = word;
    } else if (is_weights) {
      auto policy = weight_policy_named(word);
      if (!policy) return policy.status();
      schedule_.weights = *policy;
      has_weights_ = true;
    } else {
      const auto number = number_in(word);
      if (!number) return invalid(concat(quoted(word), " is no number"));
      schedule_.num_micro_batches = *number;
      has_batches_ = true;
    }
    return Status::ok();
  }

  Status read_stage(const std::vector<std::string_view>& words) {
    AIKIDO_TRY(check_label(words, schedule_.stages.size(), "<stage>: <rank> ..."));
    auto& replicas = schedule_.stages.emplace_back();
    for (size_t i = 2; i < words.size(); ++i) {
      const auto rank = number_in(words[i]);
      if (!rank) return invalid(concat(quoted(words[i]), " is no rank"));
      replicas.push_back(*rank);
    }
    return Status::ok();
  }

  Status read_rank(const std::vector<std::string_view>& words) {
    AIKIDO_TRY(check_label(words, schedule_.ranks.size(), "<rank>: <instruction> ..."));
    schedule_.ranks.emplace_back();
    is_in_rank_ = true;
    return read_instructions(words, 2);
  }

  // "0:" after the first word; the numbers ascend.
  static Status check_label(const std::vector<std::string_view>& words, size_t next,
                            std::string_view form) {
    const auto label = words.size() > 1 ? words[1] : std::string_view{};
    const auto number = label.ends_with(':')
                            ? number_in(label.substr(0, label.size() - 1))
                            : std::nullopt;
    if (!number)
      return invalid(concat(quoted(label), " after ", words[0], "; a line is ",
                            words[0], ' ', form));
    if (static_cast<size_t>(*number) != next)
      return invalid(concat(quoted(label), " after ", words[0], ", where ", next,
                            ": is the next"));
    return Status::ok();
  }

  Status go_on(const std::vector<std::string_view>& words) {
    if (is_in_rank_) return read_instructions(words, 0);
    return invalid(concat(quoted(words[0]),
                          " goes on with nothing; only the instructions of a rank may "
                          "go on in a line that begins with a space"));
  }

  Status read_instructions(const std::vector<std::string_view>& words, size_t from) {
    for (size_t i = from; i < words.size(); ++i) {
      const auto instruction = parse_instruction(words[i]);
      if (!instruction)
        return invalid(concat(quoted(words[i]),
                              " is no instruction; some are F0.3@1, B0.3@1, A0.3>1, "
                              "G0.3<1, reduce0@1, step0@1, push0@1, pop0@1"));
      schedule_.ranks.back().push_back(*instruction);
    }
    return Status::ok();
  }

  Schedule schedule_;
  bool has_batches_ = false, has_weights_ = false;
  bool is_in_rank_ = false;  // the last line was a line of a rank
};

}  // namespace

std::string_view name_of(WeightPolicy policy) {
  return kPolicies[static_cast<size_t>(policy)];
}

Result<WeightPolicy> weight_policy_named(std::string_view name) {
  for (size_t i = 0; i < kPolicies.size(); ++i)
    if (kPolicies[i] == name) return static_cast<WeightPolicy>(i);
  return invalid(concat(quoted(name),
                        " is no policy for weights; there are flush, stash, "
                        "vertical_sync and 2bw"));
}

std::string to_text(const Schedule& schedule) {
  std::string text =
      concat("schedule ", schedule.name, "\nmicro_batches ", schedule.num_micro_batches,
             "\nweights ", name_of(schedule.weights), '\n');
  for (size_t s = 0; s < schedule.stages.size(); ++s) {
    text += concat("stage ", s, ':');
    for (const int rank : schedule.stages[s]) text += concat(' ', rank);
    text += '\n';
  }
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    std::string line = concat("rank ", r, ':');
    for (const Instruction& instruction : schedule.ranks[r]) {
      const std::string word = to_text(instruction);
      if (line.size() + 1 + word.size() > kWidth) {
        text += line + '\n';
        line = "   ";
      }
      line += ' ' + word;
    }
    text += line + '\n';
  }
  return text;
}

Result<Schedule> parse_schedule(std::string_view text) {
  Reader reader;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    ++number;
    if (const auto status = reader.read_line(text.substr(at, end - at));
        status.has_failed())
      return status.with_context(concat("line ", number));
    at = end + 1;
  }
  return reader.finish();
}

std::string place_of(const Schedule& schedule, int rank, size_t index) {
  const auto& all = schedule.ranks[static_cast<size_t>(rank)];
  return concat("rank ", rank, ", instruction ", index, " (", to_text(all[index]), ')');
}

}  // namespace aikido::pipeline
