# Kernel sources and their flags, for csrc/CMakeLists.txt (flags of source files hold
# in the including directory only). Always optimised: a plain loop is not a kernel. No
# contraction: every instruction set must give the same bits (kernels/reduce.h). Not
# rescheduled: gcc would spread the reads of a stream among those of the others, which
# takes eight sources 3 % of what the L2 cache gives, and two 2 % without AVX.
set(kernel_flags -O3 -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND kernel_flags -fno-schedule-insns2)
endif()
set(AIKIDO_KERNEL_SOURCES
  ${CMAKE_CURRENT_SOURCE_DIR}/kernels/digest.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/kernels/prefetch.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reduce.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reduce_scalar.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/kernels/weighted_sum.cpp)
set_source_files_properties(
  ${CMAKE_CURRENT_SOURCE_DIR}/kernels/digest.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reduce_scalar.cpp
  PROPERTIES COMPILE_OPTIONS "${kernel_flags}")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  list(APPEND AIKIDO_KERNEL_SOURCES
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reduce_avx2.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reduce_avx512.cpp)
  set_source_files_properties(
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reduce_avx2.cpp
    PROPERTIES COMPILE_OPTIONS "${kernel_flags};-mavx2;-mf16c")
  set_source_files_properties(
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reduce_avx512.cpp
    PROPERTIES COMPILE_OPTIONS
    "${kernel_flags};-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  list(APPEND AIKIDO_KERNEL_SOURCES
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reduce_neon.cpp)
  set_source_files_properties(
    ${CMAKE_CURRENT_SOURCE_DIR}/kernels/reduce_neon.cpp
    PROPERTIES COMPILE_OPTIONS "${kernel_flags}")
endif()
