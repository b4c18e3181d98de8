// Products of matrices in panels, and the packing of matrices into panels.
#pragma once
#include <array>
#include <utility>
#include <vector>

#include "numbers.h"
#include "tiles.h"

namespace {

// --- products: tiles of M rows and N vectors, summed over k

// a: rows of panels, or with ACROSS columns of one panel; b: one panel; tile: [M][P], or with ADD added to it.
template <class F, bool ACROSS, int M, int N, bool ADD = false>
void multiply(const typename F::Unit* a, long a_panel, const typename F::Unit* b, long num_k, float* tile) {
  Vec c[M][N] = {};
  if constexpr (ADD)
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n) c[m][n] = load<Vec>(tile + m * P + n * W);
  constexpr long row = ACROSS ? 1 : P / F::pair, step = ACROSS ? P : 1;
  const long run = ACROSS ? num_k : P / F::pair;
  for (long start = 0; start < num_k; start += run, a += a_panel) {
    const typename F::Unit* at = a;
    for (long k = std::min(run, num_k - start); k > 0; --k, at += step, b += P) {
      typename F::Units v[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) v[n] = load<typename F::Units>(b + n * W);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) c[m][n] = F::fma(c[m][n], at[m * row], v[n]);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) store(tile + m * P + n * W, c[m][n]);
}

template <class F> using Multiply = void (*)(const typename F::Unit*, long, const typename F::Unit*, long, float*);

template <class F, bool ACROSS, bool ADD, int... I>
constexpr std::array<Multiply<F>, sizeof...(I)> table(std::integer_sequence<int, I...>) {
  return {multiply<F, ACROSS, I / NV + 1, I % NV + 1, ADD>...};
}

#if defined(SPREEZE_TILES)
// The rows of a product (see below) that make whole tiles; returns their number.
template <class Done>
long product_in_tiles(const uint32_t* a, long a_panel, long rows, const uint32_t* b, long b_panel, long columns,
                      long num_k, Done done) {
  static constexpr auto kernels = table<Bf16, false, true>(std::make_integer_sequence<int, MR * NV>());
  alignas(64) float sums[2 * TILE * P];
  const long whole_k = num_k / TILE * TILE, whole_rows = whole_k ? rows / TILE * TILE : 0;
  for (long column = 0; column < columns; column += P, b += b_panel) {
    const long n = std::min<long>(NV, (columns - column + W - 1) / W);
    for (long row = 0, count; row < whole_rows; row += count) {
      count = std::min(2 * TILE, whole_rows - row);
      const uint32_t* from = a + row * TILE;
      multiply_tiles<P>(from, a_panel, b, whole_k, count > TILE, sums);
      for (long i = 0, m; num_k > whole_k && i < count; i += m) {
        m = std::min<long>(MR, count - i);
        kernels[(m - 1) * NV + n - 1](from + whole_k / TILE * a_panel + i * TILE, a_panel, b + whole_k * P,
                                      num_k - whole_k, sums + i * P);
      }
      done(sums, row, count, column, n);
    }
  }
  return whole_rows;
}
#endif

// Call done(tile, row, rows, column, vectors) for each tile of [rows, columns]; the distances are those between
// panels.
template <class F, bool ACROSS, class Done>
void product(const typename F::Unit* a, long a_panel, long rows, const typename F::Unit* b, long b_panel,
             long columns, long num_k, Done done) {
  static constexpr auto kernels = table<F, ACROSS, false>(std::make_integer_sequence<int, MR * NV>());
  alignas(64) float tile[MR * P];
  long first = 0;
#if defined(SPREEZE_TILES)
  if constexpr (F::pair == 2 && !ACROSS)
    first = product_in_tiles(a, a_panel, rows, b, b_panel, columns, num_k, done);
#endif
  for (long column = 0; column < columns; column += P, b += b_panel) {
    const long n = std::min<long>(NV, (columns - column + W - 1) / W);
    for (long row = first, m; row < rows; row += m) {
      m = std::min<long>(MR, (ACROSS ? std::min(rows, row / P * P + P) : rows) - row);
      const auto* from = ACROSS ? a + row / P * a_panel + row % P : a + row * (P / F::pair);
      kernels[(m - 1) * NV + n - 1](from, a_panel, b, num_k, tile);
      done(tile, row, m, column, n);
    }
  }
}

// Only multiply-adds, on numbers in the nearest cache: the limit of the instruction set. Returns the operations.
template <class F> int64_t multiply_adds(long turns) {
  constexpr long num_k = 128;
  const std::vector<uint32_t> ones(num_k * P, 0x3f803f80);  // of either format
  const auto* numbers = reinterpret_cast<const typename F::Unit*>(ones.data());
#if defined(SPREEZE_TILES)
  if constexpr (F::pair == 2) {
    const Tiles tiles;
    alignas(64) float sums[2 * TILE * P];
    for (long turn = 0; turn < turns; ++turn) multiply_tiles<P>(numbers, 2 * TILE * TILE, numbers, num_k, true, sums);
    return 2 * F::pair * 2 * TILE * P * num_k * turns;
  }
#endif
  alignas(64) float tile[MR * P];
  for (long turn = 0; turn < turns; ++turn) {
    multiply<F, true, MR, NV>(numbers, 0, numbers, num_k, tile);
    asm volatile("" ::"r"(tile), "r"(numbers) : "memory");  // keeps the compiler from hoisting the product
  }
  return 2 * F::pair * MR * P * num_k * turns;
}

// --- packing

// Pack rows [rows, columns] into panels R rows apart; the rest of the last vector becomes 0.
template <class F>
void pack(const float* from, long rows, long columns, typename F::Element* to, long R) {
  for (long row = 0; row < rows; ++row, from += columns)
    for (long column = 0; column < columns; column += W)
      F::put(to + (column / P * R + row) * P + column % P, load_some(from + column, columns - column));
}

// Add rows of panels R rows apart, in order, to a total of them.
template <class F>
void add_rows(const typename F::Element* from, long rows, long columns, long R, float* total) {
  for (long column = 0; column < columns; column += W) {
    const auto* at = from + column / P * R * P + column % P;
    Vec s = load<Vec>(total + column);
    for (long row = 0; row < rows; ++row) s += F::get(at + row * P);
    store(total + column, s);
  }
}

// Pack panels for a product over their rows: for bf16 two rows side by side.
template <class F>
const typename F::Unit* paired(const typename F::Element* from, long rows, long columns, long R,
                               typename F::Unit* to) {
  if constexpr (F::pair == 1) return from;
#if defined(__AVX512BF16__)
  else {
    for (long column = 0; column < columns; column += W) {
      const auto* x = from + column / P * R * P + column % P;
      auto* y = to + column / P * (R / 2) * P + column % P;
      for (long row = 0; row < rows; row += 2, x += 2 * P, y += P)
        store(y, row + 1 < rows ? F::wide(x) | (F::wide(x + P) << 16) : F::wide(x));
    }
    return to;
  }
#endif
}

// Transpose each square of 4 x 4 of four rows in place.
inline void turn_squares(Bits& a, Bits& b, Bits& c, Bits& d) {
  Bits low, high, low_pairs, high_pairs;
#pragma GCC unroll 16
  for (int j = 0; j < W; ++j) {
    const int square = j & ~3, other = j & 1 ? W : 0, pair = j & 2 ? W : 0;
    low[j] = square + (j & 2) / 2 + other, high[j] = low[j] + 2;
    low_pairs[j] = square + (j & 1) + pair, high_pairs[j] = low_pairs[j] + 2;
  }
  const Bits ab = __builtin_shuffle(a, b, low), above = __builtin_shuffle(a, b, high);
  const Bits cd = __builtin_shuffle(c, d, low), beyond = __builtin_shuffle(c, d, high);
  a = __builtin_shuffle(ab, cd, low_pairs), b = __builtin_shuffle(ab, cd, high_pairs);
  c = __builtin_shuffle(above, beyond, low_pairs), d = __builtin_shuffle(above, beyond, high_pairs);
}

// Transpose W rows of W numbers.
inline void turn(Bits* r) {
#pragma GCC unroll 4
  for (int i = 0; i < W; i += 4) turn_squares(r[i], r[i + 1], r[i + 2], r[i + 3]);
#pragma GCC unroll 2
  for (int s = 4; s < W; s *= 2) {
    Bits low, high;
    for (int j = 0; j < W; ++j) low[j] = j & s ? W + j - s : j, high[j] = j & s ? W + j : j + s;
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) {
      if (i & s) continue;
      const Bits a = r[i], b = r[i + s];
      r[i] = __builtin_shuffle(a, b, low), r[i + s] = __builtin_shuffle(a, b, high);
    }
  }
}

// Pack 32-bit numbers [rows, columns] into panels [rows / P][columns][P] of the transpose, filled up with 0.
void transpose(const uint32_t* from, long rows, long columns, long stride, uint32_t* to) {
  for (long row = 0; row < up(rows, P); row += W) {
    uint32_t* panel = to + row / P * columns * P + row % P;
    for (long column = 0; column < columns; column += W) {
      Bits r[W];
      const long count = std::min<long>(W, columns - column);
      for (int i = 0; i < W; ++i)
        r[i] = row + i < rows ? (Bits)load_some(from + (row + i) * stride + column, count) : Bits{};
      turn(r);
      for (long j = 0; j < count; ++j) store(panel + (column + j) * P, r[j]);
    }
  }
}

#if defined(SPREEZE_TILES)
// Pack panels of pairs [pairs][P], R / 2 rows apart, into panels [columns][TILE] of the transpose, to_panel
// apart.
void turned(const uint32_t* from, long pairs, long columns, long R, uint32_t* to, long to_panel) {
  for (long pair = 0; pair < pairs; pair += TILE, to += to_panel)
    for (long column = 0; column < columns; column += TILE) {
      const uint32_t* at = from + column / P * (R / 2) * P + pair * P + column % P;
      Bits r[W];
      for (long i = 0; i < TILE; ++i) r[i] = pair + i < pairs ? load<Bits>(at + i * P) : Bits{};
      turn(r);
      for (long i = 0; i < std::min(TILE, columns - column); ++i) store(to + (column + i) * TILE, r[i]);
    }
}
#endif

}  // namespace
