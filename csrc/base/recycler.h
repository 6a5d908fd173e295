// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Recycler of small memory blocks that come and go with each call: operations, entries
// of maps and of queues. A returned block is kept and becomes the next block of its
// size. So in the steady state a call needs no heap. BufferPool is for larger memory.
//
// One thread at a time takes and returns blocks, as with the containers that have their
// memory here. The recycler may be destroyed before its blocks.

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

// The address sanitizer must see uses of returned blocks, so nothing is kept for it.
#if defined(__SANITIZE_ADDRESS__)
#define AIKIDO_KEEPS_BLOCKS false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AIKIDO_KEEPS_BLOCKS false
#endif
#endif
#ifndef AIKIDO_KEEPS_BLOCKS
#define AIKIDO_KEEPS_BLOCKS true
#endif

namespace aikido {

template <class T>
class Recycling;

class Recycler {
 public:
  // Larger blocks are not kept.
  static constexpr size_t kLargest = 4096;
  static constexpr bool kKeepsBlocks = AIKIDO_KEEPS_BLOCKS;

  // Keeps up to `max_idle_bytes` of the blocks returned last. To make room it drops as
  // many bytes of other sizes, so that the blocks of a burst do not stay for good.
  explicit Recycler(size_t max_idle_bytes)
      : shelf_(new Shelf(kKeepsBlocks ? max_idle_bytes : 0)) {}
  ~Recycler() { shelf_->close(); }
  Recycler(const Recycler&) = delete;
  Recycler& operator=(const Recycler&) = delete;

  // Bytes lying idle.
  size_t idle_bytes() const { return shelf_->idle_bytes(); }

 private:
  template <class T>
  friend class Recycling;

  class Shelf {
   public:
    explicit Shelf(size_t max_idle_bytes) : max_idle_bytes_(max_idle_bytes) {}
    Shelf(const Shelf&) = delete;
    Shelf& operator=(const Shelf&) = delete;

    // Both in the size that was asked for.
    void* take(size_t bytes) {
      ++num_out_;
      const size_t i = place_of(bytes);
      if (i >= idle_.size() || idle_[i] == nullptr) return fresh(bytes);
      Idle* const block = idle_[i];
      idle_[i] = block->next;
      idle_bytes_ -= size_of(i);
      return block;
    }
    void give_back(void* block, size_t bytes) {
      const size_t i = place_of(bytes);
      if (i < idle_.size() && (fits(i) || make_room(i))) {
        idle_[i] = new (block) Idle{idle_[i]};
        idle_bytes_ += size_of(i);
      } else {
        ::operator delete(block);
      }
      if (--num_out_ == 0 && is_closed_) delete this;
    }
    // Lives on until all blocks are back, and keeps none of them.
    void close();
    size_t idle_bytes() const { return idle_bytes_; }

   private:
    struct Idle {
      Idle* next;
    };
    static constexpr size_t kGrain = 64;
    static constexpr size_t place_of(size_t bytes) { return (bytes - 1) / kGrain; }
    static constexpr size_t size_of(size_t place) { return (place + 1) * kGrain; }
    static void* fresh(size_t bytes);
    bool fits(size_t place) const {
      return idle_bytes_ + size_of(place) <= max_idle_bytes_;
    }
    bool make_room(size_t place);

    size_t max_idle_bytes_;
    size_t idle_bytes_ = 0;
    size_t num_out_ = 0;
    size_t last_dropped_ = 0;  // the place of a block that made room
    bool is_closed_ = false;
    std::array<Idle*, kLargest / kGrain> idle_{};  // by size
  };

  Shelf* shelf_;
};

// For containers, and std::allocate_shared. Copies stand for the same recycler.
template <class T>
class Recycling {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Recycling(const Recycler& recycler)  // NOLINT: implicit on purpose
      : shelf_(recycler.shelf_) {}
  template <class U>
  Recycling(const Recycling<U>& other) : shelf_(other.shelf_) {}  // NOLINT: as above

  T* allocate(size_t count) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    return static_cast<T*>(shelf_->take(count * sizeof(T)));
  }
  void deallocate(T* block, size_t count) {
    shelf_->give_back(block, count * sizeof(T));
  }

  template <class U>
  bool operator==(const Recycling<U>& other) const {
    return shelf_ == other.shelf_;
  }

 private:
  template <class U>
  friend class Recycling;
  Recycler::Shelf* shelf_;
};

template <class T>
using RecycledVector = std::vector<T, Recycling<T>>;
template <class T>
using RecycledList = std::list<T, Recycling<T>>;
template <class T>
using RecycledDeque = std::deque<T, Recycling<T>>;
template <class Key, class T>
using RecycledMap = std::map<Key, T, std::less<>, Recycling<std::pair<const Key, T>>>;
template <class Key, class T>
using RecycledHashMap = std::unordered_map<Key, T, std::hash<Key>, std::equal_to<>,
                                           Recycling<std::pair<const Key, T>>>;

}  // namespace aikido

#undef AIKIDO_KEEPS_BLOCKS
