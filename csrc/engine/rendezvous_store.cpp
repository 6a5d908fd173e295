// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Rendezvous through a store.
//
// Note [one store, many groups]
// The same keys serve all groups that are made over a store, one after another. The
// entries of a former group are still there, whether it crashed or was closed. Rule:
// rank 0 makes a new token for each group and writes it under `token`, the only key
// that is written twice. Addresses have the token in their key, so they never belong to
// a former group.
//   A member that comes before rank 0 reads the token of the former group. It notices
// this at rank 0, which every member dials first: rank 0 admits only the token of the
// group that it is making now. So the member reads the token and dials again until it
// is admitted. Only then it dials the others, for which that token is right. A member
// that fails writes its reason under `given_up/<token>`, for members that find nobody
// at its address.
//
// Note [one set of roles]
// All members must have the same voters. Each HELLO names the role of its sender, and
// rank 0 gets one from each other member. So rank 0 writes the reliable ranks beside
// the placement. A member that has not read them yet starts no view change.
//
// Note [one placement]
// All members must agree whether all of them share memory and cores, regardless of
// single pairs. Rank 0 has links with all members, so it decides and writes the answer
// under `place/<token>`. Its process is often the store too, and may end at once. So
// rank 0 waits until all members have read the answer and written
// `met/<token>/<rank>`. It does not wait for long, because a member may be unable to
// write, or another thread may be using its store. Both are no reason to fail.

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "engine/communicator.h"

namespace aikido::engine {
namespace {

// Time that a failing member allows for its reason to reach the others.
constexpr Duration kGoodbye = std::chrono::seconds(1);
// A member that is missing, or does not know the token, is dialled again after this
// pause, which doubles up to the longest.
constexpr Duration kShortestPause = std::chrono::milliseconds(1);
constexpr Duration kLongestPause = std::chrono::milliseconds(100);
// An address of a former group may never answer, so the token is read again after this.
constexpr Duration kLongestTry = std::chrono::seconds(10);
// Longest time that rank 0 waits for members that have not read the placement.
constexpr Duration kLongestCourtesy = std::chrono::seconds(2);
// Time to check if a key exists.
constexpr Duration kLook = std::chrono::milliseconds(1);
// A refusal counts only if the token is still the same after this. A former group that
// is ending, or has failed, refuses too.
constexpr Duration kSecondThoughts = std::chrono::milliseconds(500);

transport::Token random_token() {
  std::random_device source;
  transport::Token token;
  for (size_t at = 0; at < token.size(); at += sizeof(unsigned)) {
    const unsigned bits = source();
    std::memcpy(token.data() + at, &bits, sizeof bits);
  }
  return token;
}

std::string hex_of(const transport::Token& token) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (const std::byte b : token) {
    hex += kDigits[std::to_integer<size_t>(b >> 4)];
    hex += kDigits[std::to_integer<size_t>(b & std::byte{15})];
  }
  return hex;
}

std::string address_key(const transport::Token& token, Rank rank) {
  return concat("address/", hex_of(token), "/", rank.value);
}

std::string place_key(const transport::Token& token) {
  return "place/" + hex_of(token);
}
constexpr const char* kCrowded = "crowded";
constexpr const char* kLinks = "links";

// "crowded 0 3": the placement, then the reliable ranks.
std::string place_text(bool is_crowded, const RankSet& reliable) {
  std::string text = is_crowded ? kCrowded : kLinks;
  reliable.for_each([&](Rank r) { text += concat(" ", r.value); });
  return text;
}

// The reliable ranks in such a text; nullopt if the text is malformed.
std::optional<RankSet> reliable_in(const std::string& text, int32_t size) {
  std::istringstream words(text);
  std::string place;
  words >> place;
  RankSet ranks(size);
  for (int32_t rank = 0; words >> rank;) {
    if (rank < 0 || rank >= size) return std::nullopt;
    ranks.insert(Rank(rank));
  }
  const bool is_whole = words.eof() && (place == kCrowded || place == kLinks);
  return is_whole ? std::optional(ranks) : std::nullopt;
}

std::string met_key(const transport::Token& token, Rank rank) {
  return concat("met/", hex_of(token), "/", rank.value);
}

// Key of the reason why the group of this token has failed.
std::string end_key(const transport::Token& token) {
  return "given_up/" + hex_of(token);
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::connect(
    std::shared_ptr<Engine> engine, membership::Store& store, GroupOptions options,
    const std::string& agreed, Duration timeout) {
  options.awaits_roles = options.size > 1;
  if (options.size == 1 && options.is_reliable) options.reliable = RankSet::full(1);
  std::shared_ptr<Communicator> made(
      new Communicator(std::move(engine), std::move(options), agreed));
  const TimePoint deadline = made->clock_.now() + timeout;
  Status met = made->rendezvous(store, deadline);
  if (met.is_ok()) return made;
  if (made->token_ == transport::Token{}) {
    made->abort(met);
    made->shutdown(kGoodbye);
    return met;
  }
  std::string why = concat("rank ", made->options_.self.value, " has given group \"",
                           made->options_.name, "\" up: ", met.message());
  // A member that was connecting while another member failed may only see a closed
  // connection, so it looks for the reason in the store.
  bool is_told = false;
  const bool is_loss = met.code() == Code::kPeerLost;
  if (is_loss) {
    if (auto told = store.get(end_key(made->token_), kSecondThoughts)) {
      why = *told;
      met = {Code::kInvalidArgument, printable(why), met.culprit()};
      is_told = true;
    }
  }
  // Connected members need not wait for the deadline, and learn the reason. A loss is
  // not published, because each member sees it itself. An error of the store is
  // ignored, because an error is returned anyway.
  made->abort(met);
  if (!is_loss) (void)store.set(end_key(made->token_), why);
  made->shutdown(kGoodbye);
  // Members that come later are refused with the reason, or read it in the store if
  // this process is gone.
  made->engine_->run_and_wait(
      [&] { made->engine_->listener().refuse(made->token_, why); });
  if (is_loss && !is_told) (void)store.set(end_key(made->token_), why);
  return met;
}

Status Communicator::rendezvous(membership::Store& store, TimePoint deadline) {
  engine_->run_and_wait([this] { engine_->add(group_.get()); });
  if (options_.size == 1) return Status::ok();
  if (options_.self == Rank(0)) {
    // Written last, so that a member which reads the token also finds the address.
    AIKIDO_TRY(introduce(store, random_token()));
    AIKIDO_TRY(store.set(
        "token",
        std::string(reinterpret_cast<const char*>(token_.data()), token_.size())));
  }
  for (int32_t r = 0; r < options_.self.value; ++r) {
    AIKIDO_TRY(dial_lower_rank(Rank(r), store, deadline)
                   .with_context(concat("connecting to rank ", r, " of group \"",
                                        options_.name, "\"")));
  }
  AIKIDO_TRY(wait_for_links(deadline));
  return learn_place(store, deadline);
}

Status Communicator::learn_place(membership::Store& store, TimePoint deadline) {
  const std::string key = place_key(token_);
  if (options_.self == Rank(0)) {
    is_crowded_ = options_.size > ::sysconf(_SC_NPROCESSORS_ONLN);
    engine_->run_and_wait([this] {
      for (int32_t r = 1; r < options_.size; ++r)
        is_crowded_ = is_crowded_ && group_->peers()[Rank(r)].reads_our_memory();
      if (options_.is_reliable) reliable_.insert(options_.self);
      group_->votes().set_roles(reliable_);
    });
    AIKIDO_TRY(store.set(key, place_text(is_crowded_, reliable_)));
    const TimePoint until = std::min(deadline, clock_.now() + kLongestCourtesy);
    for (int32_t r = 1; r < options_.size; ++r)
      if (!read_from(Rank(r), met_key(token_, Rank(r)), store, until)) break;
    return Status::ok();
  }
  auto told = read_from(Rank(0), key, store, deadline);
  if (!told) {
    return told.status().with_context(
        concat("rank 0 of group \"", options_.name,
               "\" has not published where the ranks are"));
  }
  const auto reliable = reliable_in(*told, options_.size);
  if (!reliable)
    return {Code::kProtocol,
            concat("rank 0 of group \"", options_.name, "\" has published \"",
                   printable(*told), "\" as the place and the roles of the ranks")};
  is_crowded_ = told->starts_with(kCrowded);
  engine_->run_and_wait([&] { group_->votes().set_roles(*reliable); });
  // If this write fails, rank 0 waits for its full time.
  (void)store.set(met_key(token_, options_.self), "1");
  return Status::ok();
}

// Reads a value that `rank` writes. The rank may be lost, leave or become silent before
// it writes.
Result<std::string> Communicator::read_from(Rank rank, const std::string& key,
                                            membership::Store& store,
                                            TimePoint deadline) {
  while (true) {
    Status failure;
    bool has_gone = false;
    engine_->run_and_wait([&] {
      failure = group_->failure();
      if (failure.is_ok()) failure = group_->peers().silence();
      has_gone = group_->peers().has_gone(rank);
    });
    // The member writes before it leaves, so its state is read before the key.
    const TimePoint now = clock_.now();
    auto text = store.get(key, std::min(deadline - now, kSecondThoughts));
    if (text) return text;
    AIKIDO_TRY(failure);
    if (has_gone || clock_.now() >= deadline)
      return Status(text.status().code(), text.status().message(), rank);
    // A store that has ended fails at once, so this loop pauses.
    links_.await_change(std::min(deadline - now, kLongestPause));
  }
}

// From now on, members with the same token find this member.
Status Communicator::introduce(membership::Store& store,
                               const transport::Token& token) {
  engine_->run_and_wait([&] {
    engine_->listener().remove(this);
    token_ = token;
    engine_->listener().add(this);
  });
  return store.set(address_key(token, options_.self), engine_->address().to_string());
}

Status Communicator::follow_token(membership::Store& store, TimePoint deadline) {
  auto text = store.get("token", deadline - clock_.now());
  if (!text) {
    return Status(text.status().code(), text.status().message(), Rank(0))
        .with_context("it has not published the group's token");
  }
  if (text->size() != token_.size()) {
    return {Code::kProtocol, concat("the group's token has ", text->size(),
                                    " bytes, expected ", token_.size())};
  }
  transport::Token token;
  std::memcpy(token.data(), text->data(), token.size());
  return token == token_ ? Status::ok() : introduce(store, token);
}

// Dials repeatedly: see Note [one store, many groups].
Status Communicator::dial_lower_rank(Rank rank, membership::Store& store,
                                     TimePoint deadline) {
  Duration pause = kShortestPause;
  std::optional<Status> refusal;  // for this token
  Status last_try;                // the last that was no time-out
  TimePoint refused_at{};
  while (true) {
    const transport::Token before = token_;
    if (rank == Rank(0)) {
      const Status followed = follow_token(store, deadline);
      // Rank 0 refused this member and may have ended since, and its store too.
      if (followed.has_failed()) return refusal.value_or(followed);
    }
    if (token_ != before) refusal.reset();
    const Status dialled = dial_published(rank, store, deadline);
    const TimePoint now = clock_.now();
    if (dialled.code() == Code::kInvalidArgument && rank == Rank(0)) {
      if (!refusal) refused_at = now;
      refusal = dialled;
    } else if (dialled.code() != Code::kRetryLater &&
               (dialled.code() != Code::kTimedOut || last_try.is_ok())) {
      return dialled;
    }
    if (dialled.code() != Code::kTimedOut) last_try = dialled;
    if (refusal && now - refused_at >= kSecondThoughts) return *refusal;
    AIKIDO_TRY(failure());
    if (const auto refused = links_.refusal()) return *refused;
    if (now + pause >= deadline) {
      return {Code::kTimedOut, concat("Timed out; the last try: ", last_try.message()),
              rank};
    }
    links_.await_change(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

Status Communicator::dial_published(Rank rank, membership::Store& store,
                                    TimePoint deadline) {
  auto text = store.get(address_key(token_, rank), deadline - clock_.now());
  if (!text) {
    return Status(text.status().code(), text.status().message(), rank)
        .with_context("it has not published its address");
  }
  auto address = transport::Address::parse(*text);
  if (!address) return address.status();
  const TimePoint patience = std::min(deadline, clock_.now() + kLongestTry);
  const Status dialled = dial_member(rank, *address, token_, patience);
  const bool is_last = dialled.code() == Code::kTimedOut && patience == deadline;
  if (is_last ||
      (dialled.code() != Code::kTimedOut && dialled.code() != Code::kRetryLater))
    return dialled;
  if (auto why = store.get(end_key(token_), kLook))
    return {Code::kInvalidArgument, printable(*why), rank};
  return {Code::kRetryLater, dialled.message(), rank};
}

}  // namespace aikido::engine
