// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/frame_admission.h"

#include <new>

#include "harness/catch.h"
#include "harness/idle_host.h"

using namespace aikido;
using collectives::Call;
using engine::read_call;

namespace {

Call floats(uint64_t count) {
  Call call;
  call.dtype = DType::kFloat32;
  call.count = count;
  return call;
}

// An operation that needs more memory than there is.
struct Greedy final : collectives::Operation {
  explicit Greedy(testing::IdleHost* host)
      : Operation(host, Seq(7), floats(8), Rank(1)) {}
  Result<std::byte*> place(Rank, const transport::FrameHeader&,
                           std::span<const std::byte>) override {
    throw std::bad_alloc();
  }
  void arrived(Rank, const transport::FrameHeader&) override {}
  std::vector<Rank> missing() const override { return {}; }
  Status on_start() override { return Status::ok(); }
};

}  // namespace

TEST_CASE("a frame for which there is no memory is refused with an error") {
  testing::IdleHost host(2);
  Greedy greedy(&host);
  transport::FrameHeader header;
  header.seq = 7;
  const auto place = engine::place_frame(greedy, Rank(1), header, {}, "g", Rank(2));
  CHECK(place.status().message().find(
            "rank 2 has no memory for what the others send") != std::string::npos);
}

TEST_CASE("a call that members can make is read, and so are the bytes behind it") {
  const auto encoded = collectives::encode(floats(8));
  std::vector<std::byte> bytes(encoded.view().begin(), encoded.view().end());
  bytes.push_back(std::byte{7});
  auto read = read_call(bytes, 2, 32);
  REQUIRE((read.is_ok() && read->has_value()));
  CHECK((*read)->call == floats(8));
  CHECK((*read)->rest.size() == 1);
  read = read_call({}, 2, 32);
  CHECK((read.is_ok() && !read->has_value()));
}

TEST_CASE("nonsense in the place of a call breaks the protocol") {
  auto call = floats(8);
  CHECK(read_call(collectives::encode(call).view(), 2, 31).status().message() ==
        "all_reduce(sum, float32[8]) has 32 bytes, more than 31");
  call.kind = collectives::CallKind::kBroadcast;
  call.root = Rank(2);
  CHECK(read_call(collectives::encode(call).view(), 2, 32).status().code() ==
        Code::kProtocol);
  CHECK(read_call(std::vector<std::byte>(9), 2, 32).status().code() == Code::kProtocol);
  CHECK(engine::too_far_ahead(9, 2).message() ==
        "a frame of collective 9, 2 are called here");
}
