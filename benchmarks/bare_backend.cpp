// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// A torch backend that only hands over the bytes of a message, in a cache line of
// memory that ranks 0 and 1 share. With it least_exchange.py measures the time of torch
// and Python for a call, which no backend can avoid. A waiting rank does not sleep,
// messages are not matched, and a message must have arrived before the next one is
// sent. The backend reports the end of each call to torch's flight recorder if the
// recorder asks for it. Otherwise the recorder would show the calls as unfinished.

#include <fcntl.h>
#include <pybind11/pybind11.h>
#include <sched.h>
#include <sys/mman.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// An older torch has no completion hooks.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define HAS_COMPLETION_HOOKS
#endif

namespace {

using Clock = std::chrono::steady_clock;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;

constexpr size_t kMostBytes = 56;
constexpr uint32_t kLooks = 4096;  // then other threads may have the core
constexpr auto kLimit = std::chrono::seconds(30);

// The last message for one rank, and the number of messages so far.
struct alignas(64) Line {
  std::atomic<uint64_t> number;
  std::byte data[kMostBytes];
};
static_assert(sizeof(Line) == 64);

class Hooks {
 public:
#ifdef HAS_COMPLETION_HOOKS
  void add(int64_t id, ::c10d::CompletionHook hook) {
    hooks_[id] = std::move(hook);
  }
  void remove(int64_t id) {
    hooks_.erase(id);
  }
  void tell(uint64_t key) const {
    for (const auto& [id, hook] : hooks_) hook({key, std::nullopt});
  }

 private:
  std::map<int64_t, ::c10d::CompletionHook> hooks_;
#else
  void tell(uint64_t) const {}
#endif
};

class Done : public ::c10d::Work {
 public:
  explicit Done(uint64_t key) : key_(key) {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  virtual uint64_t getCompletionKey() const { return key_; }

 private:
  const uint64_t key_;
};

class Receipt final : public Done {
 public:
  Receipt(uint64_t key, const Line& line, uint64_t number, at::Tensor into,
          std::shared_ptr<Hooks> hooks)
      : Done(key),
        line_(line),
        number_(number),
        into_(std::move(into)),
        hooks_(std::move(hooks)) {}
  bool isCompleted() override { return line_.number.load() >= number_; }
  bool wait(std::chrono::milliseconds) override {
    const auto until = Clock::now() + kLimit;
    for (uint32_t i = 1; line_.number.load(std::memory_order_acquire) < number_; ++i) {
      if (i % kLooks != 0) continue;
      TORCH_CHECK(Clock::now() < until, "no message has come for 30 s");
      ::sched_yield();
    }
    std::memcpy(into_.mutable_data_ptr(), line_.data, into_.nbytes());
    hooks_->tell(getCompletionKey());
    return true;
  }

 private:
  const Line& line_;
  const uint64_t number_;
  const at::Tensor into_;
  const std::shared_ptr<Hooks> hooks_;
};

class BareBackend final : public ::c10d::Backend {
 public:
  BareBackend(int rank, int size, Line* lines)
      : ::c10d::Backend(rank, size), lines_(lines) {}
  const std::string getBackendName() const override { return "bare"; }
  WorkPtr send(std::vector<at::Tensor>& tensors, int to, int) override {
    const at::Tensor& tensor = tensors[0];
    TORCH_CHECK(tensor.nbytes() <= kMostBytes, "a message has at most 56 bytes here");
    Line& line = lines_[to];
    std::memcpy(line.data, tensor.const_data_ptr(), tensor.nbytes());
    line.number.store(++num_sent_, std::memory_order_release);
    const uint64_t key = ++last_key_;
    hooks_->tell(key);
    return c10::make_intrusive<Done>(key);
  }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int, int) override {
    return c10::make_intrusive<Receipt>(++last_key_, lines_[rank_], ++num_wanted_,
                                        tensors[0], hooks_);
  }
  void shutdown() override {}
#ifdef HAS_COMPLETION_HOOKS
  bool supportsCompletionHooks() const override {
    return true;
  }
  void registerCompletionHook(int64_t id, ::c10d::CompletionHook hook) override {
    hooks_->add(id, std::move(hook));
  }
  void unregisterCompletionHook(int64_t id) override {
    hooks_->remove(id);
  }
#endif

 private:
  Line* const lines_;
  const std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  uint64_t num_sent_ = 0, num_wanted_ = 0, last_key_ = 0;
};

// Makes a backend in the shared memory `name`. The first rank makes this memory, and
// the other ranks come later.
c10::intrusive_ptr<::c10d::Backend> make(int rank, int size, const std::string& name) {
  constexpr size_t kBytes = 2 * sizeof(Line);
  const int fd =
      ::shm_open(name.c_str(), O_RDWR | (rank == 0 ? O_CREAT | O_EXCL : 0), 0600);
  TORCH_CHECK(fd >= 0, "rank ", rank, " can share no memory with the others");
  void* base = MAP_FAILED;
  if (rank != 0 || ::ftruncate(fd, kBytes) == 0)
    base = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  TORCH_CHECK(base != MAP_FAILED, "rank ", rank, " can share no memory with others");
  return c10::make_intrusive<BareBackend>(rank, size, static_cast<Line*>(base));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("make", &make);
  m.def("unlink", [](const std::string& name) { ::shm_unlink(name.c_str()); });
}
