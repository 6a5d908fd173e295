// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Trace of a group. It gives the recorder one span for each traced call, for each hole
// of a call (collectives/outcome.h) and for each received data frame. It also follows
// the clock of rank 0 relative to the local clock, with questions in some heartbeats.
// Progress thread, except for the functions that the recorder calls.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "engine/member_events.h"
#include "trace/clock_offset.h"
#include "trace/recorder.h"
#include "transport/link.h"

namespace aikido::engine {

class GroupTrace final : private trace::Unfinished {
 public:
  // `recorder` may be null; then nothing is recorded. Otherwise it must outlive this
  // object.
  GroupTrace(trace::Recorder* recorder, const std::string& group, Rank self,
             int32_t size);
  ~GroupTrace() override;
  GroupTrace(const GroupTrace&) = delete;
  GroupTrace& operator=(const GroupTrace&) = delete;

  // Number of the group's name, for spans of its links.
  uint16_t name() const { return name_; }
  // Events of the members. They are rare and always recorded.
  MemberEvents& member_events() { return member_events_; }
  // A view takes effect. Skippable calls do not wait for members outside of it.
  void on_view(const membership::View& view);

  // ---- calls and frames
  // Call it before the operation starts. local.step tells whether the call is traced,
  // and local.traced_at when it was made.
  void on_call(Seq seq, const collectives::Call& call,
               const collectives::LocalCall& local);
  void on_peer_called(Rank from, uint64_t called);
  void on_over(const collectives::Operation& operation);
  bool is_armed() const { return recorder_ != nullptr && recorder_->is_armed(); }
  void on_frame_begin(Rank from, const transport::FrameHeader& header) {
    if (is_armed()) begin_chunk(from, header);
  }
  void on_frame(Rank from, const transport::FrameHeader& header) {
    if (begun_[index(from)] != 0) end_chunk(from, header);
  }

  // ---- clock of rank 0
  // The clock can be asked for from now on.
  void on_link_to_rank_0() { can_ask_ = recorder_ != nullptr; }
  // Question that is due (ClockOffset::pause_after), as a heartbeat to rank 0. Returns
  // nullopt if a question is unanswered.
  std::optional<transport::OutMessage> question(TimePoint now);
  std::optional<TimePoint> next_look() const;
  // Answer to the sender of a received heartbeat, if the heartbeat asks for one.
  std::optional<transport::OutMessage> on_heartbeat(
      const transport::FrameHeader& header);
  // Empty: not known yet, or there is no recorder.
  std::optional<trace::ClockLine> clock_of_rank_0() const;

 private:
  static size_t index(Rank rank) { return static_cast<size_t>(rank.value); }
  void begin_chunk(Rank from, const transport::FrameHeader& header);
  void end_chunk(Rank from, const transport::FrameHeader& header);
  transport::OutMessage ask();

  struct Open {
    trace::Span span;
    Rank only = kNoRank;  // the only member it needs; kNoRank: all others
    bool may_skip = false;
    bool gives = false;  // only sends: may end before the others call
  };
  bool has_to_do(const Open& open, Rank rank) const;
  trace::Span ended(const Open& open, int64_t now_ns, bool is_through) const;
  void record_holes(const trace::Span& call,
                    const std::vector<collectives::Hole>& holes);
  void add_open(int64_t now_ns, std::vector<trace::Span>& spans) const override;

  trace::Recorder* const recorder_;
  const Rank self_;
  MemberEvents member_events_;
  uint16_t name_ = 0;
  // The progress thread changes these. It changes open_ and members_ under the lock,
  // and called_ under the lock while any call is open.
  mutable std::mutex mutex_;
  std::vector<uint64_t> called_;  // by rank
  std::map<uint64_t, Open> open_;
  RankSet members_;             // of the view
  std::vector<int64_t> begun_;  // by rank: begin of its current data frame, 0: none
  trace::ClockOffset offset_;
  std::optional<TimePoint> asked_;  // time of the unanswered question
  bool can_ask_ = false;
  size_t num_answers_ = 0;
  TimePoint ask_at_{};  // on the clock of the group
};

}  // namespace aikido::engine
