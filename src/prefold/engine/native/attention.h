// Attention on the pool's pages: exact, in one pass over the keys with a running maximum (Milakov and Gimelshein,
// 2018; FlashAttention, Dao et al., 2022).
//
// A plan is a list of groups: rows of the batch and runs of slots that all of them attend to. A row may be in several
// groups, as when it shares its prompt's beginning with rows of other sequences: each group then leaves an unfinished
// result, sums and maximum, and these are added up at the end. The same is done where one group's keys are split, so
// that one long sequence keeps all threads busy.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "pool.h"

namespace prefold {

constexpr int BLOCK_PAGES = 8;                    // keys are taken 128 at a time: what a block needs stays in L1
constexpr int BLOCK_KEYS = BLOCK_PAGES * PAGE;
constexpr int QUERIES = 48;                       // of a task, where the heads that share a key are not more
constexpr int64_t SPLIT_KEYS = 256;               // fewer keys than this are not split
constexpr float NOTHING = -1e30f;                 // a maximum over no keys

// Slots `start` up to, not including, `stop`. Row i of the group sees the run's first `i + 1 - offset` slots, or all
// of them where `offset` is negative.
struct Run {
    int32_t start, stop, offset;
};

struct Group {
    int32_t rows, rows_end, runs, runs_end;  // places in the lists of rows and runs
};

struct Plan {
    const Group* groups;
    size_t group_count;
    const int32_t* rows;
    const Run* runs;
};

// Rows `row` up to `row_end` of a group, for one head, and its keys number `key` up to `key_end`.
struct Task {
    int32_t group, row, row_end, head;
    int64_t key, key_end;
    int64_t partial;  // where the first row's unfinished result goes, or -1 if it is the only one
};

// A row's unfinished results stand at the places `partials[first]` up to `partials[end]`.
struct Merge {
    int32_t row;
    size_t first, end;
};

struct Schedule {
    std::vector<Task> tasks;
    std::vector<Merge> merges;
    std::vector<int64_t> partials;
    int64_t partial_count = 0;
};

// Cut the plan into tasks for some threads; `rows` is the size of the batch.
inline Schedule schedule(const Plan& plan, size_t rows, int heads, int kv_heads, int threads) {
    Schedule result;
    std::vector<int32_t> uses(rows, 0);
    const int32_t tile_rows = std::max(1, QUERIES / (heads / kv_heads));
    int64_t work = 0;  // rows times keys, all groups
    std::vector<int64_t> keys(plan.group_count, 0);
    for (size_t g = 0; g < plan.group_count; g++) {
        const Group& group = plan.groups[g];
        for (int32_t i = group.runs; i < group.runs_end; i++) keys[g] += plan.runs[i].stop - plan.runs[i].start;
        for (int32_t i = group.rows; i < group.rows_end; i++) uses[plan.rows[i]]++;
        work += keys[g] * ((group.rows_end - group.rows + tile_rows - 1) / tile_rows);
    }
    // No task should be more than a quarter of what each thread gets.
    const int64_t limit = std::max<int64_t>(SPLIT_KEYS, work * kv_heads / (4 * threads));
    std::vector<std::vector<int64_t>> places(rows);
    for (size_t g = 0; g < plan.group_count; g++) {
        const Group& group = plan.groups[g];
        for (int32_t end = group.rows_end; end > group.rows; end -= tile_rows) {  // the last rows see the most keys
            const int32_t row = std::max(end - tile_rows, group.rows);
            const int64_t parts = threads == 1 ? 1 : (keys[g] + limit - 1) / limit;
            const int64_t size = (keys[g] + parts - 1) / parts;
            bool alone = parts == 1;
            for (int32_t i = row; i < end; i++) alone = alone && uses[plan.rows[i]] == 1;
            for (int64_t key = 0; key < keys[g]; key += size) {
                int64_t partial = -1;
                if (!alone) {
                    partial = result.partial_count;
                    result.partial_count += end - row;
                    for (int32_t i = row; i < end; i++) places[plan.rows[i]].push_back(partial + i - row);
                }
                for (int32_t head = 0; head < kv_heads; head++)
                    result.tasks.push_back({int32_t(g), row, end, head, key, std::min(key + size, keys[g]), partial});
            }
        }
    }
    for (size_t row = 0; row < rows; row++) {
        if (places[row].empty()) continue;
        const size_t first = result.partials.size();
        result.partials.insert(result.partials.end(), places[row].begin(), places[row].end());
        result.merges.push_back({int32_t(row), first, result.partials.size()});
    }
    // The longest first, so that none is left over at the end.
    std::stable_sort(result.tasks.begin(), result.tasks.end(), [](const Task& a, const Task& b) {
        return (a.key_end - a.key) * (a.row_end - a.row) > (b.key_end - b.key) * (b.row_end - b.row);
    });
    return result;
}

// What one thread needs beside its stack.
template <class T>
struct Scratch {
    T *queries, *weights, *keys, *values;  // keys, values: pages of a block that do not serve as they lie in the pool
    float *scores, *sums, *maxima;
    Vec* totals;

    // Takes its parts from `from` on; returns the first free byte behind them. With null it only counts.
    char* place(char* from, size_t queries_count, size_t size) {
        auto take = [&from](auto*& part, size_t count) {
            part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(from);
            from += (count * sizeof *part + 63) / 64 * 64;
        };
        take(queries, queries_count * size);
        take(weights, queries_count * BLOCK_KEYS);
        take(keys, BLOCK_KEYS * size);
        take(values, BLOCK_KEYS * size);
        take(scores, queries_count * BLOCK_KEYS);
        take(sums, queries_count * size);
        take(maxima, queries_count);
        take(totals, queries_count);
        return from;
    }
};

template <class T>
class Attention {
   public:
    const Pool<T>& pool;
    const Plan& plan;
    const Schedule& schedule;
    size_t layer, heads;  // heads: of queries
    float scale;
    const T* queries;     // (rows, heads, size), turned if the pool is
    T* out;               // the same
    float* partials;      // (partial_count, heads, size + 2): sums, their weights' sum, maximum

    void run(const Task& task, const Scratch<T>& scratch) const {
        const Group& group = plan.groups[task.group];
        const size_t size = pool.shape.size, each = heads / pool.shape.heads;
        const size_t count = (task.row_end - task.row) * each;
        for (int32_t i = task.row; i < task.row_end; i++)
            memcpy(scratch.queries + (i - task.row) * each * size,
                   queries + (plan.rows[i] * heads + task.head * each) * size, each * size * sizeof(T));
        std::fill_n(scratch.sums, count * size, 0.0f);
        std::fill_n(scratch.maxima, count, NOTHING);
        std::fill_n(scratch.totals, count, Vec{});

        Block block{};
        const int32_t first = task.row - group.rows, last = task.row_end - 1 - group.rows;
        int64_t key = 0;
        for (int32_t r = group.runs; r < group.runs_end && key < task.key_end; r++) {
            const Run& run = plan.runs[r];
            const int64_t length = run.stop - run.start;
            const int64_t start = run.start + std::max<int64_t>(task.key - key, 0);
            int64_t stop = run.start + std::min(task.key_end - key, length);
            if (run.offset >= 0) stop = std::min<int64_t>(stop, run.start + last + 1 - run.offset);
            key += length;
            for (int64_t page = start / PAGE; page * PAGE < stop; page++) {
                const int64_t slot = page * PAGE;
                if (start >= stop) break;
                Page& entry = block.pages[block.count++];
                entry.number = page;
                entry.low = int(std::max<int64_t>(start - slot, 0));
                entry.high = int(std::min<int64_t>(stop - slot, PAGE));
                entry.seen = run.offset < 0 ? PAGE : int(run.start + first + 1 - run.offset - slot);
                entry.causal = run.offset >= 0 && entry.seen < PAGE;
                if (block.count == BLOCK_PAGES) take(task, block, scratch, count, each);
            }
        }
        if (block.count) take(task, block, scratch, count, each);

        for (size_t query = 0; query < count; query++) {
            const size_t row = task.row + query / each, head = task.head * each + query % each;
            const float total = sum(scratch.totals[query]);
            float* const sums = scratch.sums + query * size;
            if (task.partial < 0) {
                const float factor = 1.0f / total;
                if (pool.turned()) turn(sums, size);
                T* to = out + (plan.rows[row] * heads + head) * size;
                for (size_t d = 0; d < size; d += LANES) store(to + d, load(sums + d) * factor);
            } else {
                float* to = partials + ((task.partial + query / each) * heads + head) * (size + 2);
                memcpy(to, sums, size * sizeof(float));
                to[size] = total;
                to[size + 1] = scratch.maxima[query];
            }
        }
    }

    // Add up a row's unfinished results.
    void merge(const Merge& merge, const Scratch<T>& scratch) const {
        const size_t size = pool.shape.size;
        float* const sums = scratch.sums;
        for (size_t head = 0; head < heads; head++) {
            auto part = [&](size_t i) { return partials + (schedule.partials[i] * heads + head) * (size + 2); };
            float maximum = NOTHING, total = 0;
            for (size_t i = merge.first; i < merge.end; i++) maximum = std::max(maximum, part(i)[size + 1]);
            std::fill_n(sums, size, 0.0f);
            for (size_t i = merge.first; i < merge.end; i++) {
                const float* from = part(i);
                const float factor = exp2(from[size + 1] - maximum);
                total += from[size] * factor;
                for (size_t d = 0; d < size; d += LANES) store(sums + d, load(sums + d) + load(from + d) * factor);
            }
            if (pool.turned()) turn(sums, size);
            T* to = out + (merge.row * heads + head) * size;
            for (size_t d = 0; d < size; d += LANES) store(to + d, load(sums + d) * (1.0f / total));
        }
    }

   private:
    // Slots `low` up to `high` of a page; of those, the task's first row sees the ones below `seen`, each later row
    // one more.
    struct Page {
        int64_t number;
        int low, high, seen;
        bool causal;

        bool partial() const { return low > 0 || high < PAGE; }
    };

    struct Block {
        Page pages[BLOCK_PAGES];
        int count;
    };

    // One block of keys for all queries of the task; empties the block.
    void take(const Task& task, Block& block, const Scratch<T>& scratch, size_t count, size_t each) const {
        constexpr size_t P = PER_UNIT<T>;
        const size_t size = pool.shape.size, pages = block.count;
        const Unit *keys[BLOCK_PAGES], *values[BLOCK_PAGES];
        for (size_t i = 0; i < pages; i++) {
            const Page& page = block.pages[i];
            keys[i] = units(pool.open_keys(layer, page.number, task.head, scratch.keys + i * PAGE * size));
            values[i] = units(pool.open_values(layer, page.number, task.head, scratch.values + i * PAGE * size));
            if (page.partial()) values[i] = only(page, values[i], units(scratch.values + i * PAGE * size));
        }
        for (size_t i = 0, n; i < pages; i += n) {
            n = width(count, pages - i);
            multiply<T>({units(scratch.queries), size / P, keys + i, PAGE, 1, size / P, scratch.scores + i * PAGE,
                         BLOCK_KEYS, false, values[i]}, count, int(n));
        }
        for (size_t i = 0; i < pages; i++)
            if (block.pages[i].partial() || block.pages[i].causal) hide(block.pages[i], scratch.scores + i * PAGE, count, each);
        weigh<BLOCK_PAGES>(scratch, count, pages);
        for (size_t d = 0, n; d < size; d += n * PAGE) {
            n = width(count, (size - d) / PAGE);
            const Unit* b[BLOCK_PAGES * 4];
            for (size_t i = 0; i < pages * n; i++) b[i] = values[i / n] + d + i % n * PAGE;
            multiply<T>({units(scratch.weights), BLOCK_KEYS / P, b, size, pages, PAGE / P, scratch.sums + d, size, true,
                         b[0]}, count, int(n));
        }
        block.count = 0;
    }

    // Scores of keys that a query does not see become minus infinity.
    static void hide(const Page& page, float* scores, size_t count, size_t each) {
        Vec lanes;
        for (int lane = 0; lane < LANES; lane++) lanes[lane] = float(lane);
        for (size_t query = 0; query < count; query++, scores += BLOCK_KEYS) {
            const int seen = page.seen + int(query / each);
            const int high = page.causal ? std::min(page.high, seen) : page.high;
            for (int part = 0; part < PAGE; part += LANES) {
                const Bits meant = (lanes >= float(page.low - part)) & (lanes < float(high - part));
                store(scores + part, choose(meant, load(scores + part), fill(-__builtin_inff())));
            }
        }
    }

    // Scores of up to PAGES pages to weights, relative to the running maximum.
    template <size_t PAGES>
    void weigh(const Scratch<T>& scratch, size_t count, size_t pages) const {
        if constexpr (PAGES > 1)
            if (pages < PAGES) return weigh<PAGES - 1>(scratch, count, pages);
        constexpr int N = PAGES * PARTS;
        const size_t size = pool.shape.size;
        const float factor = scale * 1.44269504f;  // weights are powers of 2
        const float* scores = scratch.scores;
        T* weights = scratch.weights;
        float* const maxima = scratch.maxima;
        Vec* const totals = scratch.totals;
        for (size_t query = 0; query < count; query++, scores += BLOCK_KEYS, weights += BLOCK_KEYS) {
            Vec x[N], top = load(scores);
            for (int i = 0; i < N; i++) x[i] = load(scores + i * LANES);
            for (int i = 1; i < N; i++) top = max(top, x[i]);
            const float before = maxima[query], maximum = std::max(before, highest(top) * factor);
            if (maximum > before) {
                const float shrink = exp2(before - maximum);
                maxima[query] = maximum;
                totals[query] *= shrink;
                float* const sums = scratch.sums + query * size;
                for (size_t d = 0; d < size; d += LANES) store(sums + d, load(sums + d) * shrink);
            }
            Vec total = totals[query];
            for (int i = 0; i < N; i++) {
                const Vec weight = exp2(x[i] * factor - maximum);
                store(weights + i * LANES, weight);
                total += weight;
            }
            totals[query] = total;
        }
    }

    // A copy of a page's values with zeros in the slots that are not meant: whatever stands there is another
    // sequence's, and need not be a number.
    const Unit* only(const Page& page, const Unit* from, Unit* to) const {
        constexpr int P = PER_UNIT<T>;
        const size_t size = pool.shape.size;
        for (int slot = 0; slot < PAGE; slot += P) {
            Unit mask = 0;
            for (int i = 0; i < P; i++)
                if (slot + i >= page.low && slot + i < page.high) mask |= (Unit(~0) >> (32 - 32 / P)) << (i * 32 / P);
            for (size_t d = 0; d < size; d++) to[slot / P * size + d] = from[slot / P * size + d] & mask;
        }
        return to;
    }

    static const Unit* units(const T* numbers) { return reinterpret_cast<const Unit*>(numbers); }
    static Unit* units(T* numbers) { return reinterpret_cast<Unit*>(numbers); }
};

}  // namespace prefold
