/* The kernels, and what of them only tests call by itself. With EMULATED_TILES, AMX's instructions are C. */

#ifdef EMULATED_TILES
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define TILES

static _Thread_local struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} in_force;
static _Thread_local uint32_t tiles[8][16][16];

static float widened(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static void multiply_tiles(int to, int a, int b) {
    for (int row = 0; row < in_force.rows[a]; row++)
        for (int word = 0; word < 16; word++)
            for (int column = 0; column < 16; column++) {
                uint32_t x = tiles[a][row][word], y = tiles[b][word][column];
                float sum = widened(tiles[to][row][column]);
                sum = __builtin_fmaf(widened(x << 16), widened(y << 16), sum);
                sum = __builtin_fmaf(widened(x & 0xFFFF0000), widened(y & 0xFFFF0000), sum);
                memcpy(&tiles[to][row][column], &sum, sizeof sum);
            }
}

static void move_tile(int tile, char *at, long stride, int store) {
    for (int row = 0; row < in_force.rows[tile]; row++)
        memcpy(store ? at + row * stride : (char *)tiles[tile][row], store ? (char *)tiles[tile][row] : at + row * stride,
               in_force.bytes[tile]);
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(from) memcpy(&in_force, from, sizeof in_force)
#define _tile_loadd(tile, at, stride) move_tile(tile, (char *)(at), stride, 0)
#define _tile_stored(tile, at, stride) move_tile(tile, (char *)(at), stride, 1)
#define _tile_dpbf16ps multiply_tiles
#define _tile_release() memset(&in_force, 0, sizeof in_force)
#endif

#include "kernels.c"

int64_t multiply(const matrix *m, int64_t in_bf16, const float *x, int64_t rows, int64_t threads, float *out) {
    word *fed = malloc(4 * (rows + 1) * (2 * m->steps + PAD));
#pragma omp parallel num_threads((int)threads)
    product(in_bf16, m, x, rows, fed, out);
    free(fed);
    return 0;
}

void exponentials(const float *x, int64_t size, float *out) {
    for (int64_t i = 0; i < size; i++)
        out[i] = exponential(x[i]);
}

float sum(float *x, int64_t size) { return total(x, size); }

float multiply_add(float a, float b, float c) { return fused1(a, b, c); }
