// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// AIKIDO_IS_SANITIZED: the program has the address or thread sanitizer. A sanitizer
// needs some descriptors, and ends the process if it gets no memory.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AIKIDO_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AIKIDO_IS_SANITIZED 1
#endif
#endif
