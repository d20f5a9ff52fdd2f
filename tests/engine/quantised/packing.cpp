// What test_packing.py calls of native/quantised.h.
#include "quantised.h"

using namespace prefold;

template <class Work>
static void with(int bits, Work work) {
    bits == 8 ? work(Packing<8>{}) : work(Packing<4>{});
}

extern "C" {

void turned(float* x, size_t size) { turn(x, size); }

void packed(int bits, const float* x, size_t size, uint8_t* record) {
    with(bits, [&](auto packing) { packing.pack(x, size, record); });
}

// 16 records to a page of keys or values, back to records, and to the units of a tile.
void paged(int bits, int values, int bfloat16, const uint8_t* records, size_t size, uint8_t* page, uint8_t* back, void* to) {
    with(bits, [&](auto packing) {
        const size_t each = packing.bytes(size);
        for (size_t slot = 0; slot < SLOTS; slot++) {
            if (values) {
                packing.put_value(page, size, slot, records + slot * each);
                packing.get_value(page, size, slot, back + slot * each);
            } else {
                packing.put_key(page, size, slot, records + slot * each);
                packing.get_key(page, size, slot, back + slot * each);
            }
        }
        if (values)
            bfloat16 ? packing.open_values(page, size, static_cast<uint16_t*>(to))
                     : packing.open_values(page, size, static_cast<float*>(to));
        else
            bfloat16 ? packing.open_keys(page, size, static_cast<uint16_t*>(to))
                     : packing.open_keys(page, size, static_cast<float*>(to));
    });
}

void opened(int bits, int values, const uint8_t* page, size_t size, uint16_t* to, size_t times) {
    with(bits, [&](auto packing) {
        for (size_t i = 0; i < times; i++) values ? packing.open_values(page, size, to) : packing.open_keys(page, size, to);
    });
}

}  // extern "C"
