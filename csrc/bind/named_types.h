// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Python objects whose types have a more exact name in signatures than pybind11 would
// give them. `make stubs` writes these names into aikido_torch/_C.pyi. The name is not
// checked at run time: pybind11 checks the base class only.

#include <pybind11/pybind11.h>

#include <concepts>
#include <utility>

namespace aikido::bind {

// Base: a class of pybind11 for Python objects. kName: the type as Python writes it.
template <class Base, const auto& kName>
class Named : public Base {
 public:
  using Base::Base;
  // pybind11::object has no constructor from another object to inherit.
  Named(pybind11::object value) requires std::same_as<Base, pybind11::object>
      : Base(std::move(value)) {}

  static bool check_(pybind11::handle value) {
    if constexpr (std::same_as<Base, pybind11::object>) {
      return value.ptr() != nullptr;
    } else {
      return Base::check_(value);
    }
  }
};

namespace names {

inline constexpr char kBool[] = "bool";
inline constexpr char kText[] = "str";
inline constexpr char kNumber[] = "float";

}  // namespace names

// A bool, or NotImplemented.
using Comparison = Named<pybind11::object, names::kBool>;
// Values that a function checks itself, for an error text of its own.
using AnyText = Named<pybind11::object, names::kText>;
using AnyNumber = Named<pybind11::object, names::kNumber>;

// Result of self == other if `other` has the class T, else NotImplemented.
template <class T, class Equal>
Comparison compare(const pybind11::object& other, Equal equal) {
  if (!pybind11::isinstance<T>(other))
    return Comparison(
        pybind11::reinterpret_borrow<pybind11::object>(Py_NotImplemented));
  return Comparison(pybind11::bool_(equal(other.cast<const T&>())));
}

}  // namespace aikido::bind

namespace pybind11::detail {

template <class Base, const auto& kName>
struct handle_type_name<aikido::bind::Named<Base, kName>> {
  static constexpr auto name = const_name(kName);
};

}  // namespace pybind11::detail
