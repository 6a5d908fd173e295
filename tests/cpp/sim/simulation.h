// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Simulation of one script: real engine::Groups on a LoopbackNetwork, with a clock that
// moves from event to event. The checks of sim/checks.h run after each event. Runs of
// the same script are equal. One thread.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/group.h"
#include "harness/manual_clock.h"
#include "sim/checks.h"
#include "sim/script.h"
#include "sim/votes.h"
#include "transport/loopback_link.h"

namespace aikido::sim {

// Number of members that may be lost while skippable operations of the others still end
// well. With one lost member, more than half are left in any group of three or more.
inline constexpr int32_t kMembersTolerated = 1;

struct Options {
  int32_t members_tolerated = kMembersTolerated;
  std::ostream* log = nullptr;  // every call, end, fault and frame, if not null
};

// Sent messages and bytes by kind of frame; headers included.
struct Traffic {
  struct OfKind {
    uint64_t messages = 0, bytes = 0;
  };
  std::array<OfKind, size_t{transport::kMaxFrameKind} + 1> by_kind{};
};

struct Report {
  std::string violation;  // first broken guarantee; empty: none
  uint64_t num_frames = 0;
  std::array<uint64_t, 3> num_ends{};  // complete, partial, with an error
  uint64_t num_views = 1;
  Duration took{};        // until the last answer, in the time of the run
  Duration took_first{};  // until all but one member had an answer of operation 1
  Traffic traffic;
};

class Simulation {
 public:
  // `script` must outlive this object.
  Simulation(const Script& script, const Options& options);
  ~Simulation();
  // May be called once.
  Report run();

 private:
  class Door;
  struct Answer;
  struct Member {
    std::unique_ptr<Door> door;
    std::unique_ptr<engine::Group> group;  // null: the member is killed
    TimePoint stopped_until{};
    TimePoint next_look = TimePoint::max();
    uint64_t num_steps = 0;          // steps of the network when next_look was taken
    bool is_touched = true;          // next_look may have changed
    std::deque<const Event*> calls;  // due calls that are not made yet
    const Event* pass = nullptr;     // due copy of a state that is not made yet
    int32_t agrees_due = 0;          // due calls for an agreement
    std::optional<TimePoint> agrees_until;  // waits for an agreement
    uint64_t passed = 0;                    // calls up to this number are not made
    std::vector<std::shared_ptr<Answer>> answers;
  };

  Member& member(int32_t rank) { return members_[static_cast<size_t>(rank)]; }
  void connect_all();
  void apply(const Event& event);
  void kill(int32_t rank);
  bool is_idle(int32_t rank) const;
  bool skip_through(int32_t rank);
  void stop(int32_t rank, Duration d);
  bool make_calls(int32_t rank);
  bool agree(int32_t rank);
  void end_agreement(int32_t rank, const std::string& why);
  uint64_t live() const;
  void call(int32_t rank, const Event& event);
  void end(int32_t rank, Answer& answer, const Status& status,
           const collectives::Outcome& outcome);
  // Does everything that happens at the present time.
  void turn();
  TimePoint next_look(int32_t rank);
  TimePoint next_event();
  bool is_over() const;
  void look_at(int32_t rank);
  void check_memory();
  void check_standing();
  TimePoint on_frame_leaves(Rank from, Rank to, const transport::FrameHeader& header,
                            TimePoint arrives);
  template <class Visit>
  void each(int32_t rank, Visit visit);
  template <class Visit>
  void each_pair(int32_t a, int32_t b, Visit visit);
  template <class... Args>
  void log(const Args&... args);

  const Script& script_;
  Options options_;
  testing::ManualClock clock_;
  const TimePoint start_;
  transport::LoopbackNetwork network_;
  Checks checks_;
  Agreements agreements_;
  std::vector<Member> members_;
  size_t next_event_ = 0;  // index in the events of the script
  uint64_t num_open_ = 0;  // calls without an answer
  int32_t num_first_ended_ = 0;
  Report report_;
};

// Runs a script. An exception from the code is a violation.
Report run(const Script& script, const Options& options);

}  // namespace aikido::sim
