// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/tray.h"

#include <memory>
#include <thread>
#include <vector>

#include "harness/catch.h"

using namespace aikido;
using engine::Tray;

namespace {

template <class T>
typename Tray<T>::Ticket put(Tray<T>& tray, T thing) {
  typename Tray<T>::Ticket got;
  tray.put(std::move(thing), [&](auto ticket) { got = ticket; });
  return got;
}

}  // namespace

TEST_CASE("each ticket gets its own item, in any order") {
  Tray<std::unique_ptr<int>> tray;
  std::vector<Tray<std::unique_ptr<int>>::Ticket> tickets;
  for (int i = 0; i < 4; ++i) tickets.push_back(put(tray, std::make_unique<int>(i)));
  for (const size_t i : {2u, 0u, 3u, 1u})
    CHECK(*tray.take(tickets[i]) == static_cast<int>(i));
}

TEST_CASE("items that are not taken are destroyed with the queue") {
  auto thing = std::make_shared<int>(7);
  {
    Tray<std::shared_ptr<int>> tray;
    put(tray, thing);
    tray.take(put(tray, thing));
    CHECK(thing.use_count() == 2);
    CHECK_THROWS_AS(tray.put(thing, [](auto) { throw std::bad_alloc(); }),
                    std::bad_alloc);
    CHECK(thing.use_count() == 2);
  }
  CHECK(thing.use_count() == 1);
}

TEST_CASE("several threads put items while another thread takes them") {
  Tray<int> tray;
  std::vector<std::thread> callers;
  std::vector<std::vector<Tray<int>::Ticket>> tickets(3);
  for (size_t t = 0; t < tickets.size(); ++t)
    callers.emplace_back([&tray, &its = tickets[t], t] {
      for (int i = 0; i < 100; ++i) {
        tray.take(put(tray, -1));
        its.push_back(put(tray, static_cast<int>(t) * 100 + i));
      }
    });
  for (auto& caller : callers) caller.join();
  int expected = 0;
  bool is_right = true;
  for (const auto& its : tickets)
    for (const auto ticket : its)
      is_right = tray.take(ticket) == expected++ && is_right;
  CHECK(is_right);
}
