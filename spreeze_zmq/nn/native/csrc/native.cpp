// Multilayer perceptrons, convolutions and the operations of an update between them, forward and backward, on one
// core: a plain C interface for nn/.
//
// Matrices are stored in panels of P columns, [columns / P][R][P], so that a tile of MR rows and P columns stays in
// registers while it is summed. Rows are processed in blocks of R, which fit the core's cache; the gradients of
// weights are sums over the blocks. Compiled with or without AVX2, AVX-512, AVX512-BF16 and
// AMX.
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "atoms.h"
#include "convolution.h"
#include "elementwise.h"
#include "pointwise.h"
#include "products.h"

namespace {

// --- memory of this thread, reused from call to call

struct Scratch {
  struct Free { void operator()(void* p) const { ::operator delete(p, std::align_val_t(64)); } };
  struct Buffer { std::unique_ptr<void, Free> memory; size_t size = 0; };
  static std::vector<Buffer>& kept() { thread_local std::vector<Buffer> buffers; return buffers; }
  size_t used = 0;
  template <class T> T* take(long count) {
    if (used == kept().size()) kept().emplace_back();
    Buffer& buffer = kept()[used++];
    const size_t size = std::max<size_t>(64, count * sizeof(T));
    if (buffer.size < size) {
      buffer.memory.reset();
      buffer.size = 0;
      buffer.memory.reset(::operator new(size, std::align_val_t(64)));
      buffer.size = size;
    }
    return static_cast<T*>(buffer.memory.get());
  }
};

// --- networks

struct Layer {
  long inputs, outputs, activation, norm;
  float eps;
};

template <class F> struct Networks {
  typedef typename F::Element Element; typedef typename F::Unit Unit;
  long num, rows, R, blocks, num_x, stride;
  std::vector<Layer> layers;
  struct Place { long y, slope, normal, deviation; };  // byte offsets in the memory kept for one block and network
  std::vector<Place> places;
  long x_size, network_size, block_size;
  Scratch scratch;

  // plan: networks, layers, bf16, inputs, then for each layer outputs, activation, norm, bits of epsilon.
  Networks(const int64_t* plan, long rows_, bool shared) : num(plan[0]), rows(rows_) {
    blocks = (rows + BLOCK - 1) / BLOCK;
    R = up((rows + blocks - 1) / blocks, 2);
    num_x = shared ? 1 : num;
    x_size = size(plan[3]), network_size = 0;
    for (long l = 0, inputs = plan[3]; l < plan[1]; ++l) {
      const int64_t* about = plan + 4 + 4 * l;
      double eps;
      std::memcpy(&eps, about + 3, 8);
      layers.push_back({inputs, about[0], about[1], about[2], (float)eps});
      inputs = about[0];
      Place at{network_size, 0, 0, 0};
      if (l + 1 < plan[1]) {
        network_size += size(inputs);
        at.slope = network_size, network_size += about[1] == SILU ? size(inputs) : 0;
        at.normal = network_size, network_size += about[2] ? size(inputs) : 0;
        at.deviation = network_size, network_size += about[2] ? up(4 * R, 64) : 0;
      }
      places.push_back(at);
    }
    block_size = num_x * x_size + num * network_size;
  }
  long size(long columns) const { return up(up(columns, P) * R * (long)sizeof(Element), 64); }
  long count(long block) const { return std::min(R, rows - block * R); }
  long panel() const { return R * P / F::pair; }  // units from one panel of rows to the next
  static const Unit* units(const Element* at) { return reinterpret_cast<const Unit*>(at); }

  float* padded(const float* from, long n) {
    float* to = scratch.take<float>(up(n, P));
    std::memcpy(to, from, 4 * n);
    std::memset(to + n, 0, 4 * (up(n, P) - n));
    return to;
  }

  // Weights [outputs, inputs] for products over inputs.
  const Unit* over_inputs(const float* weight, const Layer& layer) {
    const long k = up(layer.inputs, F::pair) / F::pair;
    Unit* to = scratch.take<Unit>(up(layer.outputs, P) * k);
    const float* from = weight;
    long stride = layer.inputs;
    if constexpr (F::pair == 2) {
      stride = up(layer.inputs, W) / 2;
      Element* rounded = scratch.take<Element>(2 * stride * layer.outputs);
      for (long o = 0; o < layer.outputs; ++o)
        for (long i = 0; i < layer.inputs; i += W)
          F::put(rounded + 2 * stride * o + i, load_some(weight + o * layer.inputs + i, layer.inputs - i));
      from = reinterpret_cast<const float*>(rounded);
    }
    transpose(reinterpret_cast<const uint32_t*>(from), layer.outputs, k, stride,
              reinterpret_cast<uint32_t*>(to));
    return to;
  }

  // Weights [outputs, inputs] for products over outputs.
  const Unit* over_outputs(const float* weight, const Layer& layer) {
    const long rows = up(layer.outputs, F::pair), columns = up(layer.inputs, P);
    Element* panels = scratch.take<Element>(rows * columns);
    pack<F>(weight, layer.outputs, layer.inputs, panels, rows);
    Unit* to = F::pair == 1 ? nullptr : scratch.take<Unit>(rows * columns / F::pair);
    return paired<F>(panels, layer.outputs, layer.inputs, rows, to);
  }

  // Call f(N, row) for the n rows of a block, N = 4 at a time, because a single row would wait for its own sums.
  template <class Function> static void in_fours(long n, Function f) {
    long row = 0;
    for (; row + 4 <= n; row += 4) f(std::integral_constant<int, 4>{}, row);
    for (; row < n; ++row) f(std::integral_constant<int, 1>{}, row);
  }

  // Normalise, scale, shift and activate z of N rows.
  template <int N>
  void normalise(const Layer& layer, const float* z, long row, const float* scale, const float* shift, char* base,
                 const Place& at, bool keep) {
    const long columns = up(layer.outputs, W);
    const Int last = first_lanes(layer.outputs - columns + W);
    auto place = [&](long column, int i) { return (column / P * R + row + i) * P + column % P; };
    auto* y = reinterpret_cast<Element*>(base + at.y);
    auto* normals = keep ? reinterpret_cast<Element*>(base + at.normal) : nullptr;
    auto* slopes = keep && layer.activation == SILU ? reinterpret_cast<Element*>(base + at.slope) : nullptr;
    Vec total[N]{}, squares[N]{};
    float mean[N], deviation[N];
    for (long column = 0; column < columns; column += W)
      for (int i = 0; i < N; ++i) total[i] += load<Vec>(z + place(column, i));
    for (int i = 0; i < N; ++i) mean[i] = sum(total[i]) / layer.outputs;
    for (long column = 0; column < columns; column += W)
      for (int i = 0; i < N; ++i) {
        const Vec d = load<Vec>(z + place(column, i)) - mean[i];
        squares[i] += column + W < columns ? d * d : (last ? d * d : Vec{});
      }
    for (int i = 0; i < N; ++i)
      deviation[i] = 1.0f / __builtin_sqrtf(sum(squares[i]) / layer.outputs + layer.eps);
    auto activate = [&](auto activation) {
      for (long column = 0; column < columns; column += W) {
        const Vec scales = load<Vec>(scale + column), shifts = load<Vec>(shift + column);
        for (int i = 0; i < N; ++i) {
          const Vec normal = (load<Vec>(z + place(column, i)) - mean[i]) * deviation[i];
          const Vec u = normal * scales + shifts;
          F::put(y + place(column, i), apply((long)activation, u));
          if (normals) F::put(normals + place(column, i), normal);
          if (slopes) F::put(slopes + place(column, i), silu_slope(u));
        }
      }
    };
    if (layer.activation == RELU) activate(std::integral_constant<long, RELU>{});
    else activate(layer.activation);
    if (keep) std::memcpy(reinterpret_cast<float*>(base + at.deviation) + row, deviation, sizeof deviation);
  }

  // From dL/du of N rows, with u the normalised, scaled and shifted z, to dL/dz.
  template <int N>
  void through_norm(const Layer& layer, const float* of_u, long row, const float* scale, const char* base,
                    const Place& at, Element* of_z, float* of_scale, float* of_shift) {
    const long columns = up(layer.outputs, W);
    const auto* normal = reinterpret_cast<const Element*>(base + at.normal);
    const float* deviation = reinterpret_cast<const float*>(base + at.deviation) + row;
    Vec total[N]{}, along[N]{};
    float mean[N], slant[N];
    auto place = [&](long column, int i) { return (column / P * R + row + i) * P + column % P; };
    for (long column = 0; column < columns; column += W) {
      const Vec scales = load<Vec>(scale + column);
      Vec shift_slope = load<Vec>(of_shift + column), scale_slope = load<Vec>(of_scale + column);
      for (int i = 0; i < N; ++i) {
        const Vec g = load<Vec>(of_u + place(column, i)), x = F::get(normal + place(column, i)), of_x = g * scales;
        shift_slope += g, scale_slope += g * x;
        total[i] += of_x, along[i] += of_x * x;
      }
      store(of_shift + column, shift_slope), store(of_scale + column, scale_slope);
    }
    for (int i = 0; i < N; ++i) mean[i] = sum(total[i]) / layer.outputs, slant[i] = sum(along[i]) / layer.outputs;
    for (long column = 0; column < columns; column += W) {
      const Vec scales = load<Vec>(scale + column);
      for (int i = 0; i < N; ++i) {
        const Vec of_x = load<Vec>(of_u + place(column, i)) * scales, x = F::get(normal + place(column, i));
        F::put(of_z + place(column, i), deviation[i] * (of_x - mean[i] - x * slant[i]));
      }
    }
  }

  void forward(const float* x, const float* const* parameters, float* y, char* kept) {
    char* alone = kept ? nullptr : scratch.take<char>(x_size + network_size);
    const size_t before = scratch.used;
    for (long e = 0; e < num; ++e) {
      scratch.used = before;
      std::vector<const Unit*> weights;
      std::vector<std::array<const float*, 3>> vectors;
      long widest = 0, p = 0;
      for (const Layer& layer : layers) {
        weights.push_back(over_inputs(parameters[p] + e * layer.outputs * layer.inputs, layer));
        std::array<const float*, 3> of{};
        for (int i = 0; i < (layer.norm ? 3 : 1); ++i)
          of[i] = padded(parameters[p + 1 + i] + e * layer.outputs, layer.outputs);
        vectors.push_back(of);
        p += layer.norm ? 4 : 2;
        if (layer.norm) widest = std::max(widest, layer.outputs);
      }
      float* z = scratch.take<float>(up(widest, P) * R);
      for (long block = 0; block < blocks; ++block) {
        const long n = count(block), which = num_x == 1 ? 0 : e;
        char* at = kept ? kept + block * block_size : alone;
        auto* in = reinterpret_cast<Element*>(at + (kept ? which * x_size : 0));
        char* base = kept ? at + num_x * x_size + e * network_size : at + x_size;
        if (!kept || e == 0 || num_x > 1)
          pack<F>(x + (which * rows + block * R) * layers[0].inputs, n, layers[0].inputs, in, R);
        float* out = y + (e * rows + block * R) * layers.back().outputs;
        for (size_t l = 0; l < layers.size(); ++l) {
          forward_layer(l, in, n, weights[l], vectors[l], z, base, out, kept != nullptr);
          in = reinterpret_cast<Element*>(base + places[l].y);
        }
      }
    }
  }

  void forward_layer(size_t l, const Element* in, long n, const Unit* weight,
                     const std::array<const float*, 3>& of, float* z, char* base, float* out, bool keep) {
    const Layer& layer = layers[l];
    const Place& at = places[l];
    const long k = up(layer.inputs, F::pair) / F::pair;
    const float* bias = of[0];
    auto run = [&](auto done) {
      product<F, false>(units(in), panel(), n, weight, k * P, layer.outputs, k, done);
    };
    if (l + 1 == layers.size()) {
      run([&](const float* tile, long row, long m, long column, long) {
        const long width = std::min(P, layer.outputs - column);
        for (long i = 0; i < m; ++i)
          for (long j = 0; j < width; ++j)
            out[(row + i) * layer.outputs + column + j] = tile[i * P + j] + bias[column + j];
      });
      return;
    }
    auto* y = reinterpret_cast<Element*>(base + at.y);
    if (layer.activation == RELU && !layer.norm) {
      run([&](const float* tile, long row, long m, long column, long vectors) {
        Element* to = y + (column / P * R + row) * P;
        for (long v = 0; v < vectors; ++v) {
          const Vec shift = load<Vec>(bias + column + v * W);
          for (long i = 0; i < m; ++i)
            F::put(to + i * P + v * W, apply(RELU, load<Vec>(tile + i * P + v * W) + shift));
        }
      });
      return;
    }
    auto* slopes = keep && layer.activation == SILU ? reinterpret_cast<Element*>(base + at.slope) : nullptr;
    run([&](const float* tile, long row, long m, long column, long vectors) {
      for (long i = 0; i < m; ++i)
        for (long v = 0; v < vectors; ++v) {
          const Vec u = load<Vec>(tile + i * P + v * W) + load<Vec>(bias + column + v * W);
          const long to = (column / P * R + row + i) * P + v * W;
          if (layer.norm) { store(z + to, u); continue; }
          F::put(y + to, apply(layer.activation, u));
          if (slopes) F::put(slopes + to, silu_slope(u));
        }
    });
    if (layer.norm)
      in_fours(n, [&](auto many, long row) { normalise<many>(layer, z, row, of[1], of[2], base, at, keep); });
  }

  // gradients: like parameters, each null if it is not wanted, and added to if asked; of_x: [networks, rows, inputs]
  // or null.
  void backward(const float* const* parameters, const char* kept, const float* of_y, float* of_x,
                float* const* gradients, bool add) {
    long widest = layers[0].inputs;
    for (const Layer& layer : layers) widest = std::max(widest, layer.outputs);
    const long most = up(widest, P) * R;
    auto* of_z = scratch.take<Element>(most);
    auto* below = scratch.take<Element>(most);
    auto* of_u = scratch.take<float>(most);
    auto* left = scratch.take<Unit>(F::pair == 1 ? 0 : most / 2);
    auto* right = scratch.take<Unit>(F::pair == 1 ? 0 : most / 2);
    const size_t before = scratch.used;
    for (long e = 0; e < num; ++e) {
      scratch.used = before;
      std::vector<const Unit*> weights;
      std::vector<std::array<float*, 3>> sums;  // of bias, scale, shift
      std::vector<const float*> scales;
      long p = 0;
      for (size_t l = 0; l < layers.size(); p += layers[l++].norm ? 4 : 2) {
        const Layer& layer = layers[l];
        const bool on = l > 0 || of_x;
        weights.push_back(on ? over_outputs(parameters[p] + e * layer.outputs * layer.inputs, layer) : nullptr);
        scales.push_back(layer.norm ? padded(parameters[p + 2] + e * layer.outputs, layer.outputs) : nullptr);
        std::array<float*, 3> of{};
        for (int i = 0; i < (layer.norm ? 3 : 1); ++i) {
          of[i] = scratch.take<float>(up(layer.outputs, P));
          std::memset(of[i], 0, 4 * up(layer.outputs, P));
        }
        sums.push_back(of);
      }
      for (long block = 0; block < blocks; ++block) {
        const long n = count(block);
        const char* x = kept + block * block_size + (num_x == 1 ? 0 : e) * x_size;
        const char* base = kept + block * block_size + num_x * x_size + e * network_size;
        const long outputs = layers.back().outputs;
        pack<F>(of_y + (e * rows + block * R) * outputs, n, outputs, of_z, R);
        long q = p;
        for (long l = layers.size() - 1; l >= 0; --l) {
          const Layer& layer = layers[l];
          q -= layer.norm ? 4 : 2;
          const auto* in = reinterpret_cast<const Element*>(l ? base + places[l - 1].y : x);
          if (gradients[q + 1]) add_rows<F>(of_z, n, layer.outputs, R, sums[l][0]);
          if (gradients[q])
            weight_gradient(layer, paired<F>(of_z, n, layer.outputs, R, left),
                            paired<F>(in, n, layer.inputs, R, right), n,
                            gradients[q] + e * layer.outputs * layer.inputs, add || block > 0);
          if (l > 0) {
            backward_layer(l, of_z, n, weights[l], base, of_u, below);
            const Layer& lower = layers[l - 1];
            const auto& of = sums[l - 1];
            if (lower.norm)
              in_fours(n, [&](auto many, long row) {
                through_norm<many>(lower, of_u, row, scales[l - 1], base, places[l - 1], below, of[1], of[2]);
              });
            std::swap(of_z, below);
          } else if (of_x) {
            input_gradient(of_z, n, weights[0], of_x + (e * rows + block * R) * layer.inputs);
          }
        }
      }
      long q = 0;
      for (size_t l = 0; l < layers.size(); q += layers[l++].norm ? 4 : 2)
        for (int i = 0; i < (layers[l].norm ? 3 : 1); ++i)
          if (float* to = gradients[q + 1 + i]) {
            to += e * layers[l].outputs;
            for (long o = 0; o < layers[l].outputs; ++o) to[o] = (add ? to[o] : 0.0f) + sums[l][i][o];
          }
    }
  }

  void weight_gradient(const Layer& layer, const Unit* of_z, const Unit* in, long n, float* to, bool add) {
    auto done = [&](const float* tile, long row, long m, long column, long) {
      const long width = std::min(P, layer.inputs - column);
      for (long i = 0; i < m; ++i) {
        float* at = to + (row + i) * layer.inputs + column;
        if (add) for (long j = 0; j < width; ++j) at[j] += tile[i * P + j];
        else std::memcpy(at, tile + i * P, 4 * width);
      }
    };
    const long num_k = up(n, F::pair) / F::pair;
#if defined(SPREEZE_TILES)
    if constexpr (F::pair == 2)
      if (num_k >= TILE && layer.outputs >= TILE) {
        const size_t before = scratch.used;
        const long to_panel = layer.outputs * TILE;
        auto* to_rows = scratch.take<Unit>(up(num_k, TILE) / TILE * to_panel);
        turned(of_z, num_k, layer.outputs, R, to_rows, to_panel);
        scratch.used = before;
        return product<F, false>(to_rows, to_panel, layer.outputs, in, panel(), layer.inputs, num_k, done);
      }
#endif
    product<F, true>(of_z, panel(), layer.outputs, in, panel(), layer.inputs, num_k, done);
  }

  // Back through linear layer l and the activation below it, into `below`, or into of_u if there is a norm below.
  void backward_layer(size_t l, const Element* of_z, long n, const Unit* weight, const char* base, float* of_u,
                      Element* below) {
    const Layer &layer = layers[l], &lower = layers[l - 1];
    const Place& at = places[l - 1];
    const auto* y = reinterpret_cast<const Element*>(base + (lower.activation == SILU ? at.slope : at.y));
    const long k = up(layer.outputs, F::pair) / F::pair;
    if (lower.activation == RELU && !lower.norm) {
      auto masked = [&](const float* tile, long row, long m, long column, long vectors) {
        const long place = (column / P * R + row) * P;
        for (long i = 0; i < m; ++i)
          for (long v = 0; v < vectors; ++v) {
            const Vec g = load<Vec>(tile + i * P + v * W);
            F::put(below + place + i * P + v * W, F::get(y + place + i * P + v * W) > 0.0f ? g : Vec{});
          }
      };
      product<F, false>(units(of_z), panel(), n, weight, k * P, layer.inputs, k, masked);
      return;
    }
    auto done = [&](const float* tile, long row, long m, long column, long vectors) {
      for (long i = 0; i < m; ++i)
        for (long v = 0; v < vectors; ++v) {
          const long to = (column / P * R + row + i) * P + v * W;
          const Vec g = load<Vec>(tile + i * P + v * W) *
                        (lower.activation == NONE ? Vec{} + 1.0f : slope(lower.activation, F::get(y + to)));
          if (lower.norm) store(of_u + to, g);
          else F::put(below + to, g);
        }
    };
    product<F, false>(units(of_z), panel(), n, weight, k * P, layer.inputs, k, done);
  }

  void input_gradient(const Element* of_z, long n, const Unit* weight, float* to) {
    const Layer& layer = layers[0];
    const long k = up(layer.outputs, F::pair) / F::pair;
    auto done = [&](const float* tile, long row, long m, long column, long) {
      const long width = std::min(P, layer.inputs - column);
      for (long i = 0; i < m; ++i)
        std::memcpy(to + (row + i) * layer.inputs + column, tile + i * P, 4 * width);
    };
    product<F, false>(units(of_z), panel(), n, weight, k * P, layer.inputs, k, done);
  }
};

// Returns 0, or 1 if there is too little memory.
template <class Call> int guarded(Call call) noexcept {
  try {
    call();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

template <class Call> int with(const int64_t* plan, long rows, long shared, Call call) noexcept {
  return guarded([&] {
#if defined(__AVX512BF16__)
    if (plan[2]) {
#if defined(SPREEZE_TILES)
      const Tiles tiles;
#endif
      Networks<Bf16> networks(plan, rows, shared);
      return call(networks);
    }
#endif
    Networks<Fp32> networks(plan, rows, shared);
    call(networks);
  });
}

}  // namespace

extern "C" {

int spreeze_has_bf16() {
#if defined(__AVX512BF16__)
  return 1;
#else
  return 0;
#endif
}

// Whether the system allows this process all registers of the instruction set.
int spreeze_allowed() {
#if defined(SPREEZE_TILES)
  return Tiles::allowed();
#else
  return 1;
#endif
}

int64_t spreeze_multiply_adds(int64_t bf16, int64_t turns) {
#if defined(__AVX512BF16__)
  if (bf16) return multiply_adds<Bf16>(turns);
#endif
  return bf16 ? 0 : multiply_adds<Fp32>(turns);
}

// Number of bytes that forward keeps for backward.
int64_t spreeze_kept(const int64_t* plan, int64_t rows, int64_t shared) {
  int64_t bytes = -1;
  with(plan, rows, shared, [&](auto& networks) { bytes = networks.blocks * networks.block_size; });
  return bytes;
}

// x: [1 or networks, rows, inputs], y: [networks, rows, outputs]; kept: null if no backward follows.
int spreeze_forward(const int64_t* plan, int64_t rows, int64_t shared, const float* x,
                    const float* const* parameters, float* y, char* kept) {
  return with(plan, rows, shared, [&](auto& networks) { networks.forward(x, parameters, y, kept); });
}

int spreeze_backward(const int64_t* plan, int64_t rows, int64_t shared, const float* const* parameters,
                     const char* kept, const float* of_y, float* of_x, float* const* gradients, int64_t add) {
  return with(plan, rows, shared,
              [&](auto& networks) { networks.backward(parameters, kept, of_y, of_x, gradients, add != 0); });
}

void spreeze_adam(const double* about, const float* steps, int64_t n, int64_t weights, float* parameters,
                  float* gradient, float* mean, float* square) {
  adam_step({about[0], about[1], about[2], about[3], about[4], about[5]}, (long)*steps, n, weights, parameters, gradient,
            mean, square);
}

void spreeze_draw(int64_t rows, int64_t size, double low, double high, const float* output, const float* noise,
                  float* action, float* log_prob, float* kept) {
  draw(rows, size, low, high, output, noise, action, log_prob, kept);
}

void spreeze_draw_backward(int64_t rows, int64_t size, double low, double high, const float* kept,
                           const float* of_action, const float* of_log_prob, float* of_output) {
  draw_backward(rows, size, low, high, kept, of_action, of_log_prob, of_output);
}

// about: channels, height, width, out, kernel, stride.
int spreeze_convolve(const int64_t* about, int64_t images, const float* x, const float* weight, const float* bias,
                     float* y) {
  return guarded([&] { Convolution(about).forward(images, x, weight, bias, y); });
}

int spreeze_convolve_backward(const int64_t* about, int64_t images, const float* x, const float* weight,
                              const float* of_y, float* of_x, float* of_weight, float* of_bias) {
  return guarded([&] { Convolution(about).backward(images, x, weight, of_y, of_x, of_weight, of_bias); });
}

void spreeze_elementwise(const Elementwise* done, int64_t count) {
  for (int64_t i = 0; i < count; ++i) elementwise(done[i]);
}

void spreeze_scale_bytes(int64_t rows, int64_t columns, double limit, const uint8_t* x, const float* mean,
                         const float* deviation, float* y) {
  scale_bytes(rows, columns, (float)limit, x, mean, deviation, y);
}

void spreeze_density(int64_t rows, int64_t size, double low, double high, const float* output,
                     const float* action, float* log_prob, float* slope) {
  density(rows, size, low, high, output, action, log_prob, slope);
}

int spreeze_project(int64_t rows, int64_t atoms, double low, double high, const float* probability,
                    const float* reward, const float* discount, float* to) {
  return guarded([&] { project(rows, atoms, low, high, probability, reward, discount, to); });
}

void spreeze_expectation(int64_t rows, int64_t atoms, double low, double high, const float* logits, float* mean,
                         float* slope) {
  expectation(rows, atoms, low, high, logits, mean, slope);
}

void spreeze_divergence(int64_t networks, int64_t rows, int64_t atoms, const float* logits, const float* target,
                        float* loss, float* slope) {
  divergence(networks, rows, atoms, logits, target, loss, slope);
}

}  // extern "C"
