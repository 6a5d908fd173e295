// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Wakes up the event loops of several other processes by one system call: an eventfd of
// this process that all of them watch.
//
// Note [all at once]
// Who wakes up others one by one may lose its core to the first of them, and until it
// has it back the rest sleeps on, also where other cores have nothing to do. Where this
// call would wake up somebody in vain each is woken up for itself all the same.
//
// One thread, but fd() is any thread's.

#include <vector>

#include "base/fd.h"

namespace aikido::transport {

class Gong {
 public:
  // Another process, as it can be woken up.
  class Sleeper {
   public:
    virtual ~Sleeper() = default;
    virtual bool hears_gong() const = 0;
    // And is not due: it would be woken up in vain.
    virtual bool sleeps() const = 0;
    // Wakes it up alone.
    virtual void ring() = 0;
  };

  // Throws InternalError when the kernel refuses a descriptor.
  Gong();

  // For other processes, to be watched for its edges (EPOLLET).
  int fd() const { return fd_.get(); }

  // It must be removed before it ends; what is due for it then is done at once.
  void add(Sleeper* sleeper) { all_.push_back(sleeper); }
  void remove(Sleeper* sleeper);

  // It is to be woken up by the next strike().
  void ring_later(Sleeper* sleeper) { due_.push_back(sleeper); }
  bool is_due() const { return !due_.empty(); }
  void strike();

 private:
  bool strike_for_all();

  Fd fd_;
  std::vector<Sleeper*> all_;
  std::vector<Sleeper*> due_;
};

}  // namespace aikido::transport
