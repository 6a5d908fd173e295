// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a group tells the recorder: a span for each traced call, for each of its holes
// (collectives/outcome.h) and for each frame of data that comes. And how the clock of
// rank 0 goes beside ours, which heartbeats with a question ask it now and then.
// Progress thread, but for what the recorder asks.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "engine/group_news.h"
#include "trace/clock_offset.h"
#include "trace/recorder.h"
#include "transport/link.h"

namespace aikido::engine {

class GroupTrace final : private trace::Unfinished {
 public:
  // `recorder` may be null, and then nothing happens here; else it must outlive it.
  GroupTrace(trace::Recorder* recorder, const std::string& group, Rank self,
             int32_t size);
  ~GroupTrace() override;
  GroupTrace(const GroupTrace&) = delete;
  GroupTrace& operator=(const GroupTrace&) = delete;

  // Of the name of the group, for spans of its links.
  uint16_t name() const { return name_; }
  // What befalls the members; recorded always, as it is rare.
  GroupNews& news() { return news_; }
  // No call that may skip waits for who is not in it.
  void on_view(const membership::View& view);

  // ---- calls and frames
  // To be called before the operation starts; local.step says whether it is traced, and
  // local.traced_at when it was made.
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

  // ---- the clock of rank 0
  // It can be asked from now on.
  void on_link_to_rank_0() { can_ask_ = recorder_ != nullptr; }
  // A question that is due (ClockOffset::pause_after), as a heartbeat to rank 0. None
  // while one is under way.
  std::optional<transport::OutMessage> question(TimePoint now);
  std::optional<TimePoint> next_look() const;
  // What a heartbeat that has come is to be answered with, to its sender.
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
    Rank only = kNoRank;  // with whom it has to do; none: with all others
    bool may_skip = false;
    bool gives = false;  // nothing comes from them: it may end before they call
  };
  bool has_to_do(const Open& open, Rank rank) const;
  trace::Span ended(const Open& open, int64_t now_ns, bool is_through) const;
  void record_holes(const trace::Span& call,
                    const std::vector<collectives::Hole>& holes);
  void add_open(int64_t now_ns, std::vector<trace::Span>& spans) const override;

  trace::Recorder* const recorder_;
  const Rank self_;
  GroupNews news_;
  uint16_t name_ = 0;
  // Changed by the progress thread: open_ and members_ under the lock, called_ where
  // any are open.
  mutable std::mutex mutex_;
  std::vector<uint64_t> called_;  // by rank
  std::map<uint64_t, Open> open_;
  RankSet members_;             // of the view
  std::vector<int64_t> begun_;  // by rank: when its frame of data began, 0: none did
  trace::ClockOffset offset_;
  std::optional<TimePoint> asked_;  // the question that is under way
  bool can_ask_ = false;
  size_t num_answers_ = 0;
  TimePoint ask_at_{};  // by the clock of the group
};

}  // namespace aikido::engine
