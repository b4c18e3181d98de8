// Convolutions without padding that read patches in place, without copying them out of the images.
#pragma once
#include <array>
#include <utility>
#include <vector>

#include "products.h"

namespace {

// c[m][n] += sum over i of at[m][offsets[i]] * panel[i][n].
template <int M, int N>
void gather(const float* const* at, const int64_t* offsets, long count, const float* panel, float* tile) {
  Vec c[M][N];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) c[m][n] = load<Vec>(tile + m * P + n * W);
  for (long i = 0; i < count; ++i, panel += P) {
    const int64_t offset = offsets[i];
    Vec v[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) v[n] = load<Vec>(panel + n * W);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) c[m][n] += at[m][offset] * v[n];
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) store(tile + m * P + n * W, c[m][n]);
}

using Gather = void (*)(const float* const*, const int64_t*, long, const float*, float*);

template <int... I>
constexpr std::array<Gather, sizeof...(I)> gathers(std::integer_sequence<int, I...>) {
  return {gather<I / NV + 1, I % NV + 1>...};
}

// A product whose rows are addresses: tiles [rows][columns] of sums over `offsets`, for each panel of P columns.
// begin(tile, row, rows, column) returns the address of a tile that holds the numbers that the sums are added to,
// which may be in `tile`; end takes the result.
template <class Begin, class End>
void gathered(const float* from, const int64_t* rows, long num_rows, const int64_t* offsets, long count,
              const float* panels, long columns, Begin begin, End end) {
  static constexpr auto kernels = gathers(std::make_integer_sequence<int, MR * NV>());
  alignas(64) float tile[MR * P];
  const float* at[MR];
  for (long column = 0; column < columns; column += P, panels += count * P) {
    const long n = std::min<long>(NV, (columns - column + W - 1) / W);
    for (long row = 0, m; row < num_rows; row += m) {
      m = std::min<long>(MR, num_rows - row);
      for (long i = 0; i < m; ++i) at[i] = from + rows[row + i];
      float* sums = begin(tile, row, m, column);
      kernels[(m - 1) * NV + n - 1](at, offsets, count, panels, sums);
      end(sums, row, m, column);
    }
  }
}

inline const uint32_t* bits(const float* from) { return reinterpret_cast<const uint32_t*>(from); }
inline uint32_t* bits(float* from) { return reinterpret_cast<uint32_t*>(from); }

struct Convolution {
  long channels, height, width, out, kernel, stride;
  long places_down = (height - kernel) / stride + 1, places_across = (width - kernel) / stride + 1;
  long places = places_down * places_across, taps = channels * kernel * kernel;
  long image = channels * height * width, made = out * places;
  std::vector<int64_t> corners, inside, planes;  // offsets of patches, of a patch's taps, of the result's planes

  Convolution(const int64_t* about)
      : channels(about[0]), height(about[1]), width(about[2]), out(about[3]), kernel(about[4]), stride(about[5]) {
    for (long y = 0; y < places_down; ++y)
      for (long x = 0; x < places_across; ++x) corners.push_back((y * width + x) * stride);
    for (long c = 0; c < channels; ++c)
      for (long y = 0; y < kernel; ++y)
        for (long x = 0; x < kernel; ++x) inside.push_back((c * height + y) * width + x);
    for (long o = 0; o < out; ++o) planes.push_back(o * places);
  }

  // x: [images, image], weight: [out, taps], bias: [out], y: [images, made].
  void forward(long images, const float* x, const float* weight, const float* bias, float* y) const {
    std::vector<float> panels(up(out, P) * taps), first(up(out, P));
    transpose(bits(weight), out, taps, taps, bits(panels.data()));
    std::copy(bias, bias + out, first.begin());
    for (long i = 0; i < images; ++i, x += image, y += made)
      gathered(x, corners.data(), places, inside.data(), taps, panels.data(), out,
               [&](float* tile, long, long m, long column) {
                 for (long row = 0; row < m; ++row) std::copy_n(first.data() + column, P, tile + row * P);
                 return tile;
               },
               [&](const float* tile, long place, long m, long column) {
                 for (long o = 0; o < std::min(P, out - column); ++o)
                   for (long row = 0; row < m; ++row) y[(column + o) * places + place + row] = tile[row * P + o];
               });
  }

  // Add the numbers of some taps to their pixels of a patch, four at once where each four are neighbours.
  void add_taps(const float* from, const int64_t* pixels, long count, float* patch) const {
    typedef float Four __attribute__((vector_size(16)));
    if (kernel % 4)
      for (long tap = 0; tap < count; ++tap) patch[pixels[tap]] += from[tap];
    else
      for (long tap = 0; tap < count; tap += 4)
        store(patch + pixels[tap], load<Four>(patch + pixels[tap]) + load<Four>(from + tap));
  }

  // of_x may be null; of_weight [out, taps] and of_bias [out] are written.
  void backward(long images, const float* x, const float* weight, const float* of_y, float* of_x, float* of_weight,
                float* of_bias) const {
    std::vector<float> summed(up(out, P) * taps), given(up(out, P) * places), panels(up(taps, P) * out);
    std::vector<float> of_outputs(up(out, P));
    std::vector<int64_t> columns(places);
    for (long place = 0; place < places; ++place) columns[place] = place;
    if (of_x) {
      pack<Fp32>(weight, out, taps, panels.data(), out);
      std::fill(of_x, of_x + images * image, 0.0f);
    }
    for (long i = 0; i < images; ++i, x += image, of_y += made) {
      transpose(bits(of_y), out, places, places, bits(given.data()));
      add_rows<Fp32>(given.data(), places, out, places, of_outputs.data());
      gathered(x, inside.data(), taps, corners.data(), places, given.data(), out,
               [&](float*, long row, long, long column) { return summed.data() + (column / P * taps + row) * P; },
               [](const float*, long, long, long) {});
      if (!of_x) continue;
      gathered(of_y, columns.data(), places, planes.data(), out, panels.data(), taps,
               [](float* tile, long, long m, long) {
                 std::fill(tile, tile + m * P, 0.0f);
                 return tile;
               },
               [&](const float* tile, long place, long m, long column) {
                 for (long row = 0; row < m; ++row)
                   add_taps(tile + row * P, inside.data() + column, std::min(P, taps - column),
                            of_x + corners[place + row]);
               });
      of_x += image;
    }
    std::copy_n(of_outputs.data(), out, of_bias);
    for (long tap = 0; tap < taps; ++tap)
      for (long o = 0; o < out; ++o) of_weight[o * taps + tap] = summed[(o / P * taps + tap) * P + o % P];
  }
};

}  // namespace
