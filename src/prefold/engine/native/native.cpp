// A decoder's forward pass on the CPU, and what Python calls.
//
// Each product with weights has its neighbour done on its sums while they are at hand: the residual is added, gate and
// up become one. Between layers the hidden state stays in float.
#include <cmath>
#include <cstdlib>
#include <memory>

#include "attention.h"

namespace prefold {

constexpr size_t CHUNK = 192;  // rows of a product's task: with K up to some thousands they stay in the L2 cache

// A weight matrix, packed in strips of 32 columns: [strip][unit of depth][32], rounded up with zeros. `paired`: a strip
// holds 16 columns of each of two matrices of `columns / 2`.
struct Linear {
    const Unit* weight;
    const float* bias;  // packed the same way, or null
    int64_t columns, depth, paired;  // depth: in numbers
};

struct Layer {
    Linear qkv, output, gate_up, down;
    const float *input_norm, *output_norm, *q_norm, *k_norm;  // the last two may be null
};

struct Model {
    int64_t layers, hidden, heads, kv_heads, size, inner;
    float norm_epsilon, scale;
    const void* embedding;  // (vocabulary, hidden)
    const float *cosine, *sine;  // (positions, size / 2)
    const float* norm;
    Linear head;
    const Layer* layer;
};

struct Batch {
    int64_t rows;
    const int64_t *tokens, *positions, *write;
    int64_t sample_count;
    const int64_t* samples;
};

struct Threads {
    OpenMP openmp;
    int64_t count;
};

// Memory that is kept from call to call.
class Buffer {
   public:
    ~Buffer() { std::free(memory); }

    char* grow(size_t bytes) {
        if (bytes > capacity) {
            std::free(memory);
            memory = nullptr;
            capacity = 0;
            const size_t rounded = (bytes + bytes / 4 + 4095) / 4096 * 4096;
            memory = static_cast<char*>(std::aligned_alloc(4096, rounded));
            if (!memory) throw std::bad_alloc();
            capacity = rounded;
        }
        return memory;
    }

   private:
    char* memory = nullptr;
    size_t capacity = 0;
};

// Hands out parts of a buffer; counts first, so that one growth is enough.
template <class Take>
void carve(Buffer& buffer, Take parts) {
    char* at = nullptr;
    auto take = [&at](auto*& part, size_t count) {
        part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(at);
        at += (count * sizeof *part + 63) / 64 * 64;
    };
    parts(take);
    at = buffer.grow(size_t(at));
    parts(take);
}

// `finish(row, strip, sums)` for each row of `x` times each strip's columns, 32 sums at a time.
template <class T, class Finish>
void product(Crew& crew, int team, const T* x, size_t rows, const Linear& linear, Finish finish) {
    const size_t strips = (linear.columns + STRIP - 1) / STRIP, depth = linear.depth / PER_UNIT<T>;
    const size_t chunks = (rows + CHUNK - 1) / CHUNK;
    crew.each(chunks * strips, team, [&](size_t task) {
        const size_t strip = task % strips, first = task / strips * CHUNK, end = std::min(first + CHUNK, rows);
        const Unit* weight = linear.weight + strip * depth * STRIP;
        // Weights come from memory when rows are few: the ones to follow are fetched while the last rows are computed.
        const Unit* next = weight + std::min<size_t>(team, strips - 1 - strip) * depth * STRIP;
        const Unit* const b[2] = {weight, weight + PAGE};
        alignas(64) float sums[ROWS<2> * STRIP];
        for (size_t row = first; row < end; row += ROWS<2>) {
            const size_t count = std::min<size_t>(ROWS<2>, end - row);
            multiply<T, 2>({reinterpret_cast<const Unit*>(x) + row * depth, depth, b, STRIP, 1, depth, sums, STRIP,
                            false, row + count == end ? next : weight}, count);
            for (size_t i = 0; i < count; i++) {
                float* const one = sums + i * STRIP;
                if (linear.bias)
                    for (int j = 0; j < STRIP; j += LANES)
                        store(one + j, load(one + j) + load(linear.bias + strip * STRIP + j));
                finish(row + i, strip, one);
            }
        }
    });
}

// To a matrix of `columns`; `put` takes where and a vector. The last strip may be narrower.
template <class To, class Put>
void put_strip(To* row, size_t columns, size_t strip, const float* sums, Put put) {
    const size_t first = strip * STRIP;
    size_t j = 0;
    for (; j < STRIP && first + j + LANES <= columns; j += LANES) put(row + first + j, load(sums + j));
    if (j < STRIP && first + j < columns) {
        To rest[LANES] = {};
        memcpy(rest, row + first + j, (columns - first - j) * sizeof(To));
        put(rest, load(sums + j));
        memcpy(row + first + j, rest, (columns - first - j) * sizeof(To));
    }
}

inline void add(float* to, Vec x) { store(to, load(to) + x); }

template <class T>
inline void put(T* to, Vec x) { store(to, x); }

// x times its inverse root mean square times weight; `size` a multiple of 16.
template <class From, class T>
void rms_norm(const From* x, const float* weight, size_t size, float epsilon, T* to) {
    Vec squares{};
    for (size_t i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
    const float factor = 1.0f / std::sqrt(sum(squares) / float(size) + epsilon);
    for (size_t i = 0; i < size; i += LANES) store(to + i, load(x + i) * factor * load(weight + i));
}

// `task(row)` for each row, some at a time.
template <class Task>
void each_row(Crew& crew, int team, size_t rows, Task task) {
    const size_t share = std::clamp<size_t>(rows / (4 * team), 1, 16);
    crew.each((rows + share - 1) / share, team, [&](size_t i) {
        for (size_t row = i * share; row < rows && row < (i + 1) * share; row++) task(row);
    });
}

template <class T>
struct Step {
    const Model& model;
    const Pool<T>& pool;
    const Batch& batch;
    const Plan& plan;
    const Schedule& schedule;
    float* logits;
    float *hidden, *last_hidden, *qkv, *partials;
    T *normed, *queries, *attended, *last_attended, *inner;
    std::vector<Scratch<T>> scratch;

    void allocate(Buffer& buffer, int threads) {
        const size_t rows = batch.rows, samples = batch.sample_count, each = model.heads * model.size;
        const size_t queries_count = std::max<size_t>(QUERIES, model.heads / model.kv_heads);
        char* space;
        const size_t space_size = size_t(Scratch<T>{}.place(nullptr, queries_count, model.size));
        carve(buffer, [&](auto take) {
            take(hidden, rows * model.hidden);
            take(last_hidden, samples * model.hidden);
            take(qkv, rows * (model.heads + 2 * model.kv_heads) * model.size);
            take(partials, schedule.partial_count * model.heads * (model.size + 2));
            take(normed, std::max(rows, samples) * model.hidden);
            take(queries, rows * each);
            take(attended, rows * each);
            take(last_attended, samples * each);
            take(inner, std::max(rows, samples) * model.inner);
            take(space, space_size * threads);
        });
        scratch.resize(threads);
        for (auto& one : scratch) space = one.place(space, queries_count, model.size);
    }

    // What each thread does.
    void run(Crew& crew, int thread, int team) {
        const size_t width = model.hidden;
        each_row(crew, team, batch.rows, [&](size_t row) {
            const T* from = static_cast<const T*>(model.embedding) + batch.tokens[row] * width;
            for (size_t i = 0; i < width; i += LANES) store(hidden + row * width + i, load(from + i));
        });
        for (int64_t index = 0; index < model.layers; index++) {
            const Layer& layer = model.layer[index];
            norm(crew, team, hidden, batch.rows, layer.input_norm);
            const size_t qkv_width = layer.qkv.columns;
            product(crew, team, normed, batch.rows, layer.qkv, [&](size_t row, size_t strip, const float* sums) {
                put_strip(qkv + row * qkv_width, qkv_width, strip, sums, put<float>);
            });
            each_row(crew, team, batch.rows, [&](size_t row) { rotate_and_store(index, row); });
            const Attention<T> attention{pool, plan, schedule, size_t(index), size_t(model.heads), model.scale, queries,
                                         attended, partials};
            attend(crew, thread, team, attention);
            if (index + 1 < model.layers)
                finish(crew, team, layer, hidden, attended, batch.rows);
            else
                finish_last(crew, team, layer);
        }
        if (!batch.sample_count) return;
        norm(crew, team, last_hidden, batch.sample_count, model.norm);
        const size_t vocabulary = model.head.columns;
        product(crew, team, normed, batch.sample_count, model.head, [&](size_t row, size_t strip, const float* sums) {
            put_strip(logits + row * vocabulary, vocabulary, strip, sums, put<float>);
        });
    }

    void attend(Crew& crew, int thread, int team, const Attention<T>& attention) {
        crew.each(schedule.tasks.size(), team,
                  [&](size_t i) { attention.run(schedule.tasks[i], scratch[thread]); });
        if (!schedule.merges.empty())
            crew.each(schedule.merges.size(), team,
                      [&](size_t i) { attention.merge(schedule.merges[i], scratch[thread]); });
    }

    // `query` is scratch afterwards.
    void put_query(size_t row, size_t head, float* query) {
        if (pool.turned()) turn(query, model.size);
        T* to = queries + (row * model.heads + head) * model.size;
        for (int64_t d = 0; d < model.size; d += LANES) store(to + d, load(query + d));
    }

   private:
    void norm(Crew& crew, int team, const float* x, size_t rows, const float* weight) {
        const size_t width = model.hidden;
        each_row(crew, team, rows, [&](size_t row) {
            rms_norm(x + row * width, weight, width, model.norm_epsilon, normed + row * width);
        });
    }

    void rotate_and_store(size_t layer, size_t row) {
        const size_t size = model.size, half = size / 2, heads = model.heads, kv_heads = model.kv_heads;
        const float* cosine = model.cosine + batch.positions[row] * half;
        const float* sine = model.sine + batch.positions[row] * half;
        float* from = qkv + row * (heads + 2 * kv_heads) * size;
        for (size_t head = 0; head < heads + kv_heads; head++, from += size) {
            const bool is_key = head >= heads;
            const float* weight = is_key ? model.layer[layer].k_norm : model.layer[layer].q_norm;
            if (weight) rms_norm(from, weight, size, model.norm_epsilon, from);
            for (size_t d = 0; d < half; d++) {
                const float a = from[d], b = from[d + half];
                from[d] = a * cosine[d] - b * sine[d];
                from[d + half] = b * cosine[d] + a * sine[d];
            }
            if (is_key)
                pool.put_key(layer, batch.write[row], head - heads, from);
            else
                put_query(row, head, from);
        }
        for (size_t head = 0; head < kv_heads; head++, from += size)
            pool.put_value(layer, batch.write[row], head, from);
    }

    void finish(Crew& crew, int team, const Layer& layer, float* x, const T* attention, size_t rows) {
        const size_t width = model.hidden, inside = model.inner;
        auto add_to_hidden = [&](size_t row, size_t strip, const float* sums) {
            put_strip(x + row * width, width, strip, sums, add);
        };
        product(crew, team, attention, rows, layer.output, add_to_hidden);
        norm(crew, team, x, rows, layer.output_norm);
        product(crew, team, normed, rows, layer.gate_up, [&](size_t row, size_t strip, const float* sums) {
            T* to = inner + row * inside + strip * PAGE;
            for (int j = 0; j < PAGE; j += LANES) {
                store(to + j, silu(load(sums + j)) * load(sums + PAGE + j));
            }
        });
        product(crew, team, inner, rows, layer.down, add_to_hidden);
    }

    // Behind the last layer's attention only the sampled rows are wanted.
    void finish_last(Crew& crew, int team, const Layer& layer) {
        const size_t width = model.hidden, each = model.heads * model.size;
        if (!batch.sample_count) return;
        each_row(crew, team, batch.sample_count, [&](size_t i) {
            memcpy(last_hidden + i * width, hidden + batch.samples[i] * width, width * sizeof(float));
            memcpy(last_attended + i * each, attended + batch.samples[i] * each, each * sizeof(T));
        });
        finish(crew, team, layer, last_hidden, last_attended, batch.sample_count);
    }
};

template <class T>
void forward(const Threads& threads, Buffer& buffer, const Model& model, const Pool<T>& pool, const Batch& batch,
             const Plan& plan, float* logits) {
    const Schedule tasks = schedule(plan, batch.rows, int(model.heads), int(model.kv_heads), int(threads.count));
    Step<T> step{model, pool, batch, plan, tasks, logits};
    step.allocate(buffer, int(threads.count));
    Crew::run(threads.openmp, int(threads.count),
              [&](Crew& crew, int thread, int team) { step.run(crew, thread, team); });
}

// Rows of queries, keys and values as a model of torch's has them.
struct Attended {
    int64_t rows, heads, layer;
    float scale;
    const void *queries, *keys, *values;
    const int64_t* write;
    void* out;
};

template <class T>
void attend(const Threads& threads, Buffer& buffer, const Pool<T>& pool, const Attended& call, const Plan& plan) {
    const size_t heads = pool.shape.heads, size = pool.shape.size;
    const Schedule tasks = schedule(plan, call.rows, int(call.heads), int(heads), int(threads.count));
    Model model{};
    model.heads = call.heads;
    model.kv_heads = heads;
    model.size = size;
    Batch batch{call.rows, nullptr, nullptr, call.write, 0, nullptr};
    Step<T> step{model, pool, batch, plan, tasks, nullptr};
    step.allocate(buffer, int(threads.count));
    const Attention<T> attention{pool, plan, tasks, size_t(call.layer), size_t(call.heads), call.scale,
                                 step.queries, static_cast<T*>(call.out), step.partials};
    Crew::run(threads.openmp, int(threads.count), [&](Crew& crew, int thread, int team) {
        each_row(crew, team, call.rows, [&](size_t row) {
            float numbers[MAX_SIZE];
            auto read = [&](const void* from, size_t vector) {
                for (size_t d = 0; d < size; d += LANES)
                    store(numbers + d, load(static_cast<const T*>(from) + vector * size + d));
                return numbers;
            };
            for (size_t head = 0; head < size_t(call.heads); head++)
                step.put_query(row, head, read(call.queries, row * call.heads + head));
            for (size_t head = 0; head < heads; head++) {
                pool.put_key(call.layer, call.write[row], head, read(call.keys, row * heads + head));
                pool.put_value(call.layer, call.write[row], head, read(call.values, row * heads + head));
            }
        });
        step.attend(crew, thread, team, attention);
    });
}

// (rows, depth) to (rows, columns), both of the weights' format.
template <class T>
void apply(const Threads& threads, const Linear& linear, const T* x, size_t rows, T* to) {
    const size_t columns = linear.columns;
    Crew::run(threads.openmp, int(threads.count), [&](Crew& crew, int, int team) {
        product(crew, team, x, rows, linear, [&](size_t row, size_t strip, const float* sums) {
            if (!linear.paired) return put_strip(to + row * columns, columns, strip, sums, put<T>);
            for (int j = 0; j < STRIP; j += LANES)
                store(to + row * columns + j / PAGE * (columns / 2) + strip * PAGE + j % PAGE, load(sums + j));
        });
    });
}

}  // namespace prefold

// What Python calls. `bfloat16` chooses the format; the result is 0, or 1 where memory is short.

using namespace prefold;

struct AnyPool {
    Shape shape;
    int64_t bits;
    uint8_t *keys, *values;

    template <class T>
    Pool<T> of() const { return {shape, bits, keys, values}; }
};

template <class Work>
static int guarded(Work work) {
    try {
        work();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

#pragma GCC visibility push(default)
extern "C" {

void* prefold_buffer_new() { return new (std::nothrow) Buffer; }

void prefold_buffer_free(void* buffer) { delete static_cast<Buffer*>(buffer); }

int prefold_forward(int bfloat16, const Threads* threads, void* buffer, const Model* model, const AnyPool* pool,
                    const Batch* batch, const Plan* plan, float* logits) {
    return guarded([&] {
        auto& memory = *static_cast<Buffer*>(buffer);
        bfloat16 ? forward(*threads, memory, *model, pool->of<uint16_t>(), *batch, *plan, logits)
                 : forward(*threads, memory, *model, pool->of<float>(), *batch, *plan, logits);
    });
}

int prefold_attend(int bfloat16, const Threads* threads, void* buffer, const AnyPool* pool, const Attended* call,
                   const Plan* plan) {
    return guarded([&] {
        auto& memory = *static_cast<Buffer*>(buffer);
        bfloat16 ? attend(*threads, memory, pool->of<uint16_t>(), *call, *plan)
                 : attend(*threads, memory, pool->of<float>(), *call, *plan);
    });
}

void prefold_apply(int bfloat16, const Threads* threads, const Linear* linear, const void* x, int64_t rows, void* to) {
    bfloat16 ? apply(*threads, *linear, static_cast<const uint16_t*>(x), rows, static_cast<uint16_t*>(to))
             : apply(*threads, *linear, static_cast<const float*>(x), rows, static_cast<float*>(to));
}

// Records to slots, or with `out` slots to records.
void prefold_copy(int bfloat16, const Threads* threads, const AnyPool* pool, const int64_t* slots, int64_t count,
                  uint8_t* records, int out) {
    bfloat16 ? pool->of<uint16_t>().copy(threads->openmp, int(threads->count), slots, count,
                                         records, out)
             : pool->of<float>().copy(threads->openmp, int(threads->count), slots, count,
                                      records, out);
}

}  // extern "C"
#pragma GCC visibility pop
