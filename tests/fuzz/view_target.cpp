// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Target for view changes: the reaction of a correct member to any view messages of the
// other members.
#include <cstring>

#include "base/wire.h"
#include "input.h"
#include "membership/view_change.h"
#include "target.h"

namespace aikido::fuzz {
namespace {

using namespace membership;
using std::chrono::milliseconds;

constexpr int kMaxEvents = 64;
// Far more than correct members send.
constexpr size_t kMaxSent = size_t{8} << 20;

// Its messages must decode, and their size must have a limit.
class Host final : public ViewChangeHost, public MemberReports {
 public:
  Host(Input* choices, int32_t size) : choices_(choices), size_(size) {}

  const MemberReports& reports() const override { return *this; }
  void send_view(Rank to, const ViewMessage& message) override {
    require(to != Rank(0) && to.value > 0 && to.value < size_, "it writes to others");
    const auto bytes = encode(message);
    require(bytes.size() <= kMaxSent, "what a member says has a bound");
    // All members get the same message, so one check is enough.
    if (bytes.size() > 4096 && bytes.size() == last_) return;
    last_ = bytes.size();
    require(decode_view_message(bytes, size_).is_ok(), "what it says is understood");
  }
  Report report() const override {
    Report report;
    report.known = Seq(1000);
    report.acked = Seq(990);
    report.kept = Seq(900);
    report.lost = RankSet(size_);
    for (uint64_t seq = 991; seq < 996; ++seq)
      report.received.push_back({Seq(seq), 0, seq});
    return report;
  }
  void on_promise() override {}
  void on_install(const View& view) override {
    std::vector<std::byte> bytes;
    append(bytes, view);
    std::span<const std::byte> rest(bytes);
    require(read_view(rest, size_).is_ok(), "a view that is taken makes sense");
    // Reads the view as operations do.
    for (const uint64_t seq : {uint64_t{1}, uint64_t{995}, uint64_t{1001}, kMaxSeq}) {
      const Cut& cut = view.cut_of(Seq(seq));
      require(!cut.owners.empty(), "a shard has an owner");
      require(view.members.covers(view.participants(Seq(seq))), "members take part");
    }
  }
  std::optional<Status> compare(Rank rank, const Report&) const override {
    const size_t how = choices_->below(4);
    if (how == 0) return std::nullopt;
    if (how == 1) return Status::ok();
    if (how == 2) return Status(Code::kRetryLater, "");
    return Status(Code::kPeerLost, "it cannot return", rank);
  }
  void on_refused(const Status& why) override {
    require(!why.is_ok(), "a refusal has a reason");
  }

 private:
  Input* choices_;
  int32_t size_;
  size_t last_ = 0;
};

RankSet take_members(Input& input, int32_t size) {
  const uint8_t bits = input.byte();
  RankSet set(size);
  for (int32_t r = 0; r < size; ++r)
    if ((bits >> r & 1) != 0) set.insert(Rank(r));
  return set;
}

// A number near the numbers of the host, or any number.
Seq take_seq(Input& input) {
  return Seq(input.flip() ? 980 + input.byte() : input.number());
}

Rank take_rank(Input& input, int32_t size) {
  return Rank(static_cast<int32_t>(input.below(static_cast<size_t>(size) + 1)));
}

Report take_report(Input& input, int32_t size) {
  Report report;
  report.known = take_seq(input);
  report.acked = take_seq(input);
  report.kept = take_seq(input);
  report.open = take_seq(input);
  report.needed = static_cast<int32_t>(input.byte());
  for (size_t n = input.below(8); n-- > 0;) report.failed.push_back(take_seq(input));
  report.lost = take_members(input, size);
  for (size_t n = input.below(8); n-- > 0;)
    report.received.push_back({take_seq(input), input.byte() % size, input.byte()});
  return report;
}

View take_view(Input& input, int32_t size) {
  View view;
  view.number = input.flip() ? input.byte() : static_cast<uint32_t>(input.number());
  view.members = take_members(input, size);
  // Other roles than those of the group are refused at once.
  view.reliable = input.byte() % 8 == 0 ? take_members(input, size) : RankSet(size);
  view.agreed = {static_cast<uint32_t>(input.below(4)), take_members(input, size)};
  view.seats.resize(static_cast<size_t>(size));
  view.members.for_each([&](Rank r) {
    view.seats[static_cast<size_t>(r.value)] = {input.byte(), take_seq(input)};
  });
  for (size_t n = input.below(4); n-- > 0;) {
    Cut& cut = view.cuts.emplace_back();
    cut.first = take_seq(input);
    cut.out = take_members(input, size);
    for (size_t owners = input.below(6); owners-- > 0;)
      cut.owners.push_back(take_rank(input, size));
  }
  for (size_t n = input.below(4); n-- > 0;)
    view.held.push_back({take_seq(input), input.byte() % 5, take_rank(input, size),
                         take_members(input, size)});
  return view;
}

std::vector<std::byte> take_message(Input& input, int32_t size, const View& now) {
  if (input.byte() % 8 == 0) return input.take(input.below(512));
  ViewMessage message;
  message.step = static_cast<ViewStep>(1 + input.below(7));
  message.view = input.flip() ? now.number : input.byte();
  message.ballot.counter =
      input.flip() ? input.byte() : static_cast<uint32_t>(input.number());
  message.ballot.rank = take_rank(input, size);
  message.report = take_report(input, size);
  if (message.step == ViewStep::kState && input.flip())
    message.accepted = AcceptedView{message.ballot, take_view(input, size)};
  if (message.step == ViewStep::kPropose || message.step == ViewStep::kView) {
    message.proposed = input.flip() ? now : take_view(input, size);
    if (input.flip()) message.proposed->number = message.view + input.byte() % 2;
  }
  if (message.step == ViewStep::kRefuse && input.flip()) message.text = "no\x01";
  return encode(message);
}

void run_view(std::span<const uint8_t> bytes) {
  Input input(bytes);
  const auto size = static_cast<int32_t>(2 + input.below(4));
  Host host(&input, size);
  ViewChange change(Rank(0), size, &host);
  TimePoint now{milliseconds(1)};
  for (int i = 0; i < kMaxEvents && !input.is_empty(); ++i) {
    const Rank from(
        static_cast<int32_t>(1 + input.below(static_cast<size_t>(size) - 1)));
    switch (input.below(8)) {
      case 0:
        change.suspect(from, now);
        break;
      case 1:
        change.on_silent(from, now);
        break;
      case 2:
        change.restore(from, now);
        break;
      case 3:
        now += milliseconds(input.byte() * 10);
        change.on_time(now);
        break;
      default: {
        const auto raw = take_message(input, size, change.view());
        auto message = decode_view_message(raw, size);
        if (!message) {
          require(!message.status().message().empty(), "a refusal has a sentence");
          break;
        }
        require(encode(*message) == raw, "a message has one encoding");
        const Status taken = change.on_message(from, *message, now);
        require(taken.is_ok() || taken.code() == Code::kProtocol,
                "nonsense is nonsense");
      }
    }
    if (change.is_promised())
      require(change.next_look().has_value(), "a promise has an end");
  }
}

std::vector<Bytes> view_seeds() {
  // A seed: one suspicion, then answers of all members to the first attempt, with
  // reports near the host's report. Then time passes, and a few views follow. The
  // fuzzer adds the rest.
  std::vector<Bytes> seeds;
  for (uint8_t members = 0; members < 4; ++members) {
    Bytes seed = {members, 0, 0};  // suspect rank 1
    for (uint8_t from = 0; from <= members; ++from) {
      const Bytes state = {from, 7, 1, 1, 1, 1, 1, 0, 1, 20, 1, 9, 0, 0, 0};
      seed.insert(seed.end(), state.begin(), state.end());
    }
    const Bytes later = {0, 3, 20, 0, 3, 200};
    seed.insert(seed.end(), later.begin(), later.end());
    const Bytes join = {0, 6, 1, 5, 1, 1, 0, 1, 1, 18, 1, 9, 0, 0, 1, 2};
    seed.insert(seed.end(), join.begin(), join.end());
    const Bytes view = {0, 5, 1, 4, 0, 3, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 1, 3};
    seed.insert(seed.end(), view.begin(), view.end());
    seeds.push_back(seed);
  }
  return seeds;
}

}  // namespace

const Target kView{"view", run_view, view_seeds};

}  // namespace aikido::fuzz
