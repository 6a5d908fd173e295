// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// AIKIDO_IS_SANITIZED: the address or thread sanitizer is in. It needs descriptors of
// its own, and ends the process where memory cannot be had.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AIKIDO_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AIKIDO_IS_SANITIZED 1
#endif
#endif
