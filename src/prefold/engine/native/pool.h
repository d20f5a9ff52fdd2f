// The K/V pool: pages of 16 slots, laid out as the factors of a tile.
//
// With D the head size and P the numbers of a unit (2 of bfloat16, 1 of float):
//   keys    [layer][page][head][D / P][16][P]      a query's unit meets 16 keys at once
//   values  [layer][page][head][16 / P][D][P]      the weights of P keys meet 16 numbers of their values at once
#pragma once

#include "crew.h"
#include "tile.h"

namespace prefold {

struct Shape {
    int64_t layers, pages, heads, size;  // heads: of keys and values; size: D
};

template <class T>
struct Pool {
    Shape shape;
    T *keys, *values;

    size_t page_numbers() const { return PAGE * shape.size; }

    size_t place(size_t layer, size_t page, size_t head) const {
        return ((layer * shape.pages + page) * shape.heads + head) * page_numbers();
    }

    // Keys or values of one head of one token, `size` numbers.
    void put_key(size_t layer, size_t slot, size_t head, const T* key) const {
        constexpr int P = PER_UNIT<T>;
        T* to = keys + place(layer, slot / PAGE, head) + slot % PAGE * P;
        for (int64_t d = 0; d < shape.size; d += P, to += PAGE * P) memcpy(to, key + d, 4);
    }

    void put_value(size_t layer, size_t slot, size_t head, const T* value) const {
        constexpr int P = PER_UNIT<T>;
        T* to = values + place(layer, slot / PAGE, head) + slot % PAGE / P * shape.size * P + slot % P;
        for (int64_t d = 0; d < shape.size; d++) to[d * P] = value[d];
    }

    void get_key(size_t layer, size_t slot, size_t head, T* key) const {
        constexpr int P = PER_UNIT<T>;
        const T* from = keys + place(layer, slot / PAGE, head) + slot % PAGE * P;
        for (int64_t d = 0; d < shape.size; d += P, from += PAGE * P) memcpy(key + d, from, 4);
    }

    void get_value(size_t layer, size_t slot, size_t head, T* value) const {
        constexpr int P = PER_UNIT<T>;
        const T* from = values + place(layer, slot / PAGE, head) + slot % PAGE / P * shape.size * P + slot % P;
        for (int64_t d = 0; d < shape.size; d++) value[d] = from[d * P];
    }

    // Between slots and records: one record a token, [layer][2: key, value][head][D].
    void copy(const OpenMP& openmp, int threads, const int64_t* slots, size_t count, T* records, bool out) const {
        constexpr size_t SHARE = PAGE;  // tokens in a row fill a page, which stays in the cache meanwhile
        const size_t layers = shape.layers, heads = shape.heads, size = shape.size, shares = (count + SHARE - 1) / SHARE;
        Crew::run(openmp, threads, [&](Crew& crew, int, int team) {
            crew.each(shares * layers, team, [&](size_t task) {
                const size_t layer = task % layers, first = task / layers * SHARE;
                for (size_t head = 0; head < heads; head++)
                    for (size_t i = first; i < count && i < first + SHARE; i++) {
                        T* key = records + ((i * layers + layer) * 2 * heads + head) * size;
                        T* value = key + heads * size;
                        if (out) {
                            get_key(layer, slots[i], head, key);
                            get_value(layer, slots[i], head, value);
                        } else {
                            put_key(layer, slots[i], head, key);
                            put_value(layer, slots[i], head, value);
                        }
                    }
            });
        });
    }
};

}  // namespace prefold
