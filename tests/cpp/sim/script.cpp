// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/script.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>
#include <utility>

#include "membership/view_message.h"

namespace aikido::sim {

using collectives::Call;
using collectives::CallKind;
using transport::FrameKind;
using transport::Lane;

namespace {

using membership::ViewStep;

struct FrameName {
  std::string_view name;
  FrameKind kind;
  ViewStep step{};  // only for messages about the view
};
constexpr std::array kFrames = {
    FrameName{"CONTRIB", FrameKind::kContrib},
    FrameName{"RESULT", FrameKind::kResult},
    FrameName{"READY", FrameKind::kReady},
    FrameName{"DATA", FrameKind::kData},
    FrameName{"CALLED", FrameKind::kCalled},
    FrameName{"ABORT", FrameKind::kAbort},
    FrameName{"ABORT", FrameKind::kAbortFirst},
    FrameName{"GOODBYE", FrameKind::kGoodbye},
    FrameName{"HEARTBEAT", FrameKind::kHeartbeat},
    FrameName{"ASK_CALLED", FrameKind::kAskCalled},
    FrameName{"ACK", FrameKind::kAck},
    FrameName{"ASK_PRESENT", FrameKind::kAskPresent},
    FrameName{"PRESENT", FrameKind::kPresent},
    FrameName{"NEED", FrameKind::kNeed},
    FrameName{"ASK_ACKED", FrameKind::kAskAcked},
    FrameName{"PREPARE", FrameKind::kView, ViewStep::kPrepare},
    FrameName{"STATE", FrameKind::kView, ViewStep::kState},
    FrameName{"PROPOSE", FrameKind::kView, ViewStep::kPropose},
    FrameName{"ACCEPTED", FrameKind::kView, ViewStep::kAccepted},
    FrameName{"VIEW", FrameKind::kView, ViewStep::kView},
    FrameName{"VIEW", FrameKind::kViewFirst, ViewStep::kView},
    FrameName{"JOIN", FrameKind::kView, ViewStep::kJoin},
    FrameName{"REFUSE", FrameKind::kView, ViewStep::kRefuse},
};

// In the order of straggler::BackupMode.
constexpr std::array<std::string_view, 4> kModes = {"shadow", "substitute", "n_plus_b",
                                                    "replicate"};

constexpr std::array<std::pair<std::string_view, int64_t>, 4> kUnits = {
    {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}}};

// The words of a line. Throws Wrong with a sentence for a word that it does not
// understand. parse() makes a Status of this sentence.
class Line {
 public:
  struct Wrong {
    std::string why;
  };

  explicit Line(std::string_view text) {
    std::istringstream in{std::string(text.substr(0, text.find('#')))};
    for (std::string word; in >> word;) words_.push_back(word);
  }
  bool is_over() const { return at_ == words_.size(); }
  std::string word(std::string_view what) {
    if (is_over()) throw Wrong{concat("ends where ", what, " is expected")};
    return words_[at_++];
  }
  // Takes the next word if it equals `word`.
  bool take(std::string_view word) {
    if (is_over() || words_[at_] != word) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) throw Wrong{concat("'", word, "' is expected")};
  }
  // The value of the next word, if this word is NAME=value.
  std::optional<std::string> value_of(std::string_view name) {
    if (is_over()) return std::nullopt;
    const std::string& next = words_[at_];
    if (next.size() <= name.size() || next.compare(0, name.size(), name) != 0 ||
        next[name.size()] != '=')
      return std::nullopt;
    ++at_;
    return next.substr(name.size() + 1);
  }
  void end() const {
    if (!is_over()) throw Wrong{concat("'", words_[at_], "' is not expected here")};
  }

  static uint64_t number(std::string_view text) {
    uint64_t value = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    if (error != std::errc() || end != last || text.empty())
      throw Wrong{concat("'", text, "' is no number")};
    return value;
  }
  static Duration duration(std::string_view text) {
    const size_t digits = text.find_first_not_of("0123456789");
    for (const auto& [unit, ns] : kUnits) {
      if (digits != std::string_view::npos && text.substr(digits) == unit)
        return Duration(static_cast<int64_t>(number(text.substr(0, digits))) * ns);
    }
    throw Wrong{concat("'", text, "' is no time, as 12ms, 300us or 2s")};
  }
  static int32_t rank(std::string_view text, int32_t members) {
    if (text == "*") return kEvery;
    const uint64_t value = number(text);
    if (value >= static_cast<uint64_t>(members))
      throw Wrong{concat("rank ", value, " of ", members, " members")};
    return static_cast<int32_t>(value);
  }

 private:
  std::vector<std::string> words_;
  size_t at_ = 0;
};
using Wrong = Line::Wrong;

std::pair<int32_t, int32_t> two_ranks(const std::string& text, std::string_view between,
                                      int32_t members) {
  const size_t at = text.find(between);
  if (at == std::string::npos)
    throw Wrong{concat("'", text, "' is not two ranks with ", between, " between")};
  return {Line::rank(text.substr(0, at), members),
          Line::rank(text.substr(at + between.size()), members)};
}

straggler::PolicyOptions parse_policy(Line& line) {
  straggler::PolicyOptions policy;
  policy.kind = straggler::Kind::kSkip;
  while (!line.is_over()) {
    if (const auto min = line.value_of("min")) {
      policy.min_contributors = static_cast<int32_t>(Line::number(*min));
    } else if (const auto floor = line.value_of("floor")) {
      policy.floor = Line::duration(*floor);
    } else if (const auto ceiling = line.value_of("ceiling")) {
      policy.ceiling = Line::duration(*ceiling);
    } else if (const auto skips = line.value_of("skips")) {
      policy.max_consecutive_skips = static_cast<uint32_t>(Line::number(*skips));
    } else if (const auto warmup = line.value_of("warmup")) {
      policy.warmup_operations = static_cast<uint32_t>(Line::number(*warmup));
    } else if (const auto backups = line.value_of("backups")) {
      policy.backups = static_cast<int32_t>(Line::number(*backups));
    } else if (const auto mode = line.value_of("mode")) {
      const auto place = std::find(kModes.begin(), kModes.end(), *mode);
      if (place == kModes.end()) throw Wrong{concat("'", *mode, "' is no mode")};
      policy.backup_mode = static_cast<straggler::BackupMode>(place - kModes.begin());
    } else if (line.take("verify")) {
      policy.verify_shadows = true;
    } else if (line.take("world")) {
      policy.divisor = straggler::Divisor::kWorld;
    } else if (line.take("bucket")) {
      policy.masks = straggler::Masks::kBucket;
    } else if (line.take("leave")) {
      policy.log_full = straggler::LogFull::kLeave;
    } else {
      line.end();
    }
  }
  return policy;
}

Call parse_op(Line& line, int32_t members) {
  Call call;
  call.dtype = DType::kFloat32;
  const std::string kind =
      line.word("allreduce, reduce_scatter, broadcast, allgather or barrier");
  if (kind == "barrier") {
    call.kind = CallKind::kBarrier;
    call.dtype = DType::kUint8;
    line.end();
    return call;
  }
  call.count = Line::number(line.word("the number of elements"));
  if (kind == "reduce_scatter") {
    call.kind = CallKind::kReduceScatter;
    call.count *=
        static_cast<uint64_t>(members);  // one block of this size for each member
  }
  call.shape.num_dims = 1;
  call.shape.dims[0] = call.count;
  if (kind == "broadcast") {
    call.kind = CallKind::kBroadcast;
    call.root = Rank(Line::rank(line.word("the root"), members));
  } else if (kind == "allgather") {
    call.kind = CallKind::kAllgather;
  } else if (kind == "allreduce" || kind == "reduce_scatter") {
    const std::string op = line.word("sum or avg");
    if (op != "sum" && op != "avg") throw Wrong{concat("'", op, "' is not sum or avg")};
    call.op = op == "sum" ? ReduceOp::kSum : ReduceOp::kAvg;
    call.is_weighted = line.take("weighted");
    if (line.take("skip")) call.policy = parse_policy(line);
    if (line.take("rebalance")) call.policy.rebalance = true;
  } else {
    throw Wrong{concat("no operation is called '", kind, "'")};
  }
  line.end();
  const Status fits = collectives::validate(call, members);
  if (fits.has_failed()) throw Wrong{fits.message()};
  return call;
}

void parse_call(Line& line, const Script& script, Event& event) {
  event.a = Line::rank(line.word("a rank"), script.members);
  while (!line.is_over()) {
    if (const auto op = line.value_of("op")) {
      event.op = Line::number(*op);
    } else if (const auto priority = line.value_of("priority")) {
      event.priority = static_cast<Priority>(Line::number(*priority));
    } else if (const auto data = line.value_of("data")) {
      event.data_shard = static_cast<int32_t>(Line::number(*data));
    } else if (line.take("waits")) {
      event.waits = true;
    } else if (line.take("apart")) {
      event.in_place = false;
    } else {
      line.end();
    }
  }
  if (event.op < 1 || event.op > script.ops.size())
    throw Wrong{concat("operation ", event.op, " of ", script.ops.size())};
  if (!event.data_shard) return;
  const straggler::PolicyOptions& policy = script.ops[event.op - 1].policy;
  const auto fits = straggler::data_shard_of(policy, Rank(event.a), script.members,
                                             *event.data_shard);
  if (event.a == kEvery || fits.has_failed())
    throw Wrong{concat("data=", *event.data_shard)};
}

Event parse_event(Line& line, const Script& script) {
  Event event;
  event.at = Line::duration(line.word("a time"));
  const int32_t n = script.members;
  const std::string what = line.word("what happens");
  if (what == "call") {
    parse_call(line, script, event);
  } else if (what == "delay" || what == "rate" || what == "stall") {
    std::tie(event.a, event.b) = two_ranks(line.word("A->B"), "->", n);
    if (what == "delay") {
      event.kind = EventKind::kDelay;
      if (line.take("control")) event.lane = Lane::kControl;
      if (line.take("bulk")) event.lane = Lane::kBulk;
      event.duration = Line::duration(line.word("a time"));
    } else if (what == "rate") {
      event.kind = EventKind::kRate;
      event.rate = Line::number(line.word("bytes per second"));
    } else {
      event.kind = EventKind::kStall;
      line.expect("for");
      event.duration = Line::duration(line.word("a time"));
    }
  } else if (what == "stop") {
    event.kind = EventKind::kStop;
    event.a = Line::rank(line.word("a rank"), n);
    line.expect("for");
    event.duration = Line::duration(line.word("a time"));
  } else if (what == "kill") {
    event.kind = EventKind::kKill;
    event.a = Line::rank(line.word("a rank"), n);
  } else if (what == "agree") {
    event.kind = EventKind::kAgree;
    event.a = Line::rank(line.word("a rank"), n);
  } else if (what == "pass") {
    event.kind = EventKind::kPass;
    event.a = Line::rank(line.word("a rank"), n);
    line.expect("from");
    event.b = Line::rank(line.word("a rank"), n);
    if (event.a == kEvery || event.b == kEvery || event.a == event.b)
      throw Wrong{"two ranks are expected"};
  } else if (what == "cut") {
    event.kind = EventKind::kCut;
    std::tie(event.a, event.b) = two_ranks(line.word("A-B"), "-", n);
    if (line.take("heard")) event.duration = Line::duration(line.word("a time"));
  } else {
    throw Wrong{concat("nothing is called '", what, "'")};
  }
  line.end();
  return event;
}

Hold parse_hold(Line& line, int32_t members) {
  Hold hold;
  std::tie(hold.from, hold.to) = two_ranks(line.word("A->B"), "->", members);
  hold.kind = line.word("a kind of frame");
  if (hold.kind != "*" && !is_frame(hold.kind))
    throw Wrong{concat("no frame is called '", hold.kind, "'")};
  while (!line.is_over()) {
    if (const auto op = line.value_of("op")) {
      hold.op = Line::number(*op);
    } else if (const auto shard = line.value_of("shard")) {
      hold.shard = static_cast<uint16_t>(Line::number(*shard));
    } else if (line.take("until")) {
      hold.until = Line::duration(line.word("a time"));
    } else {
      line.end();
    }
  }
  return hold;
}

void parse_setting(Line& line, const std::string& name, Script& script) {
  const auto number = [&] { return Line::number(line.word("a number")); };
  const auto time = [&] { return Line::duration(line.word("a time")); };
  if (name == "members") {
    const uint64_t members = number();
    if (members < 1 || members > 1024) throw Wrong{"1 to 1024 members"};
    script.members = static_cast<int32_t>(members);
  } else if (name == "seed") {
    script.seed = number();
  } else if (name == "chunk") {
    script.chunk_bytes = number();
  } else if (name == "min-shard") {
    script.min_shard_bytes = number();
  } else if (name == "lead") {
    script.lead_bytes = number();
  } else if (name == "window") {
    script.window_bytes = number();
  } else if (name == "log") {
    script.log_bytes = number();
  } else if (name == "timeout") {
    script.timeout = time();
  } else if (name == "calm") {
    script.calm = time();
  } else if (name == "must-return" || name == "reliable") {
    const int32_t rank = Line::rank(line.word("a rank"), script.members);
    if (rank == kEvery) throw Wrong{"one rank is expected"};
    (name == "reliable" ? script.reliable : script.must_return).push_back(rank);
  } else if (name == "heartbeat") {
    script.beat_every = time();
    script.silent_after = time();
  } else {
    throw Wrong{concat("nothing is called '", name, "'")};
  }
  line.end();
}

// Checks that each member calls 1, 2, 3, ... in the order of its events.
void check_calls(const Script& script) {
  std::vector<uint64_t> last(static_cast<size_t>(script.members));
  for (const Event& event : script.events) {
    if (event.kind != EventKind::kCall) continue;
    for (size_t r = 0; r < last.size(); ++r) {
      if (event.a != kEvery && static_cast<size_t>(event.a) != r) continue;
      if (event.op != last[r] + 1)
        throw Wrong{
            concat("rank ", r, " calls operation ", event.op, " after ", last[r])};
      last[r] = event.op;
    }
  }
}

std::string rank_text(int32_t rank) {
  return rank == kEvery ? "*" : std::to_string(rank);
}

std::string op_text(const Call& call, int32_t members) {
  if (call.kind == CallKind::kBarrier) return "barrier";
  if (call.kind == CallKind::kBroadcast)
    return concat("broadcast ", call.count, " ", call.root.value);
  if (call.kind == CallKind::kAllgather) return concat("allgather ", call.count);
  const bool is_scattered = call.kind == CallKind::kReduceScatter;
  std::string text = is_scattered ? concat("reduce_scatter ",
                                           call.count / static_cast<uint64_t>(members))
                                  : concat("allreduce ", call.count);
  text += call.op == ReduceOp::kAvg ? " avg" : " sum";
  if (call.is_weighted) text += " weighted";
  if (!call.is_partial()) return text;
  const straggler::PolicyOptions& p = call.policy;
  if (p.rebalance) return text + " rebalance";
  text += concat(" skip min=", p.min_contributors, " floor=", to_text(p.floor),
                 " ceiling=", to_text(p.ceiling), " skips=", p.max_consecutive_skips,
                 " warmup=", p.warmup_operations);
  if (p.backups > 0)
    text += concat(" backups=", p.backups,
                   " mode=", kModes[static_cast<size_t>(p.backup_mode)],
                   p.verify_shadows ? " verify" : "");
  if (p.divisor == straggler::Divisor::kWorld) text += " world";
  if (p.masks == straggler::Masks::kBucket) text += " bucket";
  if (p.log_full == straggler::LogFull::kLeave) text += " leave";
  return text;
}

std::string event_text(const Event& e) {
  const std::string a = rank_text(e.a), b = rank_text(e.b);
  const auto begin = concat("at ", to_text(e.at), " ");
  switch (e.kind) {
    case EventKind::kCall:
      return concat(begin, "call ", a, " op=", e.op, e.waits ? " waits" : "",
                    e.in_place ? "" : " apart",
                    e.data_shard ? concat(" data=", *e.data_shard) : "",
                    e.priority > 0 ? concat(" priority=", e.priority) : "");
    case EventKind::kDelay: {
      const char* lane = !e.lane                     ? ""
                         : *e.lane == Lane::kControl ? "control "
                                                     : "bulk ";
      return concat(begin, "delay ", a, "->", b, " ", lane, to_text(e.duration));
    }
    case EventKind::kRate:
      return concat(begin, "rate ", a, "->", b, " ", e.rate);
    case EventKind::kStall:
      return concat(begin, "stall ", a, "->", b, " for ", to_text(e.duration));
    case EventKind::kStop:
      return concat(begin, "stop ", a, " for ", to_text(e.duration));
    case EventKind::kKill:
      return concat(begin, "kill ", a);
    case EventKind::kAgree:
      return concat(begin, "agree ", a);
    case EventKind::kPass:
      return concat(begin, "pass ", a, " from ", b);
    case EventKind::kCut:
      return concat(begin, "cut ", a, "-", b,
                    e.duration > Duration{} ? " heard " + to_text(e.duration) : "");
  }
  return {};
}

}  // namespace

int32_t data_shard_of(const Script& script, int32_t rank, const Event& call) {
  const straggler::PolicyOptions& policy = script.ops[call.op - 1].policy;
  int32_t said = call.data_shard.value_or(straggler::kAnyDataShard);
  const bool is_backup = straggler::is_backup(policy, Rank(rank), script.members);
  if (is_backup && policy.backup_mode == straggler::BackupMode::kShadow &&
      said == straggler::kAnyDataShard)
    said = (rank + static_cast<int32_t>(call.op)) %
           straggler::num_data_shards(policy, script.members);
  auto one = straggler::data_shard_of(policy, Rank(rank), script.members, said);
  AIKIDO_CHECK(one.is_ok(), one.status().message());
  return *one;
}

bool is_frame(std::string_view name) {
  return std::any_of(kFrames.begin(), kFrames.end(),
                     [&](const FrameName& frame) { return frame.name == name; });
}

std::string_view name_of(const transport::FrameHeader& header) {
  for (const FrameName& frame : kFrames) {
    if (frame.kind == header.kind &&
        (frame.step == ViewStep{} || static_cast<uint16_t>(frame.step) == header.shard))
      return frame.name;
  }
  return "P2P";
}

std::string to_text(Duration d) {
  for (const auto& [unit, ns] : kUnits)
    if (d.count() % ns == 0) return concat(d.count() / ns, unit);
  return {};
}

Result<Script> parse(std::string_view text) {
  Script script;
  std::istringstream in{std::string(text)};
  int number = 0;
  try {
    for (std::string raw; std::getline(in, raw);) {
      ++number;
      Line line(raw);
      if (line.is_over()) continue;
      const std::string first = line.word("a line");
      if (first == "op") {
        script.ops.push_back(parse_op(line, script.members));
      } else if (first == "at") {
        script.events.push_back(parse_event(line, script));
      } else if (first == "hold") {
        script.holds.push_back(parse_hold(line, script.members));
      } else {
        parse_setting(line, first, script);
      }
    }
    std::stable_sort(script.events.begin(), script.events.end(),
                     [](const Event& x, const Event& y) { return x.at < y.at; });
    check_calls(script);
  } catch (const Wrong& wrong) {
    return Status(Code::kInvalidArgument, concat("line ", number, ": ", wrong.why));
  }
  return script;
}

std::string to_text(const Script& s) {
  const Script standard;
  std::ostringstream out;
  out << "members " << s.members << "\nseed " << s.seed << "\nchunk " << s.chunk_bytes
      << "\nmin-shard " << s.min_shard_bytes << "\n";
  if (s.lead_bytes != standard.lead_bytes) out << "lead " << s.lead_bytes << "\n";
  if (s.window_bytes != standard.window_bytes)
    out << "window " << s.window_bytes << "\n";
  if (s.log_bytes != standard.log_bytes) out << "log " << s.log_bytes << "\n";
  if (s.timeout != standard.timeout) out << "timeout " << to_text(s.timeout) << "\n";
  if (s.beat_every > Duration{})
    out << "heartbeat " << to_text(s.beat_every) << " " << to_text(s.silent_after)
        << "\n";
  if (s.calm) out << "calm " << to_text(*s.calm) << "\n";
  for (const int32_t rank : s.reliable) out << "reliable " << rank << "\n";
  for (const int32_t rank : s.must_return) out << "must-return " << rank << "\n";
  for (const Call& call : s.ops) out << "op " << op_text(call, s.members) << "\n";
  for (const Hold& h : s.holds) {
    out << "hold " << rank_text(h.from) << "->" << rank_text(h.to) << " " << h.kind;
    if (h.op) out << " op=" << *h.op;
    if (h.shard) out << " shard=" << *h.shard;
    if (h.until != kForEver) out << " until " << to_text(h.until);
    out << "\n";
  }
  for (const Event& e : s.events) out << event_text(e) << "\n";
  return out.str();
}

}  // namespace aikido::sim
