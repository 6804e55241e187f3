#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define RADSERVE_SHA_NI
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace radserve {
namespace {

constexpr size_t kBlock = 64;
using State = std::array<uint32_t, 8>;

/// Section 4.2.2.
alignas(16) constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t BigEndian(const std::byte* at) {
  uint32_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return __builtin_bswap32(word);
}

/// Section 6.2.2.
void HashBlocks(State& state, const std::byte* data, size_t blocks) {
  for (; blocks > 0; --blocks, data += kBlock) {
    std::array<uint32_t, 64> w;
    for (size_t t = 0; t < 16; ++t) w[t] = BigEndian(data + 4 * t);
    for (size_t t = 16; t < 64; ++t) {
      const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t t = 0; t < 64; ++t) {
      const uint32_t big1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t first = h + big1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
      const uint32_t big0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t second = big0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + first;
      d = c;
      c = b;
      b = a;
      a = first + second;
    }
    const State add = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < state.size(); ++i) state[i] += add[i];
  }
}

#ifdef RADSERVE_SHA_NI

/// The same by SHA extensions (Intel, "Intel SHA Extensions", 2013): the state is kept as ABEF and
/// CDGH, and an instruction does two rounds.
__attribute__((target("sha,sse4.1"))) void HashBlocksBySha(State& state, const std::byte* data,
                                                           size_t blocks) {
  const auto load = [](const void* at) __attribute__((target("sha,sse4.1"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
  };
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const __m128i dcba = _mm_shuffle_epi32(load(state.data()), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(load(state.data() + 4), 0x1B);
  __m128i abef = _mm_alignr_epi8(dcba, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, dcba, 0xF0);
  for (; blocks > 0; --blocks, data += kBlock) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (size_t quarter = 0; quarter < 16; ++quarter) {
      __m128i& own = w[quarter % 4];
      if (quarter < 4) {
        own = _mm_shuffle_epi8(load(data + 16 * quarter), swap);
      } else {
        const __m128i last = w[(quarter + 3) % 4];
        const __m128i before = w[(quarter + 2) % 4];
        own = _mm_add_epi32(_mm_sha256msg1_epu32(own, w[(quarter + 1) % 4]),
                            _mm_alignr_epi8(last, before, 4));
        own = _mm_sha256msg2_epu32(own, last);
      }
      const __m128i sum = _mm_add_epi32(own, load(kRound.data() + 4 * quarter));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#endif

void HashWhole(State& state, const std::byte* data, size_t blocks) {
#ifdef RADSERVE_SHA_NI
  static const bool by_sha = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0 &&
           __builtin_cpu_supports("sse4.1") != 0;
  }();
  if (by_sha) return HashBlocksBySha(state, data, blocks);
#endif
  HashBlocks(state, data, blocks);
}

}  // namespace

std::array<std::byte, 32> Sha256(std::span<const std::byte> message) {
  // Section 5.3.3.
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = message.size() / kBlock;
  HashWhole(state, message.data(), whole);
  // Section 5.1.1: a 1, zeros, and the length in bits at the end of a block.
  std::array<std::byte, 2 * kBlock> end{};
  const auto rest = message.subspan(whole * kBlock);
  std::ranges::copy(rest, end.begin());
  end[rest.size()] = std::byte{0x80};
  const size_t blocks = rest.size() + 9 <= kBlock ? 1 : 2;
  const uint64_t bits = __builtin_bswap64(uint64_t{message.size()} * 8);
  std::memcpy(end.data() + blocks * kBlock - sizeof(bits), &bits, sizeof(bits));
  HashWhole(state, end.data(), blocks);
  std::array<std::byte, 32> digest;
  for (uint32_t& word : state) word = __builtin_bswap32(word);
  std::memcpy(digest.data(), state.data(), digest.size());
  return digest;
}

}  // namespace radserve
