// Keys and values in 8 or 4 bits a number: what a pool stores, and how a page becomes the factors of a tile again.
//
// A packed vector is a record of the Python side's `quantised/numbers.py`, byte for byte: float16 scales of its groups
// of 32 numbers, then for each group
//   8 bits  number i in byte i, signed
//   4 bits  number i in the lower half of byte i, number i + 16 in the upper one, both plus 8
// of vectors that were turned by the Hadamard matrix, group by group.
//
// In a page the scales of 16 slots stand first, [group][16]. The bytes of numbers, C of them to a vector, follow in the
// order that numbers have in a page that is not packed, so that 16 bytes in a row become 16 numbers in a row:
//   keys    [C / P][16][P]
//   values  [16 / P][C][P]
// A slot's bytes are its own, so that threads may write neighbouring slots.
#pragma once

#include <cmath>

#include "tile.h"

namespace prefold {

constexpr size_t GROUP = 32;
constexpr float GROUP_ROOT = 0.17677669529663687f;  // 1 / sqrt(32)

// 16 numbers.
struct Sixteen {
    Vec part[PARTS];
};

inline float from_half(uint16_t x) { return _cvtsh_ss(x); }

inline uint16_t to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

inline Sixteen from_halves(const uint16_t* from) {
    Sixteen x;
    for (int i = 0; i < PARTS; i++) x.part[i] = load_float16(from + i * LANES);
    return x;
}

// The numbers that stand in 16 bytes, `half` of them for 4 bits, times their scales.
template <int BITS>
inline Sixteen numbers(const uint8_t* from, int half, const Sixteen& scales) {
    Sixteen x;
    for (int i = 0; i < PARTS; i++, from += LANES) {
        Bits steps;
        if (BITS == 8)
            steps = load_signed_bytes(from);
        else
            steps = (half ? load_bytes(from) >> 4 : load_bytes(from) & 15) - 8;
        x.part[i] = __builtin_convertvector(steps, Vec) * scales.part[i];
    }
    return x;
}

template <class T>
inline void store(T* to, const Sixteen& x) {
    for (int i = 0; i < PARTS; i++) store(to + i * LANES, x.part[i]);
}

// Multiplies each group by the orthonormal Hadamard matrix, in place; twice is not at all.
inline void turn(float* x, size_t size) {
    constexpr int N = GROUP / LANES;
    Bits lanes;
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane;
    for (float* const end = x + size; x < end; x += GROUP) {
        Vec parts[N];
        for (int i = 0; i < N; i++) parts[i] = load(x + i * LANES);
        for (int step = 1; step < LANES; step *= 2)  // a, b become a + b, a - b
            for (Vec& part : parts) part = permute(part, lanes ^ step) + choose((lanes & step) != 0, -part, part);
        for (int step = 1; step < N; step *= 2)
            for (int i = 0; i < N; i++)
                if (!(i & step)) {
                    const Vec a = parts[i], b = parts[i + step];
                    parts[i] = a + b;
                    parts[i + step] = a - b;
                }
        for (int i = 0; i < N; i++) store(x + i * LANES, parts[i] * GROUP_ROOT);
    }
}

// A form of a pool's vectors, as `Plain` in pool.h is one.
template <class T, int BITS>
struct Packed {
    static_assert(BITS == 8 || BITS == 4, "");
    static constexpr bool OPENED = true;
    static constexpr size_t P = PER_UNIT<T>;
    static constexpr size_t GROUP_BYTES = GROUP * BITS / 8;

    static size_t bytes(size_t size) { return size / GROUP * (2 + GROUP_BYTES); }

    // Turns the vector meanwhile.
    static void close(float* x, size_t size, uint8_t* record) {
        turn(x, size);
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

    static void put_key(uint8_t* page, size_t size, size_t slot, const uint8_t* record) {
        scales_of(page, size, slot, [&](uint8_t* at) { record = put(at, record, 2); });
        codes_of_key(page, size, slot, [&](uint8_t* at) { record = put(at, record, P); });
    }

    static void get_key(uint8_t* page, size_t size, size_t slot, uint8_t* record) {
        scales_of(page, size, slot, [&](uint8_t* at) { record = get(at, record, 2); });
        codes_of_key(page, size, slot, [&](uint8_t* at) { record = get(at, record, P); });
    }

    static void put_value(uint8_t* page, size_t size, size_t slot, const uint8_t* record) {
        scales_of(page, size, slot, [&](uint8_t* at) { record = put(at, record, 2); });
        codes_of_value(page, size, slot, [&](uint8_t* at) { *at = *record++; });
    }

    static void get_value(uint8_t* page, size_t size, size_t slot, uint8_t* record) {
        scales_of(page, size, slot, [&](uint8_t* at) { record = get(at, record, 2); });
        codes_of_value(page, size, slot, [&](uint8_t* at) { *record++ = *at; });
    }

    static const T* open_keys(const uint8_t* page, size_t size, T* room) {
        const uint8_t* codes = page + size / GROUP * 2 * PAGE;
        T* to = room;
        for (size_t group = 0; group < size / GROUP; group++, page += 2 * PAGE, to += GROUP * PAGE) {
            uint16_t halves[P * PAGE];  // each as often as its slot has numbers in a unit
            for (size_t i = 0; i < P * PAGE; i++) memcpy(halves + i, page + i / P * 2, 2);
            Sixteen scales[P];
            for (size_t i = 0; i < P; i++) scales[i] = from_halves(halves + i * PAGE);
            for (size_t i = 0; i < GROUP_BYTES; i++, codes += PAGE)
                for (int half = 0; half < 8 / BITS; half++)
                    store(to + (i + half * GROUP_BYTES) * PAGE, numbers<BITS>(codes, half, scales[i % P]));
        }
        return room;
    }

    static const T* open_values(const uint8_t* page, size_t size, T* room) {
        const size_t groups = size / GROUP;
        const uint8_t* codes = page + groups * 2 * PAGE;
        T* to = room;
        for (size_t slot = 0; slot < PAGE; slot += P, page += 2 * P)
            for (size_t group = 0; group < groups; group++, to += GROUP * P) {
                uint16_t halves[PAGE];
                for (size_t i = 0; i < PAGE; i++) memcpy(halves + i, page + group * 2 * PAGE + i % P * 2, 2);
                const Sixteen scales = from_halves(halves);
                for (size_t i = 0; i < GROUP_BYTES * P; i += PAGE, codes += PAGE)
                    for (int half = 0; half < 8 / BITS; half++)
                        store(to + i + half * GROUP_BYTES * P, numbers<BITS>(codes, half, scales));
            }
        return room;
    }

   private:
    // Where a slot's scales and numbers stand, in the order of a record.
    template <class Visit>
    static void scales_of(uint8_t* page, size_t size, size_t slot, Visit visit) {
        for (size_t group = 0; group < size / GROUP; group++) visit(page + (group * PAGE + slot) * 2);
    }

    template <class Visit>
    static void codes_of_key(uint8_t* page, size_t size, size_t slot, Visit visit) {
        uint8_t* const codes = page + size / GROUP * 2 * PAGE;
        for (size_t i = 0; i < size / GROUP * GROUP_BYTES; i += P) visit(codes + i * PAGE + slot * P);
    }

    template <class Visit>
    static void codes_of_value(uint8_t* page, size_t size, size_t slot, Visit visit) {
        const size_t count = size / GROUP * GROUP_BYTES;
        uint8_t* const codes = page + size / GROUP * 2 * PAGE + slot / P * count * P + slot % P;
        for (size_t i = 0; i < count; i++) visit(codes + i * P);
    }

    static const uint8_t* put(uint8_t* to, const uint8_t* record, size_t count) {
        memcpy(to, record, count);
        return record + count;
    }

    static uint8_t* get(const uint8_t* from, uint8_t* record, size_t count) {
        memcpy(record, from, count);
        return record + count;
    }

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
