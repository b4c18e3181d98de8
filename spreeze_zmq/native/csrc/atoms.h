// Distributions over returns on fixed atoms (C51, arXiv 1707.06887).
#pragma once
#include <cmath>
#include <limits>
#include <vector>

#include "numbers.h"

namespace {

// probability: [rows, atoms] of the returns linspace(low, high, atoms). to: [rows, atoms], the probabilities of
// reward[row] + discount[row] * return, projected onto the same atoms; NaN stays NaN.
void project(long rows, long atoms, float low, float high, const float* probability, const float* reward,
             const float* discount, float* to) {
  const float step = (high - low) / (atoms - 1), steps_per_unit = (atoms - 1) / (high - low), last = atoms - 1;
  std::vector<float> above(atoms);  // the share of each atom that goes to the atom above
  Vec lanes;
  for (int i = 0; i < W; ++i) lanes[i] = i;
  for (long row = 0; row < rows; ++row, probability += atoms, to += atoms) {
    std::fill(to, to + atoms, 0.0f);
    std::fill(above.begin(), above.end(), 0.0f);
    for (long i = 0; i < atoms; i += W) {
      const long n = std::min<long>(atoms - i, W);
      Vec place = (reward[row] + discount[row] * (low + step * (lanes + (float)i)) - low) * steps_per_unit;
      place = place < 0.0f ? Vec{} : place;
      place = place > last ? Vec{} + last : place;
      const Int below = __builtin_convertvector(place == place ? place : Vec{}, Int);
      const Vec p = load_some(probability + i, n), up = p * (place - __builtin_convertvector(below, Vec));
      int32_t at[W];
      float stays[W], rises[W];
      store(at, below), store(stays, p - up), store(rises, up);
      for (long j = 0; j < n; ++j) to[at[j]] += stays[j], above[at[j]] += rises[j];
    }
    for (long i = 1; i < atoms; ++i) to[i] += above[i - 1];
  }
}

// Kullback-Leibler divergence [networks, rows] of softmax(logits) [networks, rows, atoms] from target [rows,
// atoms], and its derivative by the logits, slope [networks, rows, atoms].
void divergence(long networks, long rows, long atoms, const float* logits, const float* target, float* loss,
                float* slope) {
  for (long row = 0; row < rows; ++row, target += atoms) {
    Vec total{}, entropy{};
    for (long i = 0; i < atoms; i += W) {
      const Vec p = load_some(target + i, atoms - i);
      total += p, entropy += p == 0.0f ? Vec{} : p * log_of(p);
    }
    const float mass = sum(total);
    for (long e = 0; e < networks; ++e) {
      const float* x = logits + (e * rows + row) * atoms;
      float* to = slope + (e * rows + row) * atoms;
      Vec most = Vec{} - std::numeric_limits<float>::infinity();
      for (long i = 0; i < atoms; i += W) {
        const Vec v = load_some(x + i, atoms - i);
        most = (v > most) & first_lanes(atoms - i) ? v : most;
      }
      float highest = most[0];
      for (int i = 1; i < W; ++i) highest = std::max(highest, most[i]);
      Vec odds{}, along{};
      for (long i = 0; i < atoms; i += W) {
        const Vec far = load_some(x + i, atoms - i) - highest;
        const Vec odd = first_lanes(atoms - i) ? exp_of(far) : Vec{};
        odds += odd, along += load_some(target + i, atoms - i) * far;
        store_some(to + i, odd, atoms - i);
      }
      const float all = sum(odds);
      loss[e * rows + row] = sum(entropy) - sum(along) + mass * std::log(all);
      for (long i = 0; i < atoms; i += W)
        store_some(to + i, load_some(to + i, atoms - i) * (mass / all) - load_some(target + i, atoms - i), atoms - i);
    }
  }
}

}  // namespace
