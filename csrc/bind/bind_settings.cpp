// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <pybind11/stl.h>

#include <cstdlib>

#include "base/settings.h"
#include "bind/register.h"
#include "c10d/common/error.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;

std::optional<std::string> from_environment(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  if (text == nullptr) return std::nullopt;
  return std::string(text);
}

py::object to_python(const SettingSpec& spec, const Settings& settings) {
  const std::string text = spec.value(settings);
  return spec.is_number() ? py::object(py::int_(std::stoll(text)))
                          : py::object(py::str(text));
}

py::list table() {
  py::list rows;
  for (const SettingSpec& spec : settings_table()) {
    py::dict row;
    row["name"] = spec.name;
    row["option"] = spec.option();
    row["variable"] = spec.variable();
    row["default"] = to_python(spec, Settings{});
    row["minimum"] = spec.is_number() ? py::object(py::int_(spec.minimum)) : py::none();
    row["maximum"] = spec.is_number() ? py::object(py::int_(spec.maximum)) : py::none();
    row["range"] = spec.range();
    row["agreed"] = spec.is_agreed;
    row["help"] = spec.help;
    rows.append(row);
  }
  return rows;
}

py::dict resolve(const std::map<std::string, std::string>& options) {
  auto resolved = resolve_settings(options, from_environment);
  adapter::raise_if_failed(resolved.status());
  py::dict values;
  for (const SettingSpec& spec : settings_table()) {
    constexpr const char* kSources[] = {"default", "environment", "option"};
    const auto source = static_cast<size_t>(resolved->sources.at(spec.option()));
    values[spec.option().c_str()] =
        py::make_tuple(to_python(spec, resolved->values), kSources[source]);
  }
  return values;
}

}  // namespace

void register_settings(py::module_& m) {
  m.def("settings_table", &table,
        "Every setting: name, option, variable, default, range.");
  m.def(
      "resolve_settings", &resolve, py::arg("options"),
      "Value and source of every setting, given options as text. Raises ConfigError.");
}

}  // namespace aikido::bind
