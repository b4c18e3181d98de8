// What an update computes between its products, each in one pass over memory.
#pragma once
#include <cmath>

#include "numbers.h"

namespace {

// --- Adam (arXiv 1412.6980, algorithm 1), decoupled weight decay (arXiv 1711.05101, algorithm 2)

struct AdamNumbers { double learning_rate, beta1, beta2, epsilon, weight_decay, max_norm; };

// The factor that scales a gradient down to max_norm; 1 if it is not longer, or if max_norm is 0.
float shrink(double max_norm, long n, const float* gradient) {
  if (max_norm == 0.0) return 1.0f;
  double total = 0.0;
  for (long i = 0; i < n; i += 512) {
    Vec part{};
    for (long j = i; j < std::min(i + 512, n); j += W) {
      const Vec g = load_some(gradient + j, n - j);
      part += g * g;
    }
    total += sum(part);
  }
  const double factor = max_norm / (std::sqrt(total) + 1e-6);
  return factor > 1.0 ? 1.0f : factor;
}

// Step n parameters, of which the first `weights` decay and are shortened, and clear the gradient; steps counts
// from 1.
void adam_step(const AdamNumbers& about, long steps, long n, long weights, float* __restrict parameters,
               float* __restrict gradient, float* __restrict mean, float* __restrict square) {
  const float beta1 = about.beta1, beta2 = about.beta2, epsilon = about.epsilon;
  const float rest1 = 1.0 - about.beta1, rest2 = 1.0 - about.beta2;
  const float rate = about.learning_rate / (1.0 - std::pow(about.beta1, (double)steps));
  const float root = 1.0 / std::sqrt(1.0 - std::pow(about.beta2, (double)steps));
  const float stay = 1.0 - about.learning_rate * about.weight_decay;
  const float shrunk = shrink(about.max_norm, weights, gradient);
  auto move = [&](long from, long to, float kept, float scale) {
    for (long i = from; i < to; ++i) {
      const float g = scale * gradient[i];
      const float m = beta1 * mean[i] + rest1 * g, s = beta2 * square[i] + rest2 * g * g;
      mean[i] = m, square[i] = s, gradient[i] = 0.0f;
      parameters[i] = kept * parameters[i] - rate * m / (__builtin_sqrtf(s) * root + epsilon);
    }
  };
  move(0, weights, stay, shrunk);
  move(weights, n, 1.0f, 1.0f);
}

// --- the squashed normal distribution of algorithms/distributions.py

// output: [rows, 2 * size], rows of [mean, raw]; noise: [rows, size]; kept for backward: [rows, 3 * size].
void draw(long rows, long size, float low, float high, const float* output, const float* noise, float* action,
          float* log_prob, float* kept) {
  const float half = 0.5f * (high - low);
  for (long row = 0; row < rows; ++row, output += 2 * size, noise += size, action += size, kept += 3 * size) {
    Vec total{};
    for (long i = 0; i < size; i += W) {
      const long n = size - i;
      const Vec e = load_some(noise + i, n), t = tanh_of(load_some(output + size + i, n));
      const Vec log_std = low + half * (t + 1.0f), scaled = exp_of(log_std) * e;
      const Vec u = load_some(output + i, n) + scaled, a = tanh_of(u), far = u < 0.0f ? u : -u;
      // log(1 - tanh(u)^2) = 2 (log 2 - |u| - log(1 + exp(-2 |u|))), log(2 pi) / 2 = 0.9189...
      const Vec squash = 2.0f * (0.69314718f + far - log_one_plus(exp_of(2.0f * far)));
      const Vec density = -0.5f * e * e - log_std - 0.91893853f - squash;
      total += n >= W ? density : (first_lanes(n) ? density : Vec{});
      store_some(action + i, a, n), store_some(kept + i, a, n);
      store_some(kept + size + i, scaled, n), store_some(kept + 2 * size + i, t, n);
    }
    log_prob[row] = sum(total);
  }
}

// From dL/daction [rows, size] and dL/dlog_prob [rows] to dL/doutput [rows, 2 * size].
void draw_backward(long rows, long size, float low, float high, const float* kept, const float* of_action,
                   const float* of_log_prob, float* of_output) {
  const float half = 0.5f * (high - low);
  for (long row = 0; row < rows; ++row, kept += 3 * size, of_action += size, of_output += 2 * size)
    for (long i = 0; i < size; i += W) {
      const long n = size - i;
      const Vec a = load_some(kept + i, n), scaled = load_some(kept + size + i, n);
      const Vec t = load_some(kept + 2 * size + i, n);
      const float g = of_log_prob[row];
      // d action / du = 1 - a^2, d log_prob / du = 2 a; du / dlog_std = scaled, d log_prob / dlog_std = -1.
      const Vec of_u = load_some(of_action + i, n) * (1.0f - a * a) + 2.0f * g * a;
      store_some(of_output + i, of_u, n);
      store_some(of_output + size + i, (of_u * scaled - g) * half * (1.0f - t * t), n);
    }
}

// --- the normal distribution of algorithms/distributions.py

// output: [rows, 2 * size], rows of [mean, log_std], log_std is clipped; action: [rows, size].
// slope: d log_prob / d output, [rows, 2 * size].
void density(long rows, long size, float low, float high, const float* output, const float* action,
             float* log_prob, float* slope) {
  for (long row = 0; row < rows; ++row, output += 2 * size, action += size, slope += 2 * size) {
    Vec total{};
    for (long i = 0; i < size; i += W) {
      const long n = size - i;
      const Vec raw = load_some(output + size + i, n);
      const Vec log_std = raw < low ? low + Vec{} : raw > high ? high + Vec{} : raw, shrunk = exp_of(-log_std);
      const Vec z = (load_some(action + i, n) - load_some(output + i, n)) * shrunk;
      const Vec value = -0.5f * z * z - log_std - 0.91893853f, steep = z * z - 1.0f;
      total += n >= W ? value : (first_lanes(n) ? value : Vec{});
      store_some(slope + i, z * shrunk, n);
      store_some(slope + size + i, (raw < low) | (raw > high) ? Vec{} : steep, n);
    }
    log_prob[row] = sum(total);
  }
}

}  // namespace
