// Products in a processor's tiles of 16 rows of 64 bytes (Intel AMX): bf16 in pairs, sums in float.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(SPREEZE_EMULATED_TILES)  // for tests on processors without them
#define SPREEZE_TILES
#elif defined(__AMX_BF16__)
#define SPREEZE_TILES
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(SPREEZE_TILES)
namespace {

constexpr long TILE = 16;  // rows, and 32-bit units in each

#if defined(SPREEZE_EMULATED_TILES)

struct Tiles {
  static bool allowed() { return true; }
};
thread_local uint32_t tiles[8][TILE][TILE];
inline float from_bf16(uint32_t bits) { float x; bits <<= 16; std::memcpy(&x, &bits, 4); return x; }
inline void tile_zero(int to) { std::memset(tiles[to], 0, sizeof tiles[to]); }
inline void tile_load(int to, const uint32_t* from, long stride) {
  for (long row = 0; row < TILE; ++row) std::memcpy(tiles[to][row], from + row * stride, 4 * TILE);
}
inline void tile_store(int from, float* to, long stride) {
  for (long row = 0; row < TILE; ++row) std::memcpy(to + row * stride, tiles[from][row], 4 * TILE);
}
inline void tile_multiply(int c, int a, int b) {
  for (long row = 0; row < TILE; ++row)
    for (long column = 0; column < TILE; ++column) {
      float sum;
      std::memcpy(&sum, &tiles[c][row][column], 4);
      for (long k = 0; k < TILE; ++k)
        for (int half = 0; half < 2; ++half)
          sum += from_bf16(tiles[a][row][k] >> 16 * half) * from_bf16(tiles[b][k][column] >> 16 * half);
      std::memcpy(&tiles[c][row][column], &sum, 4);
    }
}

#else

// Configures eight full tiles for its thread during its lifetime; torch's products use another configuration.
struct Tiles {
  Tiles() {
    alignas(64) struct {
      uint8_t palette = 1, start = 0, none[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } all;
    for (int i = 0; i < 8; ++i) all.bytes[i] = 4 * TILE, all.rows[i] = TILE;
    asm volatile("" ::"r"(&all) : "memory");  // the compiler must have written all of it
    _tile_loadconfig(&all);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  // Linux grants a process the tile registers on request; a container may refuse.
  static bool allowed() {
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  }
};
#define tile_zero _tile_zero
#define tile_load(to, from, stride) _tile_loadd(to, from, 4 * (stride))
#define tile_store(from, to, stride) _tile_stored(from, to, 4 * (stride))
#define tile_multiply _tile_dpbf16ps

#endif

// Sums over num_k units, a multiple of TILE, of one or two tiles of rows and two of columns.
// a: panels [rows][TILE], a_panel apart; b: [num_k][P]; sums: [rows][P].
template <long P>
void multiply_tiles(const uint32_t* a, long a_panel, const uint32_t* b, long num_k, bool two, float* sums) {
  asm volatile("" ::: "memory");  // everything read below must have been written
  tile_zero(0);
  tile_zero(1);
  tile_zero(2);
  tile_zero(3);
  for (long k = 0; k < num_k; k += TILE, a += a_panel, b += TILE * P) {
    tile_load(6, b, P);
    tile_load(7, b + TILE, P);
    tile_load(4, a, TILE);
    tile_multiply(0, 4, 6);
    tile_multiply(1, 4, 7);
    if (!two) continue;
    tile_load(5, a + TILE * TILE, TILE);
    tile_multiply(2, 5, 6);
    tile_multiply(3, 5, 7);
  }
  tile_store(0, sums, P);
  tile_store(1, sums + TILE, P);
  if (!two) return;
  tile_store(2, sums + TILE * P, P);
  tile_store(3, sums + TILE * P + TILE, P);
}

}  // namespace
#endif
