#pragma once

/// Compiles a hot loop twice, for any x86-64 and for AVX2 machines, chosen when the program starts.
/// Without FMA contraction (see CMakeLists.txt) both give the same bits. Sanitizers cannot run the
/// chooser.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(RADSERVE_NO_TARGET_CLONES)
#define RADSERVE_HOT_LOOP __attribute__((target_clones("avx2", "default")))
#else
#define RADSERVE_HOT_LOOP
#endif
