// The K/V pool: pages of 16 slots, laid out as the factors of a tile.
//
// With D the head size and P the numbers of a unit (2 of bfloat16, 1 of float):
//   keys    [layer][page][head][D / P][16][P]      a query's unit meets 16 keys at once
//   values  [layer][page][head][16 / P][D][P]      the weights of P keys meet 16 numbers of their values at once
// A pool may hold them in fewer bits; then a page is opened into such a one when it is attended to: see quantised.h.
#pragma once

#include "crew.h"
#include "quantised.h"

namespace prefold {

constexpr int64_t MAX_SIZE = 1024;  // numbers of a head
constexpr size_t AHEAD = 4;         // pages
constexpr size_t SMALL = 2 << 20;   // bytes that one thread has copied before another is awake, if cores are busy

struct Shape {
    int64_t layers, pages, heads, size;  // heads: of keys and values; size: D
};

// How vectors of D numbers stand in a record and in a page: as they are.
template <class T>
struct Plain {
    static constexpr bool OPENED = false;  // whether a page must be opened before the tile takes it
    static constexpr size_t P = PER_UNIT<T>;

    // Of a record; a page has 16 times as many.
    static size_t bytes(size_t size) { return size * sizeof(T); }

    // Numbers to a record.
    static void close(float* x, size_t size, uint8_t* record) {
        for (size_t d = 0; d < size; d += LANES) store(reinterpret_cast<T*>(record) + d, load(x + d));
    }

    // A record to its slot of a page, and back.
    static void put_key(uint8_t* page, size_t size, size_t slot, const uint8_t* record) {
        uint8_t* to = page + slot * 4;
        for (size_t unit = 0; unit < size / P; unit++, to += PAGE * 4) memcpy(to, record + unit * 4, 4);
    }

    static void get_key(const uint8_t* page, size_t size, size_t slot, uint8_t* record) {
        const uint8_t* from = page + slot * 4;
        for (size_t unit = 0; unit < size / P; unit++, from += PAGE * 4) memcpy(record + unit * 4, from, 4);
    }

    static void put_value(uint8_t* page, size_t size, size_t slot, const uint8_t* record) {
        T* to = reinterpret_cast<T*>(page) + slot / P * size * P + slot % P;
        for (size_t d = 0; d < size; d++) memcpy(to + d * P, record + d * sizeof(T), sizeof(T));
    }

    static void get_value(const uint8_t* page, size_t size, size_t slot, uint8_t* record) {
        const T* from = reinterpret_cast<const T*>(page) + slot / P * size * P + slot % P;
        for (size_t d = 0; d < size; d++) memcpy(record + d * sizeof(T), from + d * P, sizeof(T));
    }

    // A page as the tile takes it: where it lies, or in `room`, as large as a page of T.
    static const T* open_keys(const uint8_t* page, size_t, T*) { return reinterpret_cast<const T*>(page); }

    static const T* open_values(const uint8_t* page, size_t, T*) { return reinterpret_cast<const T*>(page); }
};

template <class T>
struct Pool {
    Shape shape;
    int64_t bits;  // of a packed number; 0: numbers of T, as they are
    uint8_t *keys, *values;

    // Whether vectors are turned before they are stored: then queries are turned too, and what comes out is turned back.
    bool turned() const { return bits != 0; }

    // Store a key or value of one token; its `size` numbers are scratch afterwards.
    void put_key(size_t layer, size_t slot, size_t head, float* key) const {
        with([&](auto form) {
            uint8_t record[MAX_SIZE * sizeof(T)];
            form.close(key, shape.size, record);
            form.put_key(keys + place(form, layer, slot / PAGE, head), shape.size, slot % PAGE, record);
        });
    }

    void put_value(size_t layer, size_t slot, size_t head, float* value) const {
        with([&](auto form) {
            uint8_t record[MAX_SIZE * sizeof(T)];
            form.close(value, shape.size, record);
            form.put_value(values + place(form, layer, slot / PAGE, head), shape.size, slot % PAGE, record);
        });
    }

    // The keys or values of a page, in place or opened into `room`.
    const T* open_keys(size_t layer, size_t page, size_t head, T* room) const {
        return with([&](auto form) { return form.open_keys(fetched(form, keys, layer, page, head), shape.size, room); });
    }

    const T* open_values(size_t layer, size_t page, size_t head, T* room) const {
        return with([&](auto form) { return form.open_values(fetched(form, values, layer, page, head), shape.size, room); });
    }

    // Between slots and records: one record a token, [layer][2: key, value][head].
    void copy(const OpenMP& openmp, int threads, const int64_t* slots, size_t count, uint8_t* records, bool out) const {
        constexpr size_t SHARE = PAGE;  // tokens in a row fill a page, which stays in the cache meanwhile
        const size_t layers = shape.layers, heads = shape.heads, size = shape.size, shares = (count + SHARE - 1) / SHARE;
        with([&](auto form) {
            const size_t bytes = form.bytes(size);
            const bool alone = count * layers * 2 * heads * bytes < SMALL;
            Crew::run(openmp, alone ? 1 : threads, [&](Crew& crew, int, int team) {
                crew.each(shares * layers, team, [&](size_t task) {
                    const size_t layer = task % layers, first = task / layers * SHARE;
                    for (size_t head = 0; head < heads; head++)
                        for (size_t i = first; i < count && i < first + SHARE; i++) {
                            const size_t slot = slots[i] % PAGE, page = place(form, layer, slots[i] / PAGE, head);
                            uint8_t* const key = records + ((i * layers + layer) * 2 * heads + head) * bytes;
                            uint8_t* const value = key + heads * bytes;
                            if (out) {
                                form.get_key(keys + page, size, slot, key);
                                form.get_value(values + page, size, slot, value);
                            } else {
                                form.put_key(keys + page, size, slot, key);
                                form.put_value(values + page, size, slot, value);
                            }
                        }
                });
            });
        });
    }

   private:
    template <class Work>
    auto with(Work work) const {
        switch (bits) {
            case 8: return work(Packed<T, 8>{});
            case 4: return work(Packed<T, 4>{});
            default: return work(Plain<T>{});
        }
    }

    // A page. Opening one takes about as long as memory takes to send one, so that one is sent while another is opened:
    // runs mostly go on in the next page.
    template <class Form>
    const uint8_t* fetched(Form form, const uint8_t* memory, size_t layer, size_t page, size_t head) const {
        const uint8_t* const at = memory + place(form, layer, page, head);
        if constexpr (Form::OPENED) {
            const size_t bytes = PAGE * form.bytes(shape.size);
            const uint8_t* const ahead = at + AHEAD * shape.heads * bytes;
            for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(ahead + i, 0, 3);
        }
        return at;
    }

    template <class Form>
    size_t place(Form form, size_t layer, size_t page, size_t head) const {
        return ((layer * shape.pages + page) * shape.heads + head) * PAGE * form.bytes(shape.size);
    }
};

}  // namespace prefold
