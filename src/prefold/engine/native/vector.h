// Vectors of floats, as wide as the target has them, and the two number formats: bfloat16 (uint16_t) and float.
//
// Matrices are held in units of 32 bits: two neighbouring bfloat16 or one float. What multiplies units is `dot`, and
// all that differs between instruction sets stands in this file.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if !defined(__clang__) && __GNUC__ < 9
#error "GCC 9 or later, or Clang"
#endif

namespace prefold {

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int SUMS = 24;  // vectors of sums in a tile: of 32 registers
#else
constexpr int LANES = 8;
constexpr int SUMS = 12;  // of 16
#endif

using Unit = uint32_t;
template <class T>
constexpr int PER_UNIT = 4 / sizeof(T);

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef int32_t Bits __attribute__((vector_size(4 * LANES)));
typedef uint32_t Unsigned __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

inline Vec fill(float x) { return x - Vec{}; }

inline Vec choose(Bits mask, Vec yes, Vec no) { return mask ? yes : no; }

inline Vec max(Vec a, Vec b) { return choose(a > b, a, b); }

inline Vec load(const float* from) {
    Vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

inline Vec load(const uint16_t* from) {
    Halves halves;
    memcpy(&halves, from, sizeof halves);
    return (Vec)(__builtin_convertvector(halves, Unsigned) << 16);
}

// Numbers of float16.
inline Vec load_float16(const uint16_t* from) {
#if defined(__AVX512F__)
    return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
    return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#endif
}

inline Bits load_bytes(const uint8_t* from) {
#if defined(__AVX512F__)
    return (Bits)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    return (Bits)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#endif
}

inline Bits load_signed_bytes(const uint8_t* from) {
#if defined(__AVX512F__)
    return (Bits)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    return (Bits)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#endif
}

inline void store(float* to, Vec x) { memcpy(to, &x, sizeof x); }

// Rounds to nearest, ties to even.
inline void store(uint16_t* to, Vec x) {
#if defined(__AVX512BF16__)
    const auto halves = _mm512_cvtneps_pbh((__m512)x);
#else
    const Unsigned bits = (Unsigned)x;
    const Unsigned rounded = bits + 0x7fff + (bits >> 16 & 1);
    const Unsigned high = (x == x ? rounded : bits | 0x400000) >> 16;
#if defined(__AVX512F__)
    const auto halves = _mm512_cvtepi32_epi16((__m512i)high);
#else
    const __m256i wide = (__m256i)high;
    const auto halves = _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
#endif
#endif
    memcpy(to, &halves, sizeof halves);
}

inline Vec load_units(const Unit* from) { return load(reinterpret_cast<const float*>(from)); }

// sums + b * a, lane by lane: b is a vector of units, a one unit for all lanes.
template <class T>
inline Vec dot(Vec sums, Vec b, Unit a);

template <>
inline Vec dot<float>(Vec sums, Vec b, Unit a) {
    float x;
    memcpy(&x, &a, 4);
    return sums + b * x;
}

template <>
inline Vec dot<uint16_t>(Vec sums, Vec b, Unit a) {
#if defined(__AVX512BF16__)
    return (Vec)_mm512_dpbf16_ps((__m512)sums, (__m512bh)b, (__m512bh)_mm512_set1_epi32(a));
#else
    const Unsigned units = (Unsigned)b;
    const Unit low = a << 16, high = a & 0xffff0000;
    float x, y;
    memcpy(&x, &low, 4);
    memcpy(&y, &high, 4);
    return sums + (Vec)(units << 16) * x + (Vec)(units & 0xffff0000) * y;
#endif
}

// Lane i is lane `from[i]` of x.
inline Vec permute(Vec x, Bits from) {
#if defined(__AVX512F__)
    return (Vec)_mm512_permutexvar_ps((__m512i)from, (__m512)x);
#else
    return (Vec)_mm256_permutevar8x32_ps((__m256)x, (__m256i)from);
#endif
}

inline float highest(Vec x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    __m128 half = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#endif
}

inline float sum(Vec x) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#endif
}

// 2 to the power of x, to about 1e-7; 0 for x below -126. x is at most 127.
inline Vec exp2(Vec x) {
    // Adding 1.5 * 2^23 leaves the nearest whole number in the low bits.
    const Vec shifted = x + 12582912.0f;
    const Vec rest = x - (shifted - 12582912.0f);  // -0.5 .. 0.5
    // Taylor's series of 2^rest, its last terms fitted (minimax).
    Vec y = fill(1.5353362e-4f);
    y = y * rest + 1.3398874e-3f;
    y = y * rest + 9.6184373e-3f;
    y = y * rest + 5.5503324e-2f;
    y = y * rest + 2.4022648e-1f;
    y = y * rest + 6.9314720e-1f;
    y = y * rest + 1.0f;
    return choose(x < -126.0f, Vec{}, (Vec)((Bits)y + ((Bits)shifted << 23)));
}

inline float exp2(float x) { return exp2(fill(x))[0]; }

// x / (1 + e^-x)
inline Vec silu(Vec x) {
    const Vec power = x * -1.44269504f;
    return x / (exp2(choose(power > 127.0f, fill(127.0f), power)) + 1.0f);
}

}  // namespace prefold
