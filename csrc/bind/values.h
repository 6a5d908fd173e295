// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Plain structs as Python values: they compare, hash, pickle and deep-copy by their
// fields. For each struct, a specialisation of Fields lists its members in order. Under
// Python's lock.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bind/named_types.h"

namespace aikido::bind {

// `static constexpr auto members = std::tuple(&T::first, &T::second);`
template <class T>
struct Fields;

template <class T>
concept HasFields = requires {
  Fields<T>::members;
};

namespace values {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

// Converts a value to nested tuples of numbers, texts and None, which Python can hash.
template <class T>
pybind11::object pack(const T& value) {
  if constexpr (HasFields<T>) {
    return std::apply(
        [&](auto... member) { return pybind11::make_tuple(pack(value.*member)...); },
        Fields<T>::members);
  } else if constexpr (IsVector<T>::value) {
    pybind11::tuple packed(value.size());
    for (size_t i = 0; i < value.size(); ++i) packed[i] = pack(value[i]);
    return packed;
  } else if constexpr (std::is_enum_v<T>) {
    return pybind11::cast(static_cast<int>(value));
  } else {
    return pybind11::cast(value);
  }
}

// Converts the result of pack() back. Throws pybind11::cast_error or value_error for
// anything else.
template <class T>
T unpack(pybind11::handle packed) {
  if constexpr (HasFields<T>) {
    const auto parts = packed.cast<pybind11::tuple>();
    if (parts.size() != std::tuple_size_v<decltype(Fields<T>::members)>)
      throw pybind11::value_error("the pickle is of another version of aikido_torch");
    T value{};
    size_t at = 0;
    std::apply(
        [&](auto... member) {
          (void)std::initializer_list<int>{
              (value.*member =
                   unpack<std::decay_t<decltype(value.*member)>>(parts[at++]),
               0)...};
        },
        Fields<T>::members);
    return value;
  } else if constexpr (IsVector<T>::value) {
    T value;
    for (const auto part : packed.cast<pybind11::tuple>())
      value.push_back(unpack<typename T::value_type>(part));
    return value;
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(packed.cast<int>());
  } else {
    return packed.cast<T>();
  }
}

}  // namespace values

// object.__reduce_ex__ for protocols 0 and 1 would create an object of pybind11's base
// class, which ends the process. Its result for protocol 2 works for all protocols.
inline pybind11::object reduce(const pybind11::object& self, int protocol) {
  const auto of_object = pybind11::module_::import("builtins").attr("object");
  return of_object.attr("__reduce_ex__")(self, protocol < 2 ? 2 : protocol);
}

// Adds __eq__, __hash__, pickling and copying to the class. `check(value)` throws if an
// unpickled value is invalid.
template <class T, class Check>
void make_value(pybind11::class_<T>& type, Check check) {
  namespace py = pybind11;
  type.def(
          "__eq__",
          [](const T& self, const pybind11::object& other) {
            return compare<T>(other, [&](const T& value) {
              return values::pack(self).equal(values::pack(value));
            });
          },
          py::arg("other"), py::pos_only())
      .def("__hash__", [](const T& self) { return py::hash(values::pack(self)); })
      .def("__reduce_ex__", &reduce)
      .def(py::pickle([](const T& self) { return py::tuple(values::pack(self)); },
                      [check](const py::tuple& state) {
                        T value = values::unpack<T>(state);
                        check(value);
                        return value;
                      }));
}

template <class T>
void make_value(pybind11::class_<T>& type) {
  make_value(type, [](const T&) {});
}

}  // namespace aikido::bind
