// Products of matrices in panels, and bringing matrices into panels.
#pragma once
#include <array>
#include <utility>

#include "numbers.h"

namespace {

// --- products: tiles of M rows and N vectors, summed over k

// a: rows of panels, or with ACROSS columns of one panel; b: one panel; tile: [M][P].
template <class F, bool ACROSS, int M, int N>
void multiply(const typename F::Unit* a, long a_panel, const typename F::Unit* b, long num_k, float* tile) {
  Vec c[M][N] = {};
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

template <class F, bool ACROSS, int... I>
constexpr std::array<Multiply<F>, sizeof...(I)> table(std::integer_sequence<int, I...>) {
  return {multiply<F, ACROSS, I / NV + 1, I % NV + 1>...};
}

// Calls done(tile, row, rows, column, vectors) for each tile of [rows, columns]; panels are that far apart.
template <class F, bool ACROSS, class Done>
void product(const typename F::Unit* a, long a_panel, long rows, const typename F::Unit* b, long b_panel,
             long columns, long num_k, Done done) {
  static constexpr auto kernels = table<F, ACROSS>(std::make_integer_sequence<int, MR * NV>());
  alignas(64) float tile[MR * P];
  for (long column = 0; column < columns; column += P, b += b_panel) {
    const long n = std::min<long>(NV, (columns - column + W - 1) / W);
    for (long row = 0, m; row < rows; row += m) {
      m = std::min<long>(MR, (ACROSS ? std::min(rows, row / P * P + P) : rows) - row);
      const auto* from = ACROSS ? a + row / P * a_panel + row % P : a + row * (P / F::pair);
      kernels[(m - 1) * NV + n - 1](from, a_panel, b, num_k, tile);
      done(tile, row, m, column, n);
    }
  }
}

// --- packing

// Rows [rows, columns] into panels that are R rows apart; the rest of the last vector becomes 0.
template <class F>
void pack(const float* from, long rows, long columns, typename F::Element* to, long R) {
  for (long row = 0; row < rows; ++row, from += columns)
    for (long column = 0; column < columns; column += W)
      F::put(to + (column / P * R + row) * P + column % P, load_some(from + column, columns - column));
}

// Panels as they are in a product over their rows: for bf16 two rows side by side.
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

// Of four rows: each square of 4 x 4 in its place.
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

// 32-bit numbers [rows, columns] to panels [rows / P][columns][P] of the transpose, filled with 0.
void transpose(const uint32_t* from, long rows, long columns, long stride, uint32_t* to) {
  for (long row = 0; row < up(rows, P); row += W) {
    uint32_t* panel = to + row / P * columns * P + row % P;
    for (long column = 0; column < columns; column += W) {
      Bits r[W];
      const long count = std::min<long>(W, columns - column);
      for (int i = 0; i < W; ++i)
        r[i] = row + i < rows ? (Bits)load_some(from + (row + i) * stride + column, count) : Bits{};
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
      for (long j = 0; j < count; ++j) store(panel + (column + j) * P, r[j]);
    }
  }
}

}  // namespace
