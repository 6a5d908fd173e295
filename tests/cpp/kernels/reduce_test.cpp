// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/catch.h"
#include "harness/reduce_data.h"
#include "kernels/prefetch.h"

namespace aikido::kernels {
namespace {

using testing::all_dtypes;
using testing::all_ops;
using testing::Bytes;
using testing::element;
using testing::first_difference;
using testing::is_pair_defined;
using testing::random_elements;
using testing::set_element;

constexpr size_t kCounts[] = {0, 1, 7, 63, 64, 65, 1000, 5000};

// The reference: one element at a time, in the widest plain words.
template <class T>
T fold_integer(ReduceOp op, T a, T b) {
  const auto x = static_cast<uint64_t>(a);
  const auto y = static_cast<uint64_t>(b);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return static_cast<T>(x + y);
    case ReduceOp::kProduct:
      return static_cast<T>(x * y);
    case ReduceOp::kMin:
      return a < b ? a : b;
    case ReduceOp::kMax:
      return a < b ? b : a;
    case ReduceOp::kBand:
      return static_cast<T>(x & y);
    case ReduceOp::kBor:
      return static_cast<T>(x | y);
    case ReduceOp::kBxor:
      return static_cast<T>(x ^ y);
  }
  FAIL("no such pair");
  return a;
}

bool fold_bool(ReduceOp op, bool a, bool b) {
  if (op == ReduceOp::kBxor) return a != b;
  if (op == ReduceOp::kSum || op == ReduceOp::kMax || op == ReduceOp::kBor)
    return a || b;
  return a && b;
}

template <class T>
T fold_floating(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kProduct) return a * b;
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (op == ReduceOp::kMin) return b < a ? b : a;
    return b > a ? b : a;
  }
  return a + b;
}

template <class T>
std::complex<T> fold_complex(ReduceOp op, std::complex<T> a, std::complex<T> b) {
  if (op != ReduceOp::kProduct) return a + b;
  const T re = a.real() * b.real();
  const T im = a.real() * b.imag();
  return {re - a.imag() * b.imag(), im + a.imag() * b.real()};
}

template <class T, class Fold>
void reference_as(Fold fold, unsigned char* out,
                  const std::vector<const unsigned char*>& sources, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T acc = element<T>(sources[0], i);
    for (size_t k = 1; k < sources.size(); ++k)
      acc = fold(acc, element<T>(sources[k], i));
    set_element(out, i, acc);
  }
}

// fp16 and bf16: everything in fp32, one rounding at the end.
template <class Widen, class Narrow>
void reference_half(ReduceOp op, Widen widen, Narrow narrow, unsigned char* out,
                    const std::vector<const unsigned char*>& sources, size_t count,
                    double scale) {
  for (size_t i = 0; i < count; ++i) {
    float acc = widen(element<uint16_t>(sources[0], i));
    for (size_t k = 1; k < sources.size(); ++k)
      acc = fold_floating(op, acc, widen(element<uint16_t>(sources[k], i)));
    set_element(out, i, narrow(scale == 1.0 ? acc : acc * static_cast<float>(scale)));
  }
}

template <class T>
void scale_lanes(unsigned char* data, size_t num_lanes, double scale) {
  if (scale == 1.0) return;
  for (size_t i = 0; i < num_lanes; ++i)
    set_element(data, i, element<T>(data, i) * static_cast<T>(scale));
}

Bytes reference(ReduceOp op, DType dtype,
                const std::vector<const unsigned char*>& sources, size_t count,
                double scale) {
  Bytes out(count * size_of(dtype));
  const auto integer = [&]<class T>(T) {
    reference_as<T>([&](T a, T b) { return fold_integer(op, a, b); }, out.data(),
                    sources, count);
    if (op != ReduceOp::kAvg || scale <= 0.0 || scale >= 1.0) return;
    for (size_t i = 0; i < count; ++i) {
      const auto sum = static_cast<int64_t>(element<T>(out.data(), i));
      set_element(out.data(), i, static_cast<T>(sum / std::llround(1.0 / scale)));
    }
  };
  const auto floating = [&]<class T>(T) {
    reference_as<T>([&](T a, T b) { return fold_floating(op, a, b); }, out.data(),
                    sources, count);
    scale_lanes<T>(out.data(), count, scale);
  };
  const auto complex = [&]<class T>(T) {
    using C = std::complex<T>;
    reference_as<C>([&](C a, C b) { return fold_complex(op, a, b); }, out.data(),
                    sources, count);
    scale_lanes<T>(out.data(), 2 * count, scale);
  };
  switch (dtype) {
    case DType::kUint8:
      integer(uint8_t{});
      break;
    case DType::kInt8:
      integer(int8_t{});
      break;
    case DType::kInt16:
      integer(int16_t{});
      break;
    case DType::kInt32:
      integer(int32_t{});
      break;
    case DType::kInt64:
      integer(int64_t{});
      break;
    case DType::kBool:
      for (size_t i = 0; i < count; ++i) {
        bool acc = sources[0][i] != 0;
        for (size_t k = 1; k < sources.size(); ++k)
          acc = fold_bool(op, acc, sources[k][i] != 0);
        out[i] = acc ? 1 : 0;
      }
      break;
    case DType::kFloat16:
      reference_half(op, fp16_to_float, float_to_fp16, out.data(), sources, count,
                     scale);
      break;
    case DType::kBFloat16:
      reference_half(op, bf16_to_float, float_to_bf16, out.data(), sources, count,
                     scale);
      break;
    case DType::kFloat32:
      floating(float{});
      break;
    case DType::kFloat64:
      floating(double{});
      break;
    case DType::kComplex64:
      complex(float{});
      break;
    case DType::kComplex128:
      complex(double{});
      break;
  }
  return out;
}

// Calls visit(op, dtype, set, function) for all that must exist here.
template <class Visit>
void for_each_kernel(Visit visit) {
  for (const InstructionSet set : available_sets())
    for (const DType dtype : all_dtypes())
      for (const ReduceOp op : all_ops()) {
        if (!is_pair_defined(op, dtype)) continue;
        INFO(name_of(op) << " of " << name_of(dtype) << " with " << name_of(set));
        const ReduceFn reduce = find_reduce(op, dtype, set);
        REQUIRE(reduce != nullptr);
        visit(op, dtype, reduce);
      }
}

// Sources that start `offset` bytes past their allocation, between guard bytes.
class Buffers {
 public:
  Buffers(DType dtype, size_t num_sources, size_t count, size_t offset)
      : offset_(offset), bytes_(count * size_of(dtype)) {
    for (size_t k = 0; k < num_sources; ++k) {
      const Bytes data = random_elements(dtype, count, 1000 * count + k);
      stores_.emplace_back(offset + bytes_ + 64, 0xa5);
      if (bytes_ != 0) std::memcpy(stores_[k].data() + offset, data.data(), bytes_);
    }
  }
  unsigned char* at(size_t k) { return stores_[k].data() + offset_; }
  std::vector<const unsigned char*> pointers() {
    std::vector<const unsigned char*> list;
    for (size_t k = 0; k < stores_.size(); ++k) list.push_back(at(k));
    return list;
  }
  bool guards_hold() const {
    for (const Bytes& store : stores_)
      for (size_t i = 0; i < store.size(); ++i)
        if ((i < offset_ || i >= offset_ + bytes_) && store[i] != 0xa5) return false;
    return true;
  }

 private:
  size_t offset_;
  size_t bytes_;
  std::vector<Bytes> stores_;
};

void call(ReduceFn reduce, void* out, const std::vector<const unsigned char*>& sources,
          size_t count, double scale) {
  const std::vector<const void*> list(sources.begin(), sources.end());
  reduce(out, list.data(), list.size(), count, scale);
}

TEST_CASE("kernels exist for exactly the pairs of the table") {
  for (const DType dtype : all_dtypes())
    for (const ReduceOp op : all_ops()) {
      INFO(name_of(op) << " of " << name_of(dtype));
      REQUIRE((find_reduce(op, dtype) != nullptr) == is_pair_defined(op, dtype));
      for (const InstructionSet set : available_sets())
        REQUIRE((find_reduce(op, dtype, set) != nullptr) == is_pair_defined(op, dtype));
    }
}

TEST_CASE("the portable set always exists, and a foreign set has no kernels") {
  const auto sets = available_sets();
  REQUIRE(sets.front() == InstructionSet::kPortable);
  for (const auto set : {InstructionSet::kPortable, InstructionSet::kAvx2,
                         InstructionSet::kAvx512, InstructionSet::kNeon}) {
    const bool is_listed = std::count(sets.begin(), sets.end(), set) == 1;
    const auto function = find_reduce(ReduceOp::kSum, DType::kFloat32, set);
    REQUIRE((function != nullptr) == is_listed);
    REQUIRE(std::string(name_of(set)) != "unknown instruction set");
  }
  // Without asking for one, the last listed is used.
  REQUIRE(find_reduce(ReduceOp::kSum, DType::kFloat32) ==
          find_reduce(ReduceOp::kSum, DType::kFloat32, sets.back()));
}

TEST_CASE("every kernel gives the bits of the naive loop at every count") {
  const size_t num_sources = static_cast<size_t>(GENERATE(1, 2, 3, 6));
  for_each_kernel([&](ReduceOp op, DType dtype, ReduceFn reduce) {
    for (const size_t count : kCounts) {
      Buffers in(dtype, num_sources, count, 0);
      Buffers out(dtype, 1, count, 0);
      call(reduce, out.at(0), in.pointers(), count, 1.0);
      const Bytes expected = reference(op, dtype, in.pointers(), count, 1.0);
      INFO(num_sources << " sources of " << count);
      REQUIRE(first_difference(dtype, out.at(0), expected.data(), count) == -1);
      REQUIRE(out.guards_hold());
    }
  });
}

TEST_CASE("every kernel works at unaligned addresses") {
  const size_t offset = static_cast<size_t>(GENERATE(1, 3));
  for_each_kernel([&](ReduceOp op, DType dtype, ReduceFn reduce) {
    for (const size_t count : {size_t{65}, size_t{1000}}) {
      Buffers in(dtype, 3, count, offset);
      Buffers out(dtype, 1, count, offset + 4);
      call(reduce, out.at(0), in.pointers(), count, 1.0);
      const Bytes expected = reference(op, dtype, in.pointers(), count, 1.0);
      REQUIRE(first_difference(dtype, out.at(0), expected.data(), count) == -1);
      REQUIRE(out.guards_hold());
    }
  });
}

TEST_CASE("every kernel works if only one address is unaligned") {
  const bool is_result = GENERATE(false, true);
  for_each_kernel([&](ReduceOp op, DType dtype, ReduceFn reduce) {
    for (const size_t num_sources : {2, 3, 4, 8}) {
      const size_t count = 1000;
      Buffers in(dtype, num_sources, count, 0);
      Buffers odd(dtype, 1, count, 4);
      Buffers out(dtype, 1, count, is_result ? 4 : 0);
      auto sources = in.pointers();
      if (!is_result) sources.back() = odd.at(0);
      call(reduce, out.at(0), sources, count, 1.0);
      const Bytes expected = reference(op, dtype, sources, count, 1.0);
      INFO(num_sources << " sources");
      REQUIRE(first_difference(dtype, out.at(0), expected.data(), count) == -1);
      REQUIRE(out.guards_hold());
    }
  });
}

TEST_CASE("the result may take the place of any source") {
  const size_t num_sources = static_cast<size_t>(GENERATE(1, 2, 4));
  for_each_kernel([&](ReduceOp op, DType dtype, ReduceFn reduce) {
    const size_t count = 1100;  // more than one block of 4 byte accumulators
    for (size_t j = 0; j < num_sources; ++j) {
      Buffers in(dtype, num_sources, count, 0);
      const Bytes expected = reference(op, dtype, in.pointers(), count, 1.0);
      call(reduce, in.at(j), in.pointers(), count, 1.0);
      INFO("into source " << j << " of " << num_sources);
      REQUIRE(first_difference(dtype, in.at(j), expected.data(), count) == -1);
      REQUIRE(in.guards_hold());
    }
  });
}

TEST_CASE("any number of sources is folded in the order given") {
  const size_t num_sources = static_cast<size_t>(GENERATE(4, 5, 7, 8, 9, 12, 16, 23));
  const double scale = GENERATE(1.0, 1.0 / 3.0);
  for_each_kernel([&](ReduceOp op, DType dtype, ReduceFn reduce) {
    const size_t count = 1100;  // more than one block of 4 byte accumulators
    Buffers in(dtype, num_sources, count, 0);
    const Bytes expected = reference(op, dtype, in.pointers(), count, scale);
    unsigned char* const out = in.at(num_sources / 2);
    call(reduce, out, in.pointers(), count, scale);
    INFO(num_sources << " sources");
    REQUIRE(first_difference(dtype, out, expected.data(), count) == -1);
    REQUIRE(in.guards_hold());
  });
}

TEST_CASE("sources outside the L1 cache, or outside all caches, give the same bits") {
  const size_t kib = static_cast<size_t>(GENERATE(40, 130));
  const size_t num_sources = static_cast<size_t>(GENERATE(2, 3, 4, 8));
  const double scale = GENERATE(1.0, 1.0 / 3.0);
  const struct Restored {
    bool suits = prefetches;
    ~Restored() { prefetches = suits; }
  } restored;
  prefetches = GENERATE(false, true);
  for_each_kernel([&](ReduceOp op, DType dtype, ReduceFn reduce) {
    if (op != ReduceOp::kSum && op != ReduceOp::kMax) return;
    const size_t count = (kib << 10) / size_of(dtype) + 13;
    Buffers in(dtype, num_sources, count, 1);
    const Bytes expected = reference(op, dtype, in.pointers(), count, scale);
    call(reduce, in.at(1), in.pointers(), count, scale);
    INFO(num_sources << " sources of " << kib << " KiB");
    REQUIRE(first_difference(dtype, in.at(1), expected.data(), count) == -1);
    REQUIRE(in.guards_hold());
  });
}

TEST_CASE("the same source may be given twice") {
  for_each_kernel([&](ReduceOp op, DType dtype, ReduceFn reduce) {
    Buffers in(dtype, 1, 100, 0);
    const std::vector<const unsigned char*> twice = {in.at(0), in.at(0)};
    const Bytes expected = reference(op, dtype, twice, 100, 1.0);
    call(reduce, in.at(0), twice, 100, 1.0);
    REQUIRE(first_difference(dtype, in.at(0), expected.data(), 100) == -1);
  });
}

TEST_CASE("the scale multiplies floating results once, and divides means of integers") {
  const double scale = GENERATE(1.0 / 3.0, 0.25, -2.0, 0.0);
  const size_t num_sources = static_cast<size_t>(GENERATE(1, 2, 3));
  for_each_kernel([&](ReduceOp op, DType dtype, ReduceFn reduce) {
    const size_t count = 1000;
    Buffers in(dtype, num_sources, count, 0);
    Buffers out(dtype, 1, count, 0);
    call(reduce, out.at(0), in.pointers(), count, scale);
    const Bytes expected = reference(op, dtype, in.pointers(), count, scale);
    INFO(num_sources << " sources, scale " << scale);
    REQUIRE(first_difference(dtype, out.at(0), expected.data(), count) == -1);
  });
}

template <class T>
T reduce_values(ReduceOp op, DType dtype, InstructionSet set, std::vector<T> values,
                double scale = 1.0) {
  // The value in question sits in a full vector of the same, and the last is returned.
  constexpr size_t kCopies = 67;
  std::vector<std::vector<T>> rows;
  std::vector<const void*> sources;
  for (const T value : values) rows.emplace_back(kCopies, value);
  for (const auto& row : rows) sources.push_back(row.data());
  std::vector<T> out(kCopies);
  find_reduce(op, dtype, set)(out.data(), sources.data(), sources.size(), kCopies,
                              scale);
  if (std::memcmp(&out.front(), &out.back(), sizeof(T)) != 0)
    FAIL("vector body and tail differ");
  return out.front();
}

TEST_CASE("the mean of integers is truncated towards zero") {
  for (const InstructionSet set : available_sets()) {
    INFO(name_of(set));
    const auto mean = [&]<class T>(DType dtype, std::vector<T> values, int32_t n) {
      return reduce_values<T>(ReduceOp::kAvg, dtype, set, std::move(values), 1.0 / n);
    };
    CHECK(mean(DType::kInt32, std::vector<int32_t>{-2, -2, -1}, 3) == -1);
    CHECK(mean(DType::kInt64, std::vector<int64_t>{2, 2, 1}, 3) == 1);
    CHECK(mean(DType::kInt16, std::vector<int16_t>{-7, 0}, 2) == -3);
    CHECK(mean(DType::kUint8, std::vector<uint8_t>{200, 50}, 2) == 125);
    // The sum wraps before the division.
    CHECK(mean(DType::kUint8, std::vector<uint8_t>{200, 100}, 2) == 22);
    CHECK(mean(DType::kInt8, std::vector<int8_t>{100, 100}, 2) == -28);
    // More contributors than the type has numbers.
    CHECK(mean(DType::kInt8, std::vector<int8_t>{100, 0}, 200) == 0);
    CHECK(mean(DType::kInt64, std::vector<int64_t>{INT64_MAX, 0}, 1023) ==
          INT64_MAX / 1023);
  }
}

TEST_CASE("sources are folded strictly in the order given") {
  for (const InstructionSet set : available_sets()) {
    const auto sum = [&](std::vector<float> v) {
      return reduce_values(ReduceOp::kSum, DType::kFloat32, set, std::move(v));
    };
    // One is lost beside 2^24 unless the two large ones have met before.
    REQUIRE(sum({16777216.0f, 1.0f, -16777216.0f}) == 0.0f);
    REQUIRE(sum({16777216.0f, -16777216.0f, 1.0f}) == 1.0f);
    REQUIRE(sum({1.0f, 16777216.0f, -16777216.0f, 1.0f}) == 1.0f);
    REQUIRE(sum({1.0f, 1.0f, 16777216.0f, -16777216.0f, 1.0f}) == 3.0f);
  }
}

TEST_CASE("the complex product is not contracted and scales both parts") {
  using C = std::complex<float>;
  for (const InstructionSet set : available_sets()) {
    // With fused multiply-add the real part would keep the rounding error of c * c.
    const float c = 1.0f + std::ldexp(1.0f, -23);
    const C value = reduce_values(ReduceOp::kProduct, DType::kComplex64, set,
                                  std::vector<C>{{c, c}, {c, c}});
    REQUIRE(value.real() == 0.0f);
    const C scaled = reduce_values(ReduceOp::kProduct, DType::kComplex64, set,
                                   std::vector<C>{{1, 2}, {3, 4}}, 0.5);
    REQUIRE(scaled == C(-2.5f, 5.0f));
  }
}

TEST_CASE("fp16 sums in fp32 and rounds once") {
  for (const InstructionSet set : available_sets()) {
    const auto sum = [&](std::vector<float> values, double scale) {
      std::vector<uint16_t> halves;
      for (const float v : values) halves.push_back(float_to_fp16(v));
      return fp16_to_float(
          reduce_values(ReduceOp::kSum, DType::kFloat16, set, halves, scale));
    };
    // Each 0.5 alone would be lost beside 2048 in fp16.
    REQUIRE(sum({2048.0f, 0.5f, 0.5f, 0.5f, 0.5f}, 1.0) == 2050.0f);
    // The sum overflows fp16, its mean does not.
    REQUIRE(sum({60000.0f, 60000.0f}, 0.5) == 60000.0f);
  }
}

TEST_CASE("scale one changes no bit of a single source, NaN payloads included") {
  for (const InstructionSet set : available_sets()) {
    const uint32_t signalling = 0x7f800001u;
    REQUIRE(reduce_values(ReduceOp::kSum, DType::kFloat32, set,
                          std::vector<uint32_t>{signalling}) == signalling);
    for (const uint16_t half : {uint16_t{0x7c01}, uint16_t{0xfdff}, uint16_t{0x0001}}) {
      REQUIRE(reduce_values(ReduceOp::kSum, DType::kFloat16, set,
                            std::vector<uint16_t>{half}) == half);
      REQUIRE(reduce_values(ReduceOp::kSum, DType::kBFloat16, set,
                            std::vector<uint16_t>{half}) == half);
    }
  }
}

TEST_CASE("NaN from any source reaches the result of every floating operation") {
  for_each_kernel([&](ReduceOp, DType dtype, ReduceFn reduce) {
    if (!is_floating(dtype)) return;
    for (const size_t num_sources : {size_t{1}, size_t{2}, size_t{4}})
      for (size_t j = 0; j < num_sources; ++j) {
        const size_t count = 70;
        Buffers in(dtype, num_sources, count, 0);
        // All bits set is a NaN in each of the formats.
        std::memset(in.at(j) + 5 * size_of(dtype), 0xff, size_of(dtype));
        std::memset(in.at(j) + 69 * size_of(dtype), 0xff, size_of(dtype));
        Buffers out(dtype, 1, count, 0);
        call(reduce, out.at(0), in.pointers(), count, 1.0);
        const size_t lanes = is_complex(dtype) ? 2 : 1;
        INFO("source " << j << " of " << num_sources);
        for (size_t i = 0; i < count * lanes; ++i) {
          const bool expected = i / lanes == 5 || i / lanes == 69;
          if (std::isnan(testing::lane(dtype, out.at(0), i)) != expected)
            FAIL("lane " << i);
        }
      }
  });
}

TEST_CASE("min and max keep the earlier of two equal zeros and know infinities") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const InstructionSet set : available_sets()) {
    const auto get = [&](ReduceOp op, float a, float b) {
      return reduce_values(op, DType::kFloat32, set, std::vector<float>{a, b});
    };
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      REQUIRE(std::signbit(get(op, -0.0f, 0.0f)));
      REQUIRE(!std::signbit(get(op, 0.0f, -0.0f)));
    }
    REQUIRE(get(ReduceOp::kMin, inf, -inf) == -inf);
    REQUIRE(get(ReduceOp::kMax, 1.0f, inf) == inf);
  }
}

TEST_CASE("integers wrap around on overflow") {
  for (const InstructionSet set : available_sets()) {
    const auto check = [&]<class T>(DType dtype, T) {
      const T top = std::numeric_limits<T>::max();
      const T low = std::numeric_limits<T>::min();
      const std::vector<T> values = {top, 1};
      REQUIRE(reduce_values(ReduceOp::kSum, dtype, set, values) == low);
      // (2^n - 1)^2 is 1 modulo any higher power, for signed and unsigned.
      const auto square =
          reduce_values(ReduceOp::kProduct, dtype, set, std::vector<T>{top, top});
      REQUIRE(square == 1);
    };
    check(DType::kUint8, uint8_t{});
    check(DType::kInt8, int8_t{});
    check(DType::kInt16, int16_t{});
    check(DType::kInt32, int32_t{});
    check(DType::kInt64, int64_t{});
  }
}

TEST_CASE("any non-zero byte is true and results are zero or one") {
  for (const InstructionSet set : available_sets()) {
    const auto get = [&](ReduceOp op, std::vector<uint8_t> v) {
      return int{reduce_values(op, DType::kBool, set, std::move(v))};
    };
    REQUIRE(get(ReduceOp::kSum, {2}) == 1);
    REQUIRE(get(ReduceOp::kBand, {1, 2}) == 1);  // as bit patterns they share nothing
    REQUIRE(get(ReduceOp::kProduct, {16, 16}) == 1);
    REQUIRE(get(ReduceOp::kSum, {128, 128}) == 1);
    REQUIRE(get(ReduceOp::kBxor, {1, 2}) == 0);
    REQUIRE(get(ReduceOp::kBxor, {4, 2, 1}) == 1);
    REQUIRE(get(ReduceOp::kMin, {3, 0}) == 0);
    REQUIRE(get(ReduceOp::kMax, {0, 0}) == 0);
  }
}

TEST_CASE("with count zero no pointer is read") {
  const void* sources[2] = {nullptr, nullptr};
  for_each_kernel(
      [&](ReduceOp, DType, ReduceFn reduce) { reduce(nullptr, sources, 2, 0, 0.5); });
}

}  // namespace
}  // namespace aikido::kernels
