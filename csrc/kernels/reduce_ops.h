// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The operations of the reduction kernels on one number or one vector of them, and
// unaligned access. Note [same bits everywhere] in reduce.h says what min and max do
// with NaN. Part of reduce_impl.h: in an unnamed namespace, compiled once per
// instruction set.

#include <cstddef>
#include <type_traits>

namespace aikido::kernels {
namespace {

using Byte = unsigned char;

// Bytes of the widest vectors of this instruction set.
#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif

template <class T>
T load_unaligned(const Byte* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void store_unaligned(Byte* to, T value) {
  __builtin_memcpy(to, &value, sizeof(T));
}

// Integer arguments of sum and product are unsigned, so that they wrap around.
struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    // Two uint16_t would be promoted to int and could overflow it.
    if constexpr (sizeof(T) < sizeof(unsigned))
      return static_cast<T>(static_cast<unsigned>(a) * static_cast<unsigned>(b));
    else
      return a * b;
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return b < a ? b : a;
    else
      return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return b > a ? b : a;
    else
      return ((b > a) | (b != b)) ? b : a;
  }
};
struct Band {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Bor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Bxor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

}  // namespace
}  // namespace aikido::kernels
