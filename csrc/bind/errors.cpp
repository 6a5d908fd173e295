// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Table of the engine's failures and the classes of aikido_torch.errors.

#include "bind/errors.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "bind/register.h"
#include "c10d/common/error.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;

const char* class_of(Code code) {
  switch (code) {
    case Code::kRetryLater:
      return "RetryLaterError";
    case Code::kPeerLost:
      return "PeerLostError";
    case Code::kTimedOut:
      return "TimedOutError";
    case Code::kAborted:
      return "AbortedError";
    case Code::kUnsupported:
      return "UnsupportedError";
    case Code::kInvalidArgument:
      return "ConfigError";
    case Code::kProtocol:
      return "ProtocolError";
    case Code::kOk:
    case Code::kInternal:
      break;
  }
  return "InternalError";
}

void translate(std::exception_ptr raised) {
  try {
    if (raised) std::rethrow_exception(raised);
  } catch (const adapter::Error& error) {
    const Status& status = error.status();
    const py::object type =
        py::module_::import("aikido_torch.errors").attr(class_of(status.code()));
    py::dict fields;
    if (status.culprit() != kNoRank) fields["rank"] = status.culprit().value;
    if (!error.operation().empty()) fields["operation"] = error.operation();
    if (error.seq() != 0) fields["sequence_number"] = error.seq();
    const py::object value = type(status.message(), **fields);
    PyErr_SetObject(type.ptr(), value.ptr());
  }
}

}  // namespace

std::exception_ptr as_python_error(const std::exception_ptr& error) {
  const py::gil_scoped_acquire lock;
  try {
    translate(error);
  } catch (...) {
    return error;
  }
  python_error raised;
  raised.persist();
  return std::make_exception_ptr(std::move(raised));
}

void register_errors(py::module_&) {
  py::register_exception_translator(&translate);
}

}  // namespace aikido::bind
