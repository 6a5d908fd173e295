// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/inflight_limit.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "harness/catch.h"

using namespace aikido;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::InflightLimit;
using transport::RateMeter;

namespace {

constexpr double kMbit = 1e6 / 8;  // bytes per second

// Model of links that share an uplink. Written bytes leave at the rate of the uplink.
// They are acknowledged at least `round_trip` later. The rate of a link's peer may be
// lower.
struct Net {
  struct Link {
    size_t flow;
    double rate = 1e12;                                 // of its peer
    double behind = 0;                                  // bytes in its peer's downlink
    std::deque<std::pair<TimePoint, double>> coming{};  // acknowledgements
    double acknowledged = 0, written = 0;
    bool has_more = true;
    double end = 1e18;     // end of the bytes that it has to send
    Duration more_trip{};  // additional delay of its acknowledgements
    bool is_full(double room) const { return written - acknowledged >= room; }
  };

  Net(size_t num_links, double rate, Duration round_trip, size_t fixed = 0)
      : limit(fixed), uplink(rate), trip(round_trip) {
    for (size_t i = 0; i < num_links; ++i) links.push_back({limit.add(1448)});
  }
  // Runs for `time`. All links write as much as they may, and look at the intervals
  // that the limit asks for.
  void run(Duration time) {
    const TimePoint end = now + time;
    while (now < end) {
      for (Link& l : links) {
        limit.on_look(l.flow, static_cast<size_t>(l.written - l.acknowledged),
                      l.has_more, now);
      }
      limit.end_look(now);
      while (write_one()) {
      }
      const TimePoint next = now + limit.next_look();
      for (; now < next; now += microseconds(20)) pass(microseconds(20));
    }
  }
  // The links take turns.
  bool write_one() {
    for (size_t i = 1; i <= links.size(); ++i) {
      const size_t at = (last + i) % links.size();
      Link& l = links[at];
      const auto [most, is_question] = limit.next_chunk(l.flow);
      const size_t bytes =
          std::min({most, size_t{256} << 10, static_cast<size_t>(l.end - l.written)});
      if (!l.has_more || l.is_full(room) || bytes == 0) continue;
      limit.on_written(l.flow, bytes, is_question);
      l.written += static_cast<double>(bytes);
      if (l.written >= l.end) end_of(l);
      queue.emplace_back(at, static_cast<double>(bytes));
      last = at;
      return true;
    }
    return false;
  }
  void end_of(Link& l) {
    l.has_more = false;
    limit.on_written_out(l.flow);
  }
  // From now on no link has anything to send, so no link looks.
  void rest(Duration time) {
    for (Link& l : links) end_of(l);
    for (const TimePoint end = now + time; now < end; now += microseconds(20))
      pass(microseconds(20));
  }
  // Each link sends `bytes`. Returns the time until all bytes have left the uplink.
  Duration send(double bytes) {
    const TimePoint begin = now;
    for (Link& l : links) {
      l.has_more = true;
      l.end = l.written + bytes;
    }
    const auto has_more = [](const Link& l) { return l.has_more; };
    while (std::any_of(links.begin(), links.end(), has_more)) run(Duration(1));
    for (; queued() > 0; now += microseconds(20)) pass(microseconds(20));
    return now - begin;
  }
  void pass(Duration step) {
    for (double left = uplink * to_seconds(step); left > 0 && !queue.empty();) {
      auto& [at, bytes] = queue.front();
      const double out = std::min(left, bytes);
      links[at].behind += out;
      left -= out;
      bytes -= out;
      if (bytes <= 0) queue.pop_front();
    }
    for (Link& l : links) {
      const double taken = std::min(l.behind, l.rate * to_seconds(step));
      l.behind -= taken;
      l.coming.emplace_back(now + trip + l.more_trip, taken);
      while (!l.coming.empty() && l.coming.front().first <= now) {
        l.acknowledged += l.coming.front().second;
        l.coming.pop_front();
      }
      delivered += taken;
    }
  }
  // Used share of the uplink.
  double used(Duration time) {
    const double before = delivered;
    run(time);
    return (delivered - before) / (uplink * to_seconds(time));
  }
  double queued() const {
    return std::accumulate(queue.begin(), queue.end(), 0.0,
                           [](double sum, const auto& w) { return sum + w.second; });
  }

  InflightLimit limit;
  double uplink;
  Duration trip;
  double room = 300'000;  // of a socket
  std::vector<Link> links;
  std::deque<std::pair<size_t, double>> queue;  // of the uplink: link and bytes
  size_t last = 0;                              // link that has written last
  TimePoint now = TimePoint{} + milliseconds(1);
  double delivered = 0;
};

}  // namespace

TEST_CASE("a rate counts only the time in which data waited") {
  RateMeter meter;
  TimePoint now{};
  meter.look(0, true, now);
  now += RateMeter::kSample / 2;
  meter.look(50'000, true, now);
  CHECK(meter.bytes_per_s() == 0);
  now += RateMeter::kSample / 2;
  meter.look(100'000, true, now);
  const double full = 100'000 / to_seconds(RateMeter::kSample);
  CHECK(meter.bytes_per_s() == full);
  // A link without data to send says nothing about its rate.
  meter.look(100'000, false, now);
  now += 10 * RateMeter::kSample;
  meter.look(100'100, true, now);
  CHECK(meter.bytes_per_s() == full);
  // The link got slower while data waited.
  now += RateMeter::kSample;
  meter.look(100'100 + 50'000, true, now);
  CHECK(meter.bytes_per_s() == 0.75 * full);
}

TEST_CASE("a time without waiting data belongs to no sample") {
  RateMeter meter;
  TimePoint now{};
  meter.look(0, true, now);
  now += RateMeter::kSample;
  meter.look(100'000, true, now);
  const double full = meter.bytes_per_s();
  // All data was written after that look, and new data comes much later.
  meter.pause();
  now += 4 * RateMeter::kSample;
  CHECK_FALSE(meter.look(120'000, true, now).has_value());
  CHECK(meter.bytes_per_s() == full);
}

TEST_CASE("rests between transfers do not count as a slow link") {
  Net net(3, 200 * kMbit, microseconds(150));
  net.limit.set_aim(InflightLimit::kStale);
  net.run(milliseconds(1000));
  for (int i = 0; i < 100; ++i) {
    net.rest(milliseconds(15));
    net.send(60'000);
  }
  CHECK(net.limit.bytes_per_s() > 0.9 * 200 * kMbit);
  CHECK(net.limit.bytes_per_s() < 1.2 * 200 * kMbit);
}

TEST_CASE("a short transfer after a rest goes at once, and a long one has its limit") {
  Net net(3, 200 * kMbit, microseconds(150));
  net.limit.set_aim(InflightLimit::kStale);
  net.run(milliseconds(1000));
  net.rest(milliseconds(20));
  const double worth = to_seconds(InflightLimit::kStale.burst) * 200 * kMbit;
  for (auto& l : net.links) l = {l.flow, l.rate, 0, {}, l.acknowledged, l.written};
  net.run(Duration(1));               // a single look
  CHECK(net.queued() > 0.8 * worth);  // some of it has left
  CHECK(net.queued() < 1.2 * worth + 30'000);
  for (int ms = 0; ms < 50; ++ms) {
    net.run(milliseconds(1));
    if (ms > 6) CHECK(net.queued() < 1.5 * double(net.limit.bytes()));
  }
}

TEST_CASE("no short transfer goes at once while there may be urgent data") {
  Net net(3, 200 * kMbit, microseconds(150));
  net.limit.set_aim(InflightLimit::kStale);
  net.run(milliseconds(1000));
  net.rest(milliseconds(20));
  net.limit.set_aim(InflightLimit::kUrgent);
  for (auto& l : net.links) l.has_more = true;
  net.run(Duration(1));
  CHECK(net.queued() < 20'000);
}

TEST_CASE("a slow link has its limit after a rest, too") {
  Net net(3, 10 * kMbit, microseconds(150));
  net.limit.set_aim(InflightLimit::kStale);
  net.run(milliseconds(1000));
  net.rest(milliseconds(100));
  for (auto& l : net.links) l.has_more = true;
  net.run(Duration(1));
  CHECK(net.queued() <= 1.5 * double{InflightLimit::kLeast} + 3 * 5800);
}

TEST_CASE("the limit fills a link of any rate, and delays urgent data only shortly") {
  const bool is_urgent = GENERATE(true, false);
  const auto aim = is_urgent ? InflightLimit::kUrgent : InflightLimit::kStale;
  for (const double mbit : {50., 100., 200., 500., 1000.}) {
    for (const size_t num_links : {1u, 3u, 7u}) {
      const double worth = to_seconds(aim.residence) * mbit * kMbit;
      if (worth >= InflightLimit::kMost) continue;  // no limit
      Net net(num_links, mbit * kMbit, microseconds(150));
      net.limit.set_aim(aim);
      net.run(milliseconds(1000));
      CAPTURE(mbit, num_links, is_urgent);
      CHECK(net.used(milliseconds(200)) > 0.96);
      const double least = 1.5 * std::max(double{InflightLimit::kLeast},
                                          double{InflightLimit::kLeastSegments * 1448} *
                                              double(num_links));
      CHECK(net.queued() < std::max(least, 1.5 * worth));
    }
  }
}

TEST_CASE("a link with late acknowledgements delays no other link") {
  Net net(3, 200 * kMbit, microseconds(150));
  net.limit.set_aim(InflightLimit::kStale);
  net.run(milliseconds(1000));
  net.links[0].more_trip = milliseconds(15);
  const auto of_others = [&] {
    return net.links[1].acknowledged + net.links[2].acknowledged;
  };
  const double before = of_others();
  net.run(milliseconds(15));
  // The other two links get at least two thirds of the uplink.
  CHECK((of_others() - before) / (net.uplink * 0.015) > 0.66);
}

TEST_CASE("the last bytes to a late peer delay no other link for long") {
  Net net(3, 200 * kMbit, microseconds(150));
  net.limit.set_aim(InflightLimit::kStale);
  net.run(milliseconds(1000));
  net.links[0].more_trip = milliseconds(15);
  for (const size_t i : {1, 2}) net.links[i].has_more = false;
  net.run(milliseconds(5));
  for (const size_t i : {1, 2}) net.links[i].has_more = true;
  const double before = net.delivered;
  net.run(milliseconds(5));
  CHECK((net.delivered - before) / (net.uplink * 0.005) > 0.6);
}

TEST_CASE(
    "one link at a time goes beyond the limit, and another link when it has gone") {
  const bool is_urgent = GENERATE(true, false);
  CAPTURE(is_urgent);
  Net net(15, 200 * kMbit, microseconds(150));
  net.limit.set_aim(is_urgent ? InflightLimit::kUrgent : InflightLimit::kStale);
  net.run(milliseconds(1000));
  net.uplink = 0;
  net.run(InflightLimit::kStill / 2);
  const double before = net.queued();
  net.run(milliseconds(5));
  CHECK(net.queued() - before == InflightLimit::kLeastChunk);
  const auto may_ask = [&] {
    return std::any_of(net.links.begin(), net.links.end(), [&](const Net::Link& l) {
      return net.limit.next_chunk(l.flow).bytes > 0;
    });
  };
  CHECK_FALSE(may_ask());
  net.limit.remove(net.links[net.last].flow);
  net.links.erase(net.links.begin() + static_cast<ptrdiff_t>(net.last));
  CHECK(may_ask());
}

TEST_CASE("bytes that a link has written by itself count as in flight") {
  Net net(3, 200 * kMbit, microseconds(150));
  net.run(milliseconds(1000));
  for (const Net::Link& l : net.links)
    net.limit.on_look(l.flow, l.flow == 0 ? 300'000 : 0, true, net.now);
  net.limit.end_look(net.now);
  CHECK(net.limit.room(1) == 0);
}

TEST_CASE("a link that becomes far slower has little more than the limit on its way") {
  const size_t num_links = GENERATE(3u, 15u);
  CAPTURE(num_links);
  Net net(num_links, 200 * kMbit, microseconds(150));
  net.limit.set_aim(InflightLimit::kStale);
  net.run(milliseconds(1000));
  const double before = static_cast<double>(net.limit.bytes());
  net.uplink = 10 * kMbit;
  for (int ms = 0; ms < 100; ++ms) {
    net.run(milliseconds(1));
    CHECK(net.queued() <= 1.5 * before + double{InflightLimit::kLeastChunk});
  }
  CHECK(net.queued() <=
        1.5 * double{InflightLimit::kLeast} + double{InflightLimit::kLeastChunk});
  CHECK(net.used(milliseconds(100)) > 0.97);
}

TEST_CASE("the limit is larger if bytes in flight may take longer") {
  Net net(3, 500 * kMbit, microseconds(150));
  net.run(milliseconds(1000));
  const size_t urgent = net.limit.bytes();
  net.limit.set_aim(InflightLimit::kStale);
  net.run(milliseconds(1000));
  CHECK(net.limit.bytes() > 50'000);
  CHECK(urgent < 40'000);
}

TEST_CASE("a fast link has no limit after some samples") {
  Net net(3, 10'000 * kMbit, microseconds(60));
  net.room = 1e6;
  net.run(milliseconds(100));
  CHECK(net.limit.bytes() == InflightLimit::kNoBound);
  CHECK(net.limit.room(net.links[1].flow) == InflightLimit::kNoBound);
}

TEST_CASE("the limit follows a rate down and up again") {
  Net net(3, 500 * kMbit, microseconds(150));
  net.run(milliseconds(300));
  const size_t fast = net.limit.bytes();
  net.uplink = 100 * kMbit;
  net.run(milliseconds(300));
  CHECK(net.limit.bytes() < fast / 2);
  CHECK(net.used(milliseconds(200)) > 0.97);
  net.uplink = 500 * kMbit;
  net.run(milliseconds(100));
  CHECK(net.used(milliseconds(200)) > 0.97);
  CHECK(net.limit.bytes() > fast / 2);
}

TEST_CASE("a peer that takes little leaves the uplink to the others") {
  Net net(3, 200 * kMbit, microseconds(150));
  net.links[0].rate = 5 * kMbit;
  net.run(milliseconds(500));
  CHECK(net.used(milliseconds(300)) > 0.95);
}

TEST_CASE("a peer that reads nothing any more does not count") {
  Net net(3, 200 * kMbit, microseconds(150));
  net.run(milliseconds(200));
  net.links[0].rate = 0;
  net.run(milliseconds(200));
  CHECK(net.used(milliseconds(300)) > 0.95);
}

TEST_CASE("a link that was slow may send a chunk when nothing is on its way") {
  for (const double mbit : {100., 500., 1000.}) {
    Net net(7, mbit * kMbit, microseconds(150));
    net.links[0].rate = 0;
    net.run(milliseconds(500));
    net.links[0].rate = 1e12;
    net.run(milliseconds(20));
    Net::Link& slow = net.links[0];
    CAPTURE(mbit);
    CHECK(slow.acknowledged > 0);
    for (Net::Link& l : net.links) l.has_more = false;
    net.run(milliseconds(100));
    REQUIRE(slow.written - slow.acknowledged < 1);
    CHECK(net.limit.room(slow.flow) >= net.limit.chunk_bytes());
  }
}

TEST_CASE("the most urgent data may use up the limit of other links") {
  Net net(3, 100 * kMbit, microseconds(150));
  net.run(milliseconds(1000));
  for (const Net::Link& l : net.links) net.limit.on_look(l.flow, 0, true, net.now);
  net.limit.end_look(net.now);
  const size_t flow = net.links[0].flow;
  net.limit.on_written(flow, net.limit.room(flow));
  CHECK(net.limit.room(flow) == 0);
  const size_t left = net.limit.room(flow, InflightLimit::Standing::kAhead);
  CHECK(left >= net.limit.bytes() / 3);
  net.limit.on_written(net.links[1].flow, left);
  CHECK(net.limit.room(flow, InflightLimit::Standing::kAhead) <
        net.limit.chunk_bytes() / 2);
}

TEST_CASE("an unknown link has a limit, too") {
  Net net(3, 50 * kMbit, microseconds(150));
  net.run(InflightLimit::kSoonest);
  CHECK(net.limit.bytes() == InflightLimit::kMost);
  CHECK(net.queued() <= InflightLimit::kMost);
}

TEST_CASE("a removed link leaves its share of the limit to the others") {
  Net net(2, 200 * kMbit, microseconds(150));
  net.run(milliseconds(100));
  net.limit.remove(net.links[0].flow);
  net.links.erase(net.links.begin());
  CHECK(net.used(milliseconds(200)) > 0.95);
  CHECK(net.limit.add(1448) == 0);
}

TEST_CASE("a long round trip has no limit, and is checked again at times") {
  const size_t num_links = GENERATE(2u, 15u);
  CAPTURE(num_links);
  Net net(num_links, 200 * kMbit, milliseconds(20));
  net.room = 2e6;
  CHECK(net.used(milliseconds(10'000)) > 0.8);
  CHECK(net.limit.bytes() > InflightLimit::kMost);
  CHECK(net.used(milliseconds(500)) > 0.95);
  CHECK(net.used(std::chrono::seconds(25)) > 0.95);
}

TEST_CASE(
    "a bad time during a trial of a larger limit does not change the link's rate") {
  Net net(2, 200 * kMbit, microseconds(150));
  net.run(milliseconds(200));
  const auto is_open = [&] { return net.limit.bytes() > InflightLimit::kMost / 4; };
  const auto run_until = [&](bool open) {
    const TimePoint from = net.now;
    while (is_open() != open && net.now - from < std::chrono::seconds(2))
      net.run(milliseconds(1));
    REQUIRE(is_open() == open);
  };
  // With this round trip, the limit allows a quarter of the rate.
  net.trip = milliseconds(2);
  run_until(true);
  const double rate = std::exchange(net.uplink, 0.25 * net.uplink);
  run_until(false);
  net.uplink = rate;
  net.run(std::chrono::seconds(30));
  CHECK(net.used(std::chrono::seconds(5)) > 0.8);
}

TEST_CASE("lost bytes do not count against the limit") {
  Net net(2, 50 * kMbit, microseconds(150));
  net.room = 100'000;
  while (net.limit.bytes() >= InflightLimit::kMost) net.run(milliseconds(1));
  // Part of the bytes that left before the limit is lost, and is sent again slowly.
  for (Net::Link& l : net.links) l.rate = 0.02 * net.uplink;
  for (int ms = 0; ms < 60; ++ms) {
    net.run(milliseconds(1));
    CHECK(net.limit.bytes() != InflightLimit::kNoBound);
  }
  for (Net::Link& l : net.links) l.rate = 1e12;
  net.run(milliseconds(10));
  CHECK(net.used(milliseconds(100)) > 0.95);
  CHECK(net.limit.bytes() < InflightLimit::kMost);
}

TEST_CASE("a rate that is low at times, because others use a peer, keeps its limit") {
  Net net(2, 200 * kMbit, microseconds(150));
  net.run(milliseconds(200));
  for (int time = 0; time < 10; ++time) {
    for (Net::Link& l : net.links) l.rate = 0.2 * net.uplink;
    for (int ms = 0; ms < 150; ++ms) {
      net.run(milliseconds(1));
      REQUIRE(net.limit.bytes() < InflightLimit::kMost / 4);
    }
    for (Net::Link& l : net.links) l.rate = 1e12;
    net.run(milliseconds(450));
  }
}

TEST_CASE("a rate that is low on average keeps its limit if it is high in between") {
  Net net(2, 200 * kMbit, microseconds(150));
  net.run(milliseconds(200));
  for (int ms = 0; ms < 8'000; ++ms) {
    const bool is_low = ms % 135 < 90;
    for (Net::Link& l : net.links) l.rate = is_low ? 0.2 * net.uplink : 1e12;
    net.run(milliseconds(1));
    REQUIRE(net.limit.bytes() < InflightLimit::kMost / 4);
  }
}

TEST_CASE("a link that was slow for long is not checked more rarely") {
  Net net(2, 300 * kMbit, microseconds(150));
  net.run(milliseconds(200));
  const Duration before = net.limit.next_look();
  // Another sender fills the path: bytes are delayed, but arrive.
  net.trip = milliseconds(9);
  net.run(milliseconds(30));
  CHECK(net.limit.bytes_per_s() < 100 * kMbit);
  CHECK(net.limit.next_look() <= 2 * before);
  CHECK(net.limit.is_moving());
}

TEST_CASE("one starvation is soon forgotten, and repeated starvation lasts") {
  Net net(2, 50 * kMbit, microseconds(150));
  net.run(milliseconds(200));
  const auto is_open = [&] { return net.limit.bytes() > InflightLimit::kMost / 4; };
  const auto until = [&](bool open) {
    const TimePoint from = net.now;
    while (is_open() != open && net.now - from < std::chrono::seconds(20))
      net.run(milliseconds(1));
    return net.now - from;
  };
  net.trip = milliseconds(20);
  Duration longest{};
  for (int i = 0; i < 3; ++i) {
    CHECK(until(true) < milliseconds(1200));
    const Duration open = until(false);
    CHECK(open > longest);
    longest = open;
  }
  CHECK(until(true) < milliseconds(1200));
  net.trip = microseconds(150);
  until(false);
  // Later starvation counts as the first again, because the earlier starvation is
  // forgotten.
  net.run(std::chrono::seconds(10));
  CHECK_FALSE(is_open());
  CHECK(net.used(milliseconds(100)) > 0.95);
  net.trip = milliseconds(20);
  CHECK(until(true) < milliseconds(1200));
  CHECK(until(false) < longest);
}

TEST_CASE("a fixed limit does not change") {
  Net net(2, 200 * kMbit, microseconds(150), 40'000);
  net.run(milliseconds(300));
  CHECK(net.limit.bytes() == 40'000);
  CHECK(net.limit.chunk_bytes() == 10'000);
  CHECK(net.queued() < 60'000);
}
