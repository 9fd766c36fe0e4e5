/* A decoder's forward pass, and drafting with it. The package's docstring says how a row's bits are kept.

   build.py compiles this for one level of processors, with the cache's PAGE_SIZE. The structures are those of
   bindings.py, field by field. A team of threads runs a pass together, each all of the code: an `omp for` deals its iterations out to
   them and waits until all are done. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <omp.h>
#ifdef __FMA__
#include <immintrin.h>
#endif

/* Of a vector; and how many rows' sums with two vectors, or four, stay in registers. */
#ifdef __AVX512F__
enum { LANES = 16, BLOCK = 8, WIDE = 4 };
#else
enum { LANES = 8, BLOCK = 5, WIDE = 2 };
#endif
enum {
    WIDTH = 2 * LANES, /* outputs of a panel of a weight */
    STRETCH = 64,      /* steps that groups of rows take one after another, while the weights are in the cache */
    AHEAD = 8192,      /* bytes of a weight that are fetched before they are read, or memory would idle during sums */
    TILE = 16,         /* rows of a tile, and words of a row */
    PAD = 16,          /* words between rows of inputs: tiles of rows a power of two apart would evict each other */
};
#ifdef __AMX_BF16__
#define TILES
#endif

/* How inputs meet weights in a step: one fp32 each; two fp32 and a word of two bf16, which is widened; a word each. */
enum kind { FLOATS, WIDENED, PAIRS };
#ifdef __AVX512BF16__
enum { BF16 = PAIRS };
#else
enum { BF16 = WIDENED };
#endif

typedef uint32_t word __attribute__((may_alias)); /* a float's bits, or two bf16, the former in the lower half */
#define UPPER 0xFFFF0000

/* How weights are packed: a panel's width, and in bf16 what its steps are a multiple of. */
const int64_t panel_width = WIDTH;
#ifdef TILES
const int64_t panel_steps = TILE;
#else
const int64_t panel_steps = 1;
#endif

typedef struct {
    const word *weight; /* [panels, steps, WIDTH] */
    const float *bias;  /* [outs], or NULL */
    int64_t outs, ins, steps;
} matrix;

typedef struct {
    const float *norm;
    matrix qkv;
    const float *qk_norm; /* [heads + kv heads, head_dim], or NULL */
    matrix out;
    const float *attention_out_norm, *mlp_norm; /* the former, and mlp_out_norm, norm what is added; or NULL */
    matrix gate_up, down;
    const float *mlp_out_norm, *cos, *sin; /* the tables are [context, head_dim] */
    int64_t window;                        /* the tokens that one attends over, the last ones up to itself */
} layer;

typedef struct {
    const float *embedding; /* [ids, hidden] */
    const layer *layers;
    const float *norm;
    matrix head;
    const int64_t *head_ids; /* [head's outs], or NULL where they count from 0 */
    char *cache; /* [layers, 2 * kv heads, pages, PAGE_SIZE * head_dim] */
    float eps, query_scalar; /* scores are divided by the root of the latter */
    int64_t num_layers, hidden, num_gates, num_heads, num_kv_heads, head_dim, num_pages;
    int64_t in_bf16;   /* weights, keys and values; else they are fp32 */
    int64_t gelu_tanh; /* the activation; else it is silu */
    int64_t threads;
} model;

/* A session's part of a pass: `length` rows from position `start` on; its pages begin at `pages[first_page]`. */
typedef struct {
    int64_t start, length, first_page;
} span;

/* Rows by session, and those whose logits [wanted, ids] are wanted. */
typedef struct {
    int64_t *tokens;
    span *spans;
    int64_t *pages, *wanted;
    float *logits;
    int64_t num_rows, num_spans, num_wanted;
} pass;

typedef struct {
    int64_t steps, num_ids, most; /* of the head's outs the first that are drawn; of the best ids, how many are wanted */
    const float *noise;           /* [steps, spans, num_ids], or NULL */
    const double *edges, *chances, *worths;
    double *survivals;
    int64_t num_edges, enough;
    int64_t *drawn;  /* [steps, spans, most] */
    double *margins; /* [steps, spans] */
} drawing;

/* Up to BLOCK rows that are a session's next. */
typedef struct {
    int64_t row, rows, position;
    const int64_t *pages;
} block;

typedef struct {
    block *blocks;
    int64_t num_blocks, num_rows, most_scores; /* tokens of whole pages */
    float *x, *normed, *projected, *attended, *active, *chosen, *scores;
    word *fed;
} scratch;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Vectors; they and words are loaded from wherever floats lie. */

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint32_t words_at __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline floats splat(uint32_t word) {
#if defined __AVX512F__
    return (floats)_mm512_set1_epi32((int)word);
#elif defined __FMA__
    return (floats)_mm256_set1_epi32((int)word);
#else
    return (floats)(word - (words){0});
#endif
}

/* a * b + c, rounded once where the processor can do that. */
static inline floats fused(floats a, floats b, floats c) {
#if defined __AVX512F__
    return _mm512_fmadd_ps(a, b, c);
#elif defined __FMA__
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

static inline float fused1(float a, float b, float c) {
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

static inline floats add_pairs(floats sums, words a, words b) {
#ifdef __AVX512BF16__
    return _mm512_dpbf16_ps(sums, (__m512bh)a, (__m512bh)b);
#else
    (void)a, (void)b;
    return sums;
#endif
}

static inline float as_float(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* To even where it lies between two; what is no number stays none, whose bits rounding could carry into a number's. */
static inline uint16_t to_bf16(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    uint32_t even = bits + 0x7FFF + (bits >> 16 & 1);
    return (number == number ? even : 0x7FC00000) >> 16;
}

/* e^x, right to 4e-7 of it; of what lies beyond -87 .. 88, where e^x is no normal number, that of the nearer one. */
static inline float exponential(float x) {
    const float magic = 0x1.8p23f; /* added to a number, it leaves the nearest integer in the lowest bits */
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 1.44269504f + magic;
    float r = fused1(shifted - magic, -0.69314718f, x);
    float series = 1.9875691500e-4f; /* Cephes' polynomial for e^r, |r| <= ln(2) / 2, from r^2 on */
    series = fused1(series, r, 1.3981999507e-3f);
    series = fused1(series, r, 8.3334519073e-3f);
    series = fused1(series, r, 4.1665795894e-2f);
    series = fused1(series, r, 1.6666665459e-1f);
    series = fused1(series, r, 5.0000001201e-1f);
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return fused1(series, r * r, r + 1.0f) * as_float((bits << 23) + 0x3F800000);
}

/* The sum of x, which is overwritten: its second half is added to its first until one number is left. */
static inline float total(float *x, int64_t size) {
    while (size > 1) {
        int64_t half = (size + 1) / 2;
#pragma GCC ivdep
        for (int64_t i = 0; i < size - half; i++)
            x[i] += x[half + i];
        size = half;
    }
    return x[0];
}

/* Products: out [rows, columns] += x [rows, steps] @ weight [steps, columns]. Strides in words. */

typedef struct {
    const word *x, *weight;
    float *out;
    int64_t x_stride, weight_stride, out_stride;
} operands;

/* What the steps from `first` to before `end` add to some rows and vectors of columns, whose sums stay in registers.
   Kind and shape are constants wherever it is inlined. */
#define UNROLLED _Pragma("GCC unroll 8") for
static inline __attribute__((always_inline)) void add_block(enum kind kind, int rows, int vectors, const operands *p,
                                                            int64_t first, int64_t end) {
    const int64_t weight_stride = p->weight_stride, x_stride = p->x_stride, x_step = kind == WIDENED ? 2 : 1;
    const word *weight = p->weight + first * weight_stride, *x = p->x + first * x_step;
    floats sums[BLOCK][4];
    UNROLLED (int row = 0; row < rows; row++)
        UNROLLED (int v = 0; v < vectors; v++)
            sums[row][v] = (floats)*(const words_at *)(p->out + row * p->out_stride + v * LANES);
    for (int64_t step = first; step < end; step++, weight += weight_stride, x += x_step) {
        words column[4]; /* widened, first the former inputs' weights, then the latter's */
        UNROLLED (int v = 0; v < vectors; v++) {
            column[v] = *(const words_at *)(weight + v * LANES);
            column[v] = kind == WIDENED ? column[v] << 16 : column[v];
            __builtin_prefetch((const char *)(weight + v * LANES) + AHEAD);
        }
        UNROLLED (int row = 0; row < rows; row++) {
            floats input = splat(x[row * x_stride]);
            UNROLLED (int v = 0; v < vectors; v++)
                sums[row][v] = kind == PAIRS ? add_pairs(sums[row][v], (words)input, column[v])
                                             : fused(input, (floats)column[v], sums[row][v]);
        }
        if (kind == WIDENED)
            __asm__("" : "+r"(weight)); /* so that gcc loads them twice, for sums need the registers */
        UNROLLED (int v = 0; kind == WIDENED && v < vectors; v++)
            column[v] = *(const words_at *)(weight + v * LANES) & UPPER;
        UNROLLED (int row = 0; kind == WIDENED && row < rows; row++) {
            floats input = splat(x[row * x_stride + 1]);
            UNROLLED (int v = 0; v < vectors; v++)
                sums[row][v] = fused(input, (floats)column[v], sums[row][v]);
        }
    }
    UNROLLED (int row = 0; row < rows; row++)
        UNROLLED (int v = 0; v < vectors; v++)
            *(words_at *)(p->out + row * p->out_stride + v * LANES) = (words)sums[row][v];
}

static __attribute__((noinline)) void add_rows(enum kind kind, int rows, bool wide, const operands *p, int64_t first,
                                               int64_t end) {
#define SHAPE(kind, rows, vectors) \
    case 100 * kind + 10 * rows + vectors: \
        if (rows <= (vectors == 2 ? BLOCK : WIDE)) \
            add_block(kind, rows, vectors, p, first, end); \
        break;
#define SHAPES(kind) \
    SHAPE(kind, 1, 2) SHAPE(kind, 2, 2) SHAPE(kind, 3, 2) SHAPE(kind, 4, 2) SHAPE(kind, 5, 2) SHAPE(kind, 6, 2) \
    SHAPE(kind, 7, 2) SHAPE(kind, 8, 2) SHAPE(kind, 1, 4) SHAPE(kind, 2, 4) SHAPE(kind, 3, 4) SHAPE(kind, 4, 4)
    switch (100 * kind + 10 * rows + (wide ? 4 : 2)) { SHAPES(FLOATS) SHAPES(WIDENED) SHAPES(PAIRS) }
}

/* The last columns, fewer than a panel's, in the same order. */
static void add_tail(enum kind kind, int64_t rows, int64_t steps, int64_t columns, operands p) {
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t step = 0; step < steps; step++) {
            const word *x = p.x + row * p.x_stride + step * (kind == WIDENED ? 2 : 1);
            const word *weight = p.weight + step * p.weight_stride;
            float *out = p.out + row * p.out_stride;
            float first = as_float(kind == PAIRS ? x[0] << 16 : x[0]);
            float second = kind == FLOATS ? 0 : as_float(kind == PAIRS ? x[0] & UPPER : x[1]);
#pragma GCC ivdep
            for (int64_t i = 0; i < columns; i++) {
                float sum = fused1(first, as_float(kind == FLOATS ? weight[i] : weight[i] << 16), out[i]);
                out[i] = kind == FLOATS ? sum : fused1(second, as_float(weight[i] & UPPER), sum);
            }
        }
    }
}

static void add_product(enum kind kind, int64_t rows, int64_t steps, int64_t columns, operands p) {
    const int64_t groups = (rows + BLOCK - 1) / BLOCK;
    const int64_t each = groups ? (rows + groups - 1) / groups : 1, stretch = groups > 1 ? STRETCH : steps;
    while (columns >= WIDTH) {
        const bool wide = rows <= WIDE && columns >= 2 * WIDTH; /* one row's sums would wait for each other */
        for (int64_t step = 0; step < steps; step += stretch) {
            operands group = p;
            for (int64_t row = 0; row < rows; row += each) {
                add_rows(kind, (int)least(each, rows - row), wide, &group, step, least(steps, step + stretch));
                group.x += each * p.x_stride;
                group.out += each * p.out_stride;
            }
        }
        p.weight += wide ? 2 * WIDTH : WIDTH;
        p.out += wide ? 2 * WIDTH : WIDTH;
        columns -= wide ? 2 * WIDTH : WIDTH;
    }
    if (columns)
        add_tail(kind, rows, steps, columns, p);
}

#ifdef TILES
/* A panel on AMX's tiles, registers of 16 rows of 64 bytes: 0 and 1 hold 32 inputs of up to 16 rows each, 2 and 3 as
   many weights of 16 outputs each, 4 to 7 the sums. So a weight is read once for 32 rows. */
static void add_on_tiles(int64_t rows, int64_t steps, operands p) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } layout = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {0}};
    for (int64_t row = 0; row < rows; row += 2 * TILE) {
        const int64_t upper = least(TILE, rows - row), lower = least(TILE, rows - row - upper);
        const uint8_t high = upper, low = most(1, lower), heights[] = {high, low, TILE, TILE, high, high, low, low};
        const word *x = p.x + row * p.x_stride, *weight = p.weight;
        float *out = p.out + row * p.out_stride, *lower_out = out + TILE * p.out_stride;
        memcpy(layout.rows, heights, sizeof heights);
        __asm__ volatile("" : : "r"(&layout) : "memory"); /* gcc does not know what its intrinsics read */
        _tile_loadconfig(&layout);
        _tile_loadd(4, out, 4 * p.out_stride);
        _tile_loadd(5, out + TILE, 4 * p.out_stride);
        if (lower) {
            _tile_loadd(6, lower_out, 4 * p.out_stride);
            _tile_loadd(7, lower_out + TILE, 4 * p.out_stride);
        }
        for (int64_t step = 0; step < steps; step += TILE, x += TILE, weight += TILE * WIDTH) {
            for (int64_t i = 0; i < TILE * WIDTH; i += 16)
                __builtin_prefetch((const char *)(weight + i) + AHEAD);
            _tile_loadd(0, x, 4 * p.x_stride);
            _tile_loadd(2, weight, 4 * WIDTH);
            _tile_loadd(3, weight + TILE, 4 * WIDTH);
            _tile_dpbf16ps(4, 0, 2);
            _tile_dpbf16ps(5, 0, 3);
            if (lower) {
                _tile_loadd(1, x + TILE * p.x_stride, 4 * p.x_stride);
                _tile_dpbf16ps(6, 1, 2);
                _tile_dpbf16ps(7, 1, 3);
            }
        }
        _tile_stored(4, out, 4 * p.out_stride);
        _tile_stored(5, out + TILE, 4 * p.out_stride);
        if (lower) {
            _tile_stored(6, lower_out, 4 * p.out_stride);
            _tile_stored(7, lower_out + TILE, 4 * p.out_stride);
        }
    }
    _tile_release(); /* or the registers would be saved whenever threads take turns on the core */
}
#endif

static void multiply_panel(enum kind kind, const matrix *m, int64_t panel, int64_t rows, operands p) {
    const int64_t begin = panel * WIDTH, columns = least(WIDTH, m->outs - begin);
    p.out += begin;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < columns; i++)
            p.out[row * p.out_stride + i] = m->bias ? m->bias[begin + i] : 0;
    p.weight += panel * m->steps * WIDTH;
#ifdef TILES
    if (kind == PAIRS && columns == WIDTH) {
        add_on_tiles(rows, m->steps, p);
        return;
    }
#endif
    add_product(kind, rows, m->steps, columns, p);
}

/* out [rows, outs] = x [rows, ins] @ weight.T + bias. `fed` has room for the rows as the kinds of bf16 read them. */
static void product(bool in_bf16, const matrix *m, const float *x, int64_t rows, word *fed, float *out) {
    const enum kind kind = in_bf16 ? BF16 : FLOATS;
    operands p = {(const word *)x, m->weight, out, m->ins, WIDTH, m->outs};
    if (in_bf16) {
        p.x = fed;
        p.x_stride = m->steps * (kind == WIDENED ? 2 : 1) + PAD;
#pragma omp for
        for (int64_t row = 0; row < rows; row++) {
            word *line = fed + row * p.x_stride;
            const float *from = x + row * m->ins;
            memset(line, 0, 4 * p.x_stride);
            if (kind == WIDENED)
                memcpy(line, from, 4 * m->ins);
            else
                for (int64_t i = 0; i < m->ins; i++)
                    ((uint16_t *)line)[i] = to_bf16(from[i]);
        }
    }
#pragma omp for
    for (int64_t panel = 0; panel < (m->outs + WIDTH - 1) / WIDTH; panel++)
        multiply_panel(kind, m, panel, rows, p);
}

/* Where a page of a head's keys or values lies: keys [head_dim, PAGE_SIZE], values [PAGE_SIZE, head_dim]. In bf16 two
   of the head's dimensions, or two tokens' values, share a word. */
static void *page_of(const model *m, int64_t layer, int64_t head, int64_t page) {
    const int64_t number = (layer * 2 * m->num_kv_heads + head) * m->num_pages + page;
    return m->cache + number * PAGE_SIZE * m->head_dim * (m->in_bf16 ? 2 : 4);
}

static void keep(const model *m, const float *key, const float *value, int64_t place, void *keys, void *values) {
    for (int64_t i = 0; i < m->head_dim; i++) {
        if (m->in_bf16) {
            ((uint16_t *)keys)[(i / 2 * PAGE_SIZE + place) * 2 + i % 2] = to_bf16(key[i]);
            ((uint16_t *)values)[(place / 2 * m->head_dim + i) * 2 + place % 2] = to_bf16(value[i]);
        } else {
            ((float *)keys)[i * PAGE_SIZE + place] = key[i];
            ((float *)values)[place * m->head_dim + i] = value[i];
        }
    }
}

/* out = x / sqrt(mean(x^2) + eps) * weight */
static void normalise(const model *m, const float *x, const float *weight, int64_t size, float *out) {
    for (int64_t i = 0; i < size; i++)
        out[i] = x[i] * x[i];
    const float scale = 1 / sqrtf(total(out, size) / (float)size + m->eps);
    for (int64_t i = 0; i < size; i++)
        out[i] = x[i] * scale * weight[i];
}

/* The pairs i and i + head_dim / 2 of a head, rotated in place. */
static void rotate(const model *m, const layer *l, float *head, int64_t position) {
    const float *cos = l->cos + position * m->head_dim, *sin = l->sin + position * m->head_dim;
    const int64_t half = m->head_dim / 2;
#pragma GCC ivdep
    for (int64_t i = 0; i < half; i++) {
        const float low = head[i], high = head[half + i];
        head[i] = low * cos[i] + high * sin[i];
        head[half + i] = high * cos[half + i] + low * sin[half + i];
    }
}

/* Norm and rotate a row's queries and keys; put its keys and values into the cache. */
static void place_row(const model *m, int64_t at, float *heads, int64_t position, const int64_t *pages, float *normed) {
    const int64_t rotated = m->num_heads + m->num_kv_heads, size = m->head_dim;
    const layer *l = &m->layers[at];
    for (int64_t head = 0; head < rotated; head++) {
        if (l->qk_norm) {
            normalise(m, heads + head * size, l->qk_norm + head * size, size, normed);
            memcpy(heads + head * size, normed, 4 * size);
        }
        rotate(m, l, heads + head * size, position);
    }
    const int64_t page = pages[position / PAGE_SIZE];
    for (int64_t own = 0; own < m->num_kv_heads; own++)
        keep(m, heads + (m->num_heads + own) * size, heads + (rotated + own) * size, position % PAGE_SIZE,
             page_of(m, at, own, page), page_of(m, at, m->num_kv_heads + own, page));
}

/* Make weights of a row's scores; returns their sum. */
static float weigh(float *scores, int64_t seen, float scale, float *copy) {
    float highest = scores[0];
#pragma omp simd reduction(max : highest)
    for (int64_t i = 0; i < seen; i++)
        highest = scores[i] > highest ? scores[i] : highest;
    for (int64_t i = 0; i < seen; i++)
        scores[i] = exponential((scores[i] - highest) * scale);
    memcpy(copy, scores, 4 * seen);
    return total(copy, seen);
}

/* Add to out [rows, head_dim] what a page's first `tokens` hold by their weights. */
static void mix(const model *m, const word *values, int64_t tokens, int64_t rows, operands p) {
    p.weight = values;
    p.weight_stride = m->head_dim;
    if (!m->in_bf16) {
        add_product(FLOATS, rows, tokens, m->head_dim, p);
        return;
    }
    add_product(WIDENED, rows, tokens / 2, m->head_dim, p);
    if (tokens % 2) /* of one row; what shares its words may be a later token's */
        for (int64_t i = 0; i < m->head_dim; i++)
            p.out[i] = fused1(as_float(p.x[tokens - 1]), as_float(values[tokens / 2 * m->head_dim + i] << 16), p.out[i]);
}

/* A head's part of `out` for a block's rows. Pages that no row's window reaches are not read. In the first page that one
   reaches, tokens before a row's own window weigh 0, which leaves its sums as they are. */
static void attend(const model *m, int64_t at, int64_t head, const block *b, const scratch *s, float *scores) {
    const int64_t seen = b->position + 1, end = b->position + b->rows, own = head * m->num_kv_heads / m->num_heads;
    const int64_t size = m->head_dim, all = (m->num_heads + 2 * m->num_kv_heads) * size, each = s->most_scores;
    const int64_t window = m->layers[at].window, start = most(0, seen - window) / PAGE_SIZE * PAGE_SIZE;
    float *out = s->attended + (b->row * m->num_heads + head) * size;
    operands p = {(word *)s->projected + b->row * all + head * size, NULL, scores + start, all, PAGE_SIZE, each};
    for (int64_t row = 0; row < b->rows; row++)
        memset(scores + row * each + start, 0, 4 * (rounded_up(end, PAGE_SIZE) - start));
    for (int64_t begin = start; begin < end; begin += PAGE_SIZE, p.out += PAGE_SIZE) {
        p.weight = page_of(m, at, own, b->pages[begin / PAGE_SIZE]);
        add_product(m->in_bf16 ? WIDENED : FLOATS, b->rows, m->in_bf16 ? size / 2 : size,
                    least(PAGE_SIZE, rounded_up(end - begin, WIDTH)), p);
    }
    float totals[BLOCK];
    for (int64_t row = 0; row < b->rows; row++) {
        const int64_t first = most(0, seen + row - window);
        float *own_scores = scores + row * each;
        memset(own_scores + start, 0, 4 * (first - start));
        totals[row] = weigh(own_scores + first, seen + row - first, 1 / sqrtf(m->query_scalar), scores + BLOCK * each);
        memset(out + row * m->num_heads * size, 0, 4 * size);
    }
    p = (operands){(word *)scores + start, NULL, out, each, 0, m->num_heads * size};
    const int64_t shared = seen / PAGE_SIZE * PAGE_SIZE; /* tokens of pages that all rows see whole */
    for (int64_t begin = start; begin < shared; begin += PAGE_SIZE, p.x += PAGE_SIZE)
        mix(m, page_of(m, at, m->num_kv_heads + own, b->pages[begin / PAGE_SIZE]), PAGE_SIZE, b->rows, p);
    for (int64_t row = 0; row < b->rows; row++) {
        operands one = p;
        one.x += row * each;
        one.out += row * p.out_stride;
        for (int64_t begin = shared; begin < seen + row; begin += PAGE_SIZE, one.x += PAGE_SIZE)
            mix(m, page_of(m, at, m->num_kv_heads + own, b->pages[begin / PAGE_SIZE]),
                least(PAGE_SIZE, seen + row - begin), 1, one);
        for (int64_t i = 0; i < size; i++)
            one.out[i] /= totals[row];
    }
}

/* Add the last product to the rows, where there was one, normed first if there is an `out_norm`; norm them for the next. */
static void renew(const model *m, const scratch *s, const float *out_norm, const float *norm, bool add) {
#pragma omp for
    for (int64_t row = 0; row < s->num_rows; row++) {
        float *x = s->x + row * m->hidden, *normed = s->normed + row * m->hidden, *change = normed;
        if (out_norm) {
            change = s->projected + row * m->hidden;
            normalise(m, normed, out_norm, m->hidden, change);
        }
        for (int64_t i = 0; add && i < m->hidden; i++)
            x[i] += change[i];
        normalise(m, x, norm, m->hidden, normed);
    }
}

static void add_attention(const model *m, int64_t at, const scratch *s) {
    const layer *l = &m->layers[at];
    const int64_t all = (m->num_heads + 2 * m->num_kv_heads) * m->head_dim;
    float *own_scores = s->scores + omp_get_thread_num() * (BLOCK + 1) * s->most_scores;
    product(m->in_bf16, &l->qkv, s->normed, s->num_rows, s->fed, s->projected);
#pragma omp for
    for (int64_t i = 0; i < s->num_blocks; i++)
        for (int64_t row = 0; row < s->blocks[i].rows; row++)
            place_row(m, at, s->projected + (s->blocks[i].row + row) * all, s->blocks[i].position + row,
                      s->blocks[i].pages, own_scores);
#pragma omp for
    for (int64_t i = 0; i < s->num_blocks * m->num_heads; i++)
        attend(m, at, i % m->num_heads, &s->blocks[i / m->num_heads], s, own_scores);
    product(m->in_bf16, &l->out, s->attended, s->num_rows, s->fed, s->normed);
}

/* The activation of gates times what they let through. The tanh in gelu's is written with e: 1 + tanh(u) is
   2 / (1 + e^(-2u)). */
static void activate(bool gelu_tanh, const float *gate, const float *up, int64_t size, float *active) {
    for (int64_t i = 0; gelu_tanh && i < size; i++) {
        const float x = gate[i], doubled = 1.5957691f * (x + 0.044715f * x * x * x);
        active[i] = x / (1 + exponential(-doubled)) * up[i];
    }
    for (int64_t i = 0; !gelu_tanh && i < size; i++)
        active[i] = gate[i] / (1 + exponential(-gate[i])) * up[i];
}

static void add_mlp(const model *m, int64_t at, const scratch *s) {
    const layer *l = &m->layers[at];
    product(m->in_bf16, &l->gate_up, s->normed, s->num_rows, s->fed, s->projected);
#pragma omp for
    for (int64_t row = 0; row < s->num_rows; row++) {
        const float *gate = s->projected + row * 2 * m->num_gates, *up = gate + m->num_gates;
        activate(m->gelu_tanh, gate, up, m->num_gates, s->active + row * m->num_gates);
    }
    product(m->in_bf16, &l->down, s->active, s->num_rows, s->fed, s->normed);
}

static void compute(const model *m, const pass *p, const scratch *s) {
#pragma omp for
    for (int64_t row = 0; row < p->num_rows; row++)
        memcpy(s->x + row * m->hidden, m->embedding + p->tokens[row] * m->hidden, 4 * m->hidden);
    const float *out_norm = NULL;
    for (int64_t at = 0; at < m->num_layers; at++) {
        const layer *l = &m->layers[at];
        renew(m, s, out_norm, l->norm, at > 0);
        add_attention(m, at, s);
        renew(m, s, l->attention_out_norm, l->mlp_norm, true);
        add_mlp(m, at, s);
        out_norm = l->mlp_out_norm;
    }
    renew(m, s, out_norm, m->norm, m->num_layers > 0);
#pragma omp for
    for (int64_t i = 0; i < p->num_wanted; i++)
        memcpy(s->chosen + i * m->hidden, s->normed + p->wanted[i] * m->hidden, 4 * m->hidden);
    product(m->in_bf16, &m->head, s->chosen, p->num_wanted, s->fed, p->logits);
}

static void lay_blocks(const pass *p, scratch *s) {
    int64_t row = 0;
    s->num_blocks = 0;
    s->num_rows = p->num_rows;
    for (const span *one = p->spans; one < p->spans + p->num_spans; one++)
        for (int64_t done = 0; done < one->length; done += BLOCK) {
            const int64_t rows = least(BLOCK, one->length - done);
            s->blocks[s->num_blocks++] = (block){row, rows, one->start + done, p->pages + one->first_page};
            row += rows;
        }
}

static void run(const model *m, const pass *p, scratch *s) {
    lay_blocks(p, s);
    if (m->threads == 1) { /* a team of one would be hired and let go all the same */
        compute(m, p, s);
        return;
    }
#pragma omp parallel num_threads((int)m->threads)
    compute(m, p, s);
}

/* Room for a pass over sessions that grow by so many tokens after it, in one piece that begins at `blocks`. */
static bool make_room(const model *m, const pass *p, int64_t growth, scratch *s) {
    const int64_t rows = p->num_rows, wanted = p->num_wanted, gates = m->num_gates, attended = m->num_heads * m->head_dim;
    const int64_t heads = attended + 2 * m->num_kv_heads * m->head_dim, widest = most(m->hidden, most(attended, gates));
    int64_t longest = m->head_dim; /* which the scores' room serves for, too */
    for (int64_t i = 0; i < p->num_spans; i++)
        longest = most(longest, p->spans[i].start + p->spans[i].length + growth);
    s->most_scores = rounded_up(longest, PAGE_SIZE);
    const struct {
        void **at;
        int64_t size; /* of 4 bytes each */
    } parts[] = {
        {(void **)&s->blocks, rows * sizeof(block) / 4},
        {(void **)&s->x, rows * m->hidden},
        {(void **)&s->normed, rows * m->hidden},
        {(void **)&s->projected, rows * most(m->hidden, most(heads, 2 * gates))},
        {(void **)&s->attended, rows * attended},
        {(void **)&s->active, rows * gates},
        {(void **)&s->chosen, wanted * m->hidden},
        {(void **)&s->scores, m->threads * (BLOCK + 1) * s->most_scores},
        {(void **)&s->fed, most(rows, wanted) * (rounded_up(widest, 2 * panel_steps) + PAD)},
    };
    int64_t size = 0, number = sizeof parts / sizeof parts[0];
    for (int64_t i = 0; i < number; i++)
        size += rounded_up(parts[i].size, 16);
    char *room = aligned_alloc(64, 4 * size);
    for (int64_t i = 0; room && i < number; i++, room += 4 * rounded_up(parts[i - 1].size, 16))
        *parts[i].at = room;
    return room;
}

/* Adds a pass's rows to the cache; leaves its logits. -1 where there is no memory. */
int64_t forward(const model *m, const pass *p) {
    scratch s;
    if (!make_room(m, p, 0, &s))
        return -1;
    run(m, p, &s);
    free(s.blocks);
    return 0;
}

/* The ids of the highest scores in order, -1 where there are fewer; returns the margin of the first. */
static double find_best(const float *scores, int64_t num_ids, int64_t most, int64_t *found) {
    float highest[most];
    for (int64_t i = 0; i < most; i++) {
        highest[i] = -INFINITY;
        found[i] = -1;
    }
    for (int64_t id = 0; id < num_ids; id++) {
        if (!(scores[id] > highest[most - 1]))
            continue;
        int64_t rank = most - 1;
        for (; rank > 0 && scores[id] > highest[rank - 1]; rank--) {
            highest[rank] = highest[rank - 1];
            found[rank] = found[rank - 1];
        }
        highest[rank] = scores[id];
        found[rank] = id;
    }
    if (found[0] < 0) { /* nothing but NaN, of which to be sure would be wrong */
        found[0] = 0;
        return 0;
    }
    return most > 1 ? (double)highest[0] - highest[1] : INFINITY;
}

/* Choose every line's next token; returns how many lines have ended. */
static int64_t choose(const model *m, const drawing *d, int64_t step, const pass *p) {
    int64_t ended = 0, class;
    for (int64_t line = 0; line < p->num_spans; line++) {
        const int64_t at = step * p->num_spans + line;
        int64_t *found = d->drawn + at * d->most;
        float *scores = p->logits + line * m->head.outs;
        for (int64_t id = 0; d->noise && id < d->num_ids; id++)
            scores[id] += d->noise[at * d->num_ids + id];
        const double margin = d->margins[at] = find_best(scores, d->num_ids, d->most, found);
        for (int64_t i = 0; m->head_ids && i < d->most && found[i] >= 0; i++)
            found[i] = m->head_ids[found[i]];
        for (class = 0; class < d->num_edges && !(d->edges[class] > margin);)
            class++;
        d->survivals[line] *= d->chances[class];
        ended += d->survivals[line] < d->worths[line];
    }
    return ended;
}

/* Passes in which every session draws a token and feeds it to the next: all, or those until enough have ended. The
   wanted rows are the sessions' last; `p` becomes the last pass. Returns how many there were, -1 without memory. */
int64_t draw(const model *m, pass *p, const drawing *d) {
    scratch s;
    int64_t step = 0;
    if (!make_room(m, p, d->steps - 1, &s))
        return -1;
    while (step < d->steps) {
        run(m, p, &s);
        if (choose(m, d, step++, p) >= d->enough)
            break;
        p->num_rows = p->num_spans;
        for (int64_t line = 0; line < p->num_spans; line++) {
            span *one = &p->spans[line];
            *one = (span){one->start + one->length, 1, one->first_page};
            p->tokens[line] = d->drawn[((step - 1) * p->num_spans + line) * d->most];
            p->wanted[line] = line;
        }
    }
    free(s.blocks);
    return step;
}
