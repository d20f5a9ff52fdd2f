// A K/V pool in 8 or 4 bits a number: what it stores, and how it becomes pages of the layout in pool.h again.
//
// A packed vector is a record of the Python side's `quantised/numbers.py`, byte for byte: float16 scales of its groups
// of 32 numbers, then for each group
//   8 bits  number i in byte i, signed
//   4 bits  number i in the lower half of byte i, number i + 16 in the upper one, both plus 8
// of vectors that were turned by the Hadamard matrix, group by group. With B the bytes of a record, a page of 16 slots is
//   keys    [layer][page][head][B][16]   of which the scales stand as wholes, [g][16] float16: 16 keys are read at once
//   values  [layer][page][head][16][B]   16 numbers of a value are read at once
// A slot's bytes are its own, so that threads may write neighbouring slots.
#pragma once

#include <cmath>

#include "vector.h"

namespace prefold {

constexpr size_t GROUP = 32;
constexpr size_t SLOTS = 16;  // of a page: PAGE in tile.h

// 16 numbers.
struct Sixteen {
    Vec part[16 / LANES];
};

inline Sixteen operator*(const Sixteen& a, const Sixteen& b) {
    Sixteen product;
    for (int i = 0; i < 16 / LANES; i++) product.part[i] = a.part[i] * b.part[i];
    return product;
}

inline Sixteen operator*(const Sixteen& a, float b) {
    Sixteen product;
    for (int i = 0; i < 16 / LANES; i++) product.part[i] = a.part[i] * b;
    return product;
}

inline float from_half(uint16_t x) { return _cvtsh_ss(x); }

inline uint16_t to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

inline Sixteen from_halves(const uint8_t* from) {
    Sixteen x;
    for (int i = 0; i < 16 / LANES; i++, from += 2 * LANES) {
#if defined(__AVX512F__)
        x.part[i] = (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
        x.part[i] = (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#endif
    }
    return x;
}

typedef uint8_t Bytes __attribute__((vector_size(LANES)));
typedef int8_t SignedBytes __attribute__((vector_size(LANES)));

inline Vec to_floats(Bits x) { return __builtin_convertvector(x, Vec); }

// `row` of 16 bytes, `half` of them for 4 bits: the numbers that stand there.
template <int BITS>
inline Sixteen numbers(const uint8_t* row, int half) {
    Sixteen x;
    for (int i = 0; i < 16 / LANES; i++, row += LANES) {
        if (BITS == 8) {
            SignedBytes bytes;
            memcpy(&bytes, row, sizeof bytes);
            x.part[i] = to_floats(__builtin_convertvector(bytes, Bits));
        } else {
            Bytes bytes;
            memcpy(&bytes, row, sizeof bytes);
            const Bits wide = __builtin_convertvector(bytes, Bits);
            x.part[i] = to_floats((half ? wide >> 4 : wide & 15) - 8);
        }
    }
    return x;
}

// Two numbers of each lane as one unit of bfloat16, or the 16 units of the first and those of the second of float, which
// begin `apart` units later.
inline void store_pair(uint16_t* to, const Sixteen& first, const Sixteen& second, size_t) {
    for (int i = 0; i < 16 / LANES; i++) {
        Halves low, high;
        store(reinterpret_cast<uint16_t*>(&low), first.part[i]);
        store(reinterpret_cast<uint16_t*>(&high), second.part[i]);
        const Unsigned units =
            __builtin_convertvector(low, Unsigned) | __builtin_convertvector(high, Unsigned) << 16;
        memcpy(to + 2 * i * LANES, &units, sizeof units);
    }
}

inline void store_pair(float* to, const Sixteen& first, const Sixteen& second, size_t apart) {
    for (int i = 0; i < 16 / LANES; i++) {
        store(to + i * LANES, first.part[i]);
        store(to + apart + i * LANES, second.part[i]);
    }
}

// Multiplies each group by the orthonormal Hadamard matrix, in place; twice is not at all.
inline void turn(float* x, size_t size) {
    for (float* const end = x + size; x < end; x += GROUP) {
        for (size_t step = 1; step < GROUP; step *= 2)
            for (size_t i = 0; i < GROUP; i += 2 * step)
                for (size_t j = i; j < i + step; j++) {
                    const float a = x[j], b = x[j + step];
                    x[j] = a + b;
                    x[j + step] = a - b;
                }
        for (size_t i = 0; i < GROUP; i++) x[i] *= 0.17677669529663687f;  // 1 / sqrt(32)
    }
}

template <int BITS>
struct Packing {
    static_assert(BITS == 8 || BITS == 4, "");
    static constexpr size_t GROUP_BYTES = GROUP * BITS / 8;

    // B, the bytes of a record.
    static size_t bytes(size_t size) { return size / GROUP * (2 + GROUP_BYTES); }

    // A turned vector to its record.
    static void pack(const float* x, size_t size, uint8_t* record) {
        uint8_t* codes = record + size / GROUP * 2;
        for (size_t group = 0; group < size / GROUP; group++, x += GROUP, codes += GROUP_BYTES) {
            const uint16_t half = to_half(scale(x));
            memcpy(record + 2 * group, &half, 2);
            const float unit = from_half(half);
            int8_t steps[GROUP];
            for (size_t i = 0; i < GROUP; i++) steps[i] = nearest(unit == 0 ? 0.0f : x[i] / unit);
            for (size_t i = 0; i < GROUP_BYTES; i++)
                codes[i] = BITS == 8 ? uint8_t(steps[i]) : uint8_t((steps[i] + 8) | (steps[i + GROUP / 2] + 8) << 4);
        }
    }

    // A page of keys to the units that a tile takes, [D / P][16][P] of T.
    template <class T>
    static void open_keys(const uint8_t* page, size_t size, T* to) {
        const uint8_t* row = page + size / GROUP * 2 * SLOTS;
        for (size_t group = 0; group < size / GROUP; group++, page += 2 * SLOTS, to += GROUP * SLOTS) {
            const Sixteen scales = from_halves(page);
            for (size_t i = 0; i < GROUP_BYTES; i += 2, row += 2 * SLOTS)
                for (int half = 0; half < 8 / BITS; half++)
                    store_pair(to + (i + half * 16) * SLOTS, numbers<BITS>(row, half) * scales,
                               numbers<BITS>(row + SLOTS, half) * scales, SLOTS);
        }
    }

    // A page of values to the units that a tile takes, [16 / P][D][P] of T.
    template <class T>
    static void open_values(const uint8_t* page, size_t size, T* to) {
        const size_t each = bytes(size), groups = size / GROUP;
        for (size_t slot = 0; slot < SLOTS; slot += 2, page += 2 * each, to += 2 * size)
            for (size_t group = 0; group < groups; group++) {
                uint16_t scales[2];
                memcpy(scales, page + 2 * group, 2);
                memcpy(scales + 1, page + each + 2 * group, 2);
                const uint8_t* row = page + 2 * groups + group * GROUP_BYTES;
                for (size_t i = 0; i < GROUP; i += 16) {
                    const uint8_t* const at = row + (BITS == 8 ? i : 0);
                    // P numbers of each channel: of bfloat16 both slots', of float those of `slot`, `size` before the next's.
                    store_pair(to + (group * GROUP + i) * (4 / sizeof(T)), numbers<BITS>(at, i > 0) * from_half(scales[0]),
                               numbers<BITS>(at + each, i > 0) * from_half(scales[1]), size);
                }
            }
    }

    // A record into its slot of a page, and out of it.
    static void put_key(uint8_t* page, size_t size, size_t slot, const uint8_t* record) {
        const size_t scales = size / GROUP * 2, all = bytes(size);
        for (size_t i = 0; i < scales; i += 2) memcpy(page + i * SLOTS + 2 * slot, record + i, 2);
        for (size_t i = scales; i < all; i++) page[i * SLOTS + slot] = record[i];
    }

    static void get_key(const uint8_t* page, size_t size, size_t slot, uint8_t* record) {
        const size_t scales = size / GROUP * 2, all = bytes(size);
        for (size_t i = 0; i < scales; i += 2) memcpy(record + i, page + i * SLOTS + 2 * slot, 2);
        for (size_t i = scales; i < all; i++) record[i] = page[i * SLOTS + slot];
    }

    static void put_value(uint8_t* page, size_t size, size_t slot, const uint8_t* record) {
        memcpy(page + slot * bytes(size), record, bytes(size));
    }

    static void get_value(const uint8_t* page, size_t size, size_t slot, uint8_t* record) {
        memcpy(record, page + slot * bytes(size), bytes(size));
    }

   private:
    // What one step is worth. Of 4 bits -8 is the number of the largest magnitude, whichever sign it has.
    static float scale(const float* x) {
        float low = x[0], high = x[0];
        for (size_t i = 0; i < GROUP; i++) {
            if (!std::isfinite(x[i])) return NAN;
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
        const float largest = high > -low ? high : low;
        return BITS == 8 ? std::fabs(largest) / 127 : largest / -8;
    }

    static int8_t nearest(float steps) {
        constexpr float TOP = BITS == 8 ? 127 : 7, BOTTOM = BITS == 8 ? -127 : -8;
        const float whole = std::nearbyint(steps);
        return int8_t(whole > TOP ? TOP : whole > BOTTOM ? whole : BOTTOM);  // no number at all: BOTTOM
    }
};

}  // namespace prefold
