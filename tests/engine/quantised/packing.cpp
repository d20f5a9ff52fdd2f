// What test_packing.py calls of native/quantised.h.
#include "quantised.h"

using namespace prefold;

template <class T, class Work>
static void with(int bits, Work work) {
    bits == 8 ? work(Packed<T, 8>{}) : work(Packed<T, 4>{});
}

// 16 records to a page of keys or values, back to records, and to the units of a tile.
template <class T>
static void paged(int bits, int values, const uint8_t* records, size_t size, uint8_t* page, uint8_t* back, T* to) {
    with<T>(bits, [&](auto form) {
        const size_t each = form.bytes(size);
        for (size_t slot = 0; slot < PAGE; slot++) {
            if (values) {
                form.put_value(page, size, slot, records + slot * each);
                form.get_value(page, size, slot, back + slot * each);
            } else {
                form.put_key(page, size, slot, records + slot * each);
                form.get_key(page, size, slot, back + slot * each);
            }
        }
        values ? form.open_values(page, size, to) : form.open_keys(page, size, to);
    });
}

extern "C" {

void turned(float* x, size_t size) { turn(x, size); }

// Turns x too.
void packed(int bits, float* x, size_t size, uint8_t* record) {
    with<float>(bits, [&](auto form) { form.close(x, size, record); });
}

void paged_bfloat16(int bits, int values, const uint8_t* records, size_t size, uint8_t* page, uint8_t* back, void* to) {
    paged(bits, values, records, size, page, back, static_cast<uint16_t*>(to));
}

void paged_float(int bits, int values, const uint8_t* records, size_t size, uint8_t* page, uint8_t* back, void* to) {
    paged(bits, values, records, size, page, back, static_cast<float*>(to));
}

}  // extern "C"
