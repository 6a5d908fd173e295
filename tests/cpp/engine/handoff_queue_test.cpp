// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/handoff_queue.h"

#include <memory>
#include <thread>
#include <vector>

#include "harness/catch.h"

using namespace aikido;
using engine::HandoffQueue;

namespace {

template <class T>
typename HandoffQueue<T>::Ticket put(HandoffQueue<T>& queue, T thing) {
  typename HandoffQueue<T>::Ticket got;
  queue.put(std::move(thing), [&](auto ticket) { got = ticket; });
  return got;
}

}  // namespace

TEST_CASE("each ticket gets its own item, in any order") {
  HandoffQueue<std::unique_ptr<int>> queue;
  std::vector<HandoffQueue<std::unique_ptr<int>>::Ticket> tickets;
  for (int i = 0; i < 4; ++i) tickets.push_back(put(queue, std::make_unique<int>(i)));
  for (const size_t i : {2u, 0u, 3u, 1u})
    CHECK(*queue.take(tickets[i]) == static_cast<int>(i));
}

TEST_CASE("items that are not taken are destroyed with the queue") {
  auto thing = std::make_shared<int>(7);
  {
    HandoffQueue<std::shared_ptr<int>> queue;
    put(queue, thing);
    queue.take(put(queue, thing));
    CHECK(thing.use_count() == 2);
    CHECK_THROWS_AS(queue.put(thing, [](auto) { throw std::bad_alloc(); }),
                    std::bad_alloc);
    CHECK(thing.use_count() == 2);
  }
  CHECK(thing.use_count() == 1);
}

TEST_CASE("several threads put items while another thread takes them") {
  HandoffQueue<int> queue;
  std::vector<std::thread> callers;
  std::vector<std::vector<HandoffQueue<int>::Ticket>> tickets(3);
  for (size_t t = 0; t < tickets.size(); ++t)
    callers.emplace_back([&queue, &its = tickets[t], t] {
      for (int i = 0; i < 100; ++i) {
        queue.take(put(queue, -1));
        its.push_back(put(queue, static_cast<int>(t) * 100 + i));
      }
    });
  for (auto& caller : callers) caller.join();
  int expected = 0;
  bool is_right = true;
  for (const auto& its : tickets)
    for (const auto ticket : its)
      is_right = queue.take(ticket) == expected++ && is_right;
  CHECK(is_right);
}
