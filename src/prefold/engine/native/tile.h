// The one inner loop: rows times a strip of columns. Products with weights, queries with keys and probabilities with
// values are all made of it.
//
// Columns stand in blocks of 16, the slots of a page. A block holds, for each unit of depth, 16 units side by side, so
// that one unit of a row meets 16 columns at once.
#pragma once

#include "vector.h"

namespace prefold {

constexpr int PAGE = 16;                // columns of a block, slots of a page
constexpr int PARTS = PAGE / LANES;     // vectors to a block
constexpr int STRIP = 2 * PAGE;         // columns of a strip of weights

// Rows of a tile of some blocks of columns.
template <int C>
constexpr int ROWS = SUMS / (C * PARTS);

// Where the factors of a tile lie, all in units.
//
// a: rows of `sections * depth` units, `lda` apart.
// b: for each section, its blocks: pointers to the first unit; the next unit of depth is `stride` further on.
// c: sums, rows `ldc` floats apart; `add`: they start from what stands there.
// ahead: what is read next, fetched meanwhile at the pace of one strip's unit of depth; or anything at hand.
struct Factors {
    const Unit* a;
    size_t lda;
    const Unit* const* b;
    size_t stride, sections, depth;
    float* c;
    size_t ldc;
    bool add;
    const Unit* ahead;
};

template <class T, int R, int C>
void tile(const Factors& f) {
    constexpr int N = C * PARTS;
    Vec sums[R][N];
    for (int r = 0; r < R; r++)
        for (int j = 0; j < N; j++) sums[r][j] = f.add ? load(f.c + r * f.ldc + j * LANES) : Vec{};
    const Unit* a = f.a;
    for (size_t section = 0; section < f.sections; section++) {
        const Unit* b[C];
        for (int j = 0; j < C; j++) b[j] = f.b[section * C + j];
        for (size_t k = 0; k < f.depth; k++, a++) {
            __builtin_prefetch(f.ahead + k * STRIP, 0, 3);
            __builtin_prefetch(f.ahead + k * STRIP + PAGE, 0, 3);
            Vec columns[N];
            for (int j = 0; j < N; j++) columns[j] = load_units(b[j / PARTS] + k * f.stride + j % PARTS * LANES);
            for (int r = 0; r < R; r++) {
                const Unit x = a[r * f.lda];
                for (int j = 0; j < N; j++) sums[r][j] = dot<T>(sums[r][j], columns[j], x);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int j = 0; j < N; j++) store(f.c + r * f.ldc + j * LANES, sums[r][j]);
}

template <class T, int C, int R = ROWS<C>>
void tile_rows(const Factors& f, int rows) {
    if (rows == R) return tile<T, R, C>(f);
    if constexpr (R > 1) tile_rows<T, C, R - 1>(f, rows);
}

// Any number of rows and C blocks of columns.
template <class T, int C>
void multiply(Factors f, size_t rows) {
    for (size_t row = 0; row < rows; row += ROWS<C>) {
        tile_rows<T, C>(f, int(rows - row < ROWS<C> ? rows - row : ROWS<C>));
        f.a += ROWS<C> * f.lda;
        f.c += ROWS<C> * f.ldc;
    }
}

// The most blocks of columns, of `blocks`, that are best taken at once.
inline int width(size_t rows, size_t blocks) {
    if (blocks >= 4 && rows <= ROWS<4>) return 4;  // few rows: each wants more sums, which do not wait for each other
    return blocks >= 2 ? 2 : 1;
}

template <class T>
void multiply(const Factors& f, size_t rows, int blocks) {
    if (blocks == 4) return multiply<T, 4>(f, rows);
    if (blocks == 2) return multiply<T, 2>(f, rows);
    multiply<T, 1>(f, rows);
}

}  // namespace prefold
