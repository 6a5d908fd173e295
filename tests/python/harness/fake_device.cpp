// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// A fake torch device (PrivateUse1) in host memory, for machines without a GPU. It has
// two devices with events and streams; a stream is a thread. Freed memory is poisoned
// as soon as the rules of torch's CUDA allocators allow its reuse. Tests can request
// faults. A copy from or to pinned memory is only queued; a copy from or to other host
// memory waits, as with CUDA. Other processes can reach the memory (fake_ipc.cpp).

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <torch/library.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "fake_device.h"

namespace {

constexpr c10::DeviceType kFake = c10::DeviceType::PrivateUse1;
constexpr int kNumDevices = 2;
constexpr int kNumStreams = 8;  // of each device; the first is the default stream
constexpr int kPoison = 0xdd;   // content of freed memory

struct Faults {
  std::atomic<int64_t> allocations{0}, pinned{0};  // the next n fail
  std::atomic<int64_t> copies_down{0}, copies_up{0};
  std::atomic<int64_t> copies_before_fault{0};  // the next n copies succeed
  std::atomic<int64_t> copy_ms{0};              // duration of each copy
  std::atomic<int64_t> waiting_copies{0};  // copies that a host thread had to wait for
  std::atomic<int64_t> uses_of_freed_memory{0};
};
Faults faults;

// Completed copies in order: d(own) to the host, u(p), or s(ame).
std::mutex made_mutex;
std::string made;

void note_made(char kind) {
  const std::lock_guard lock(made_mutex);
  made += kind;
}

class Stream {
 public:
  Stream() {
    std::thread([this] { loop(); }).detach();
  }
  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ++num_pushed_;
    changed_.notify_all();
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, until = num_pushed_] { return num_done_ >= until; });
  }
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return num_done_ == num_pushed_;
  }
  std::atomic<bool> is_capturing{false};
  std::atomic<bool> has_failed{false};  // cleared by the next event

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      ++num_done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t num_pushed_ = 0, num_done_ = 0;
};

// Never destroyed: the threads of the streams end with the process.
Stream& stream_of(const c10::Stream& stream) {
  static auto* all = new std::array<std::array<Stream, kNumStreams>, kNumDevices>;
  return (*all)[static_cast<size_t>(stream.device_index())]
               [static_cast<size_t>(stream.id())];
}

c10::Stream stream_at(c10::DeviceIndex device, int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kFake, device), id);
}

class Event {
 public:
  void record(Stream& stream) {
    const std::lock_guard lock(mutex_);
    stream.push([this, version = ++recorded_, &stream] {
      const std::lock_guard inner(mutex_);
      passed_ = version;
      has_failed_ = stream.has_failed.exchange(false);
      changed_.notify_all();
    });
  }
  bool query() {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!has_failed_, "fake device: an asynchronous copy has failed");
    return passed_ >= recorded_;
  }
  uint64_t recorded() {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  void wait_for(uint64_t version) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return passed_ >= version; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t recorded_ = 0, passed_ = 0;
  bool has_failed_ = false;
};
using EventPtr = std::shared_ptr<Event>;

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<int64_t, kNumDevices> current_streams{};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kFake; }
  c10::Device getDevice() const override { return {kFake, current_device}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) current_device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    setDevice(device);
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kNumDevices; }
  c10::Stream getStream(c10::Device device) const override {
    const auto index = device.has_index() ? device.index() : current_device;
    return stream_at(index, current_streams[static_cast<size_t>(index)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_at(device.index(), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<int64_t> next{0};
    return stream_at(device.index(), 1 + next++ % (kNumStreams - 1));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_streams[static_cast<size_t>(stream.device_index())] = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return stream_of(stream).is_idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    stream_of(stream).synchronize();
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    for (int64_t id = 0; id < kNumStreams; ++id)
      stream_of(stream_at(device, id)).synchronize();
  }
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return stream_of(stream).is_capturing;
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new EventPtr(std::make_shared<Event>());
    // The stream holds the event, because the caller may destroy it before it is
    // reached.
    const EventPtr known = *static_cast<EventPtr*>(*event);
    known->record(stream_of(stream));
    stream_of(stream).push([known] {});
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const EventPtr known = *static_cast<EventPtr*>(event);
    stream_of(stream).push(
        [known, version = known->recorded()] { known->wait_for(version); });
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || (*static_cast<EventPtr*>(event))->query();
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    const EventPtr known = *static_cast<EventPtr*>(event);
    known->wait_for(known->recorded());
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<EventPtr*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data,
                             const c10::Stream& stream) const override;
};

// All device memory of this process is in one file, so that other processes can map it.
struct Arena {
  static constexpr size_t kBytes = size_t{1} << 36;  // of address space
  const int fd = ::memfd_create("fake device", 0);
  std::byte* const base = static_cast<std::byte*>(
      ::ftruncate(fd, kBytes) == 0 ? ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_NORESERVE, fd, 0)
                                   : MAP_FAILED);
  std::atomic<size_t> used{0};
};
Arena& arena() {
  static auto* arena = new Arena;
  return *arena;
}
void* take_from_arena(size_t bytes) {
  return arena().base + arena().used.fetch_add((bytes + 64) / 64 * 64);
}

// Blocks of memory and the streams that use them: the stream of the allocation, and the
// streams that were noted. A freed block is gone after all of them have passed the
// free.
class Memory {
 public:
  void* take(size_t bytes, std::optional<c10::Stream> own) {
    void* data = own ? take_from_arena(bytes) : std::malloc(std::max<size_t>(1, bytes));
    std::memset(data, kPoison, bytes);
    const std::lock_guard lock(mutex_);
    blocks_[data] = {bytes, own, {}};
    return data;
  }
  void note(const void* data, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    const auto block = find(blocks_, data);
    if (block != blocks_.end()) block->second.users.push_back(stream);
  }
  bool has(const void* data) {
    const std::lock_guard lock(mutex_);
    return find(blocks_, data) != blocks_.end();
  }
  // True if the block was freed and all its streams have passed the free.
  bool is_gone(const void* data) {
    const std::lock_guard lock(mutex_);
    return find(gone_, data) != gone_.end();
  }
  void free(void* data) {
    Block block;
    {
      const std::lock_guard lock(mutex_);
      block = blocks_.at(data);
      blocks_.erase(data);
    }
    // The last stream that passes the free poisons the block. The memory is never
    // returned, so that a late write cannot damage another block.
    if (block.own) block.users.push_back(*block.own);
    auto last =
        std::shared_ptr<void>(nullptr, [this, data, bytes = block.bytes](void*) {
          std::memset(data, kPoison, bytes);
          const std::lock_guard lock(mutex_);
          gone_[data] = {bytes, std::nullopt, {}};
        });
    for (const c10::Stream& user : block.users) stream_of(user).push([last] {});
  }

 private:
  struct Block {
    size_t bytes = 0;
    std::optional<c10::Stream> own;
    std::vector<c10::Stream> users;
  };
  using Blocks = std::map<const void*, Block>;
  static Blocks::iterator find(Blocks& blocks, const void* data) {
    auto next = blocks.upper_bound(data);
    if (next == blocks.begin()) return blocks.end();
    --next;
    const auto* begin = static_cast<const char*>(next->first);
    const bool is_in = static_cast<const char*>(data) < begin + next->second.bytes;
    return is_in ? next : blocks.end();
  }
  std::mutex mutex_;
  Blocks blocks_, gone_;
};
Memory& device_memory() {
  static auto* memory = new Memory;
  return *memory;
}
Memory& pinned_memory() {
  static auto* memory = new Memory;
  return *memory;
}

void Guard::recordDataPtrOnStream(const c10::DataPtr& data,
                                  const c10::Stream& stream) const {
  device_memory().note(data.get(), stream);
}

using fake::is_due;

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (is_due(faults.allocations))
      throw c10::OutOfMemoryError({"", "", 0}, "fake device: out of memory");
    const c10::Device device(kFake, current_device);
    void* data = device_memory().take(bytes, Guard().getStream(device));
    return {data, data, [](void* d) { device_memory().free(d); }, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  // Called by torch for copy-on-write storage.
  void copy_data(void* to, const void* from, size_t bytes) const override {
    Guard().synchronizeDevice(current_device);
    std::memcpy(to, from, bytes);
  }
};
DeviceAllocator device_allocator;

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (is_due(faults.pinned))
      throw c10::OutOfMemoryError({"", "", 0}, "fake device: no pinned memory");
    void* data = pinned_memory().take(bytes, std::nullopt);
    return {data, data, [](void* d) { pinned_memory().free(d); }, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false); }
};
PinnedAllocator pinned_allocator;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* data) const override {
    return pinned_memory().has(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return &pinned_allocator;
  }
};

// ---- operators ----

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(kFake, current_device)));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &device_allocator,
                                   kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(kFake, current_device)));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &device_allocator,
      kKeys, c10::dtype_or_default(dtype));
}

using fake::on_host;

c10::Device device_of(const at::Tensor& a, const at::Tensor& b) {
  return a.device().type() == kFake ? a.device() : b.device();
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const c10::Device device = device_of(from, to);
  const c10::Stream stream = Guard().getStream(device);
  const at::Tensor& other = from.device().type() == kFake ? to : from;
  const bool is_down = to.is_cpu(), is_up = from.is_cpu();
  const bool is_pinned = pinned_memory().has(other.data_ptr());
  if (is_pinned) pinned_memory().note(other.data_ptr(), stream);
  const bool is_spared = is_due(faults.copies_before_fault);
  const bool fails = !is_spared && is_down && is_due(faults.copies_down);
  TORCH_CHECK(is_spared || !is_up || !is_due(faults.copies_up),
              "fake device: it takes no copy");
  stream_of(stream).push([=, from = on_host(from), to = on_host(to)] {
    std::this_thread::sleep_for(std::chrono::milliseconds(faults.copy_ms));
    if (fails) {
      stream_of(stream).has_failed = true;
    } else {
      for (const void* used : {from.data_ptr(), to.data_ptr()})
        if (device_memory().is_gone(used) || pinned_memory().is_gone(used))
          ++faults.uses_of_freed_memory;
      to.copy_(from);
      note_made(is_down ? 'd' : is_up ? 'u' : 's');
    }
  });
  if ((is_down || is_up) && !(non_blocking && is_pinned)) {
    ++faults.waiting_copies;
    stream_of(stream).synchronize();
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from, to, false);
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  stream_of(Guard().getStream(self.device())).push([to = on_host(self), value] {
    to.fill_(value);
  });
  return self;
}

void fallback(const c10::OperatorHandle& op, c10::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("fill_.Scalar", fill);
  m.impl("as_strided", [](const at::Tensor& self, at::IntArrayRef size,
                          at::IntArrayRef stride, std::optional<int64_t> offset) {
    return at::native::as_strided_tensorimpl(self, size, stride, offset);
  });
  m.impl("view", [](const at::Tensor& self, at::IntArrayRef size) {
    return at::native::view(self, size);
  });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// ---- requests of tests ----

c10::Stream current() {
  return Guard().getStream({kFake, current_device});
}

TORCH_LIBRARY(fake, m) {
  // The current stream does nothing for `ms` milliseconds.
  m.def("keep_busy(int ms) -> ()", [](int64_t ms) {
    stream_of(current()).push(
        [ms] { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
  });
  m.def("use_stream(int id) -> int", [](int64_t id) {
    return Guard().exchangeStream(stream_at(current_device, id)).id();
  });
  m.def("use_device(int index) -> ()",
        [](int64_t index) { current_device = static_cast<c10::DeviceIndex>(index); });
  m.def("is_idle() -> bool", [] { return stream_of(current()).is_idle(); });
  m.def("synchronize() -> ()", [] {
    for (c10::DeviceIndex d = 0; d < kNumDevices; ++d) Guard().synchronizeDevice(d);
  });
  m.def("capture(bool on) -> ()",
        [](bool on) { stream_of(current()).is_capturing = on; });
  m.def("set(str name, int value) -> ()", [](std::string name, int64_t value) {
    std::map<std::string, std::atomic<int64_t>*>{
        {"allocations", &faults.allocations},
        {"pinned", &faults.pinned},
        {"copies_down", &faults.copies_down},
        {"copies_up", &faults.copies_up},
        {"copies_before_fault", &faults.copies_before_fault},
        {"copy_ms", &faults.copy_ms},
        {"shares", &fake::ipc_faults().shares},
        {"opens", &fake::ipc_faults().opens},
        {"kernels", &fake::ipc_faults().kernels},
        {"kernel_ms", &fake::ipc_faults().kernel_ms}}
        .at(name)
        ->store(value);
  });
  m.def("waiting_copies() -> int", [] { return faults.waiting_copies.load(); });
  m.def("place_of(Tensor tensor) -> int", [](const at::Tensor& tensor) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.data_ptr()));
  });
  m.def("is_gone(int place) -> bool", [](int64_t place) {
    return device_memory().is_gone(reinterpret_cast<const void*>(place));
  });
  m.def("uses_of_freed_memory() -> int",
        [] { return faults.uses_of_freed_memory.load(); });
  m.def("copies() -> str", [] {
    const std::lock_guard lock(made_mutex);
    return std::exchange(made, {});
  });
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

[[maybe_unused]] const bool is_registered = [] {
  c10::SetAllocator(kFake, &device_allocator);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

void fake::enqueue(const c10::Stream& stream, std::function<void()> task) {
  stream_of(stream).push(std::move(task));
}

void fake::fail(const c10::Stream& stream) {
  stream_of(stream).has_failed = true;
}

bool fake::is_due(std::atomic<int64_t>& fault) {
  int64_t left = fault;
  while (left > 0 && !fault.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

fake::Place fake::place_of(const void* data) {
  return {::getpid(), arena().fd,
          static_cast<size_t>(static_cast<const std::byte*>(data) - arena().base)};
}

void* fake::open(const Place& place) {
  static std::mutex mutex;
  static std::map<pid_t, std::byte*> bases;  // guarded by mutex
  const std::lock_guard lock(mutex);
  auto it = bases.find(place.process);
  if (it == bases.end()) {
    const std::string file =
        "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.fd);
    const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    TORCH_CHECK(fd >= 0, "fake device: no process ", place.process);
    void* base = ::mmap(nullptr, Arena::kBytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_NORESERVE, fd, 0);
    ::close(fd);
    it = bases.emplace(place.process, static_cast<std::byte*>(base)).first;
  }
  return it->second + place.offset;
}

at::Tensor fake::on_host(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).pinned_memory(false));
}
