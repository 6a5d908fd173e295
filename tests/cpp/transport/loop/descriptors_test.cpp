// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/descriptors.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::transport;

namespace {

struct Watched final : FdHandler {
  void on_events(uint32_t events) override {
    ++num_events;
    last = events;
    if (then) then();
  }
  void make_readable() {
    const uint64_t one = 1;
    REQUIRE(::write(fd.get(), &one, sizeof one) == sizeof one);
  }
  Fd fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  int num_events = 0;
  uint32_t last = 0;
  std::function<void()> then;
};

}  // namespace

TEST_CASE("a handler gets the events of its descriptor that it asks for", "[tcp]") {
  Descriptors descriptors;
  Watched a;
  descriptors.add(a.fd.get(), EPOLLIN, &a);
  CHECK(descriptors.take(0) == 0);
  a.make_readable();
  descriptors.run(descriptors.take(0));
  CHECK(a.num_events == 1);
  CHECK(a.last == EPOLLIN);
  descriptors.modify(a.fd.get(), EPOLLOUT);
  descriptors.run(descriptors.take(0));
  CHECK(a.last == EPOLLOUT);
  descriptors.remove(a.fd.get());
  CHECK(descriptors.take(0) == 0);
}

TEST_CASE("a removed handler gets no event that was taken before", "[tcp]") {
  Descriptors descriptors;
  Watched a, b;
  descriptors.add(a.fd.get(), EPOLLIN, &a);
  descriptors.add(b.fd.get(), EPOLLIN, &b);
  a.make_readable();
  b.make_readable();
  // The first of the two removes the other.
  a.then = [&] { descriptors.remove(b.fd.get()); };
  b.then = [&] { descriptors.remove(a.fd.get()); };
  descriptors.run(descriptors.take(0));
  CHECK(a.num_events + b.num_events == 1);
}

TEST_CASE("a descriptor without a handler only ends a wait", "[tcp]") {
  Descriptors descriptors;
  Watched a;
  descriptors.add(a.fd.get(), EPOLLIN | EPOLLET, nullptr);
  a.make_readable();
  const size_t num = descriptors.take(1000);
  CHECK(num == 1);
  descriptors.run(num);
  CHECK(descriptors.take(0) == 0);
}
