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

inline float highest(long n, const float* x) {
  Vec most = Vec{} - std::numeric_limits<float>::infinity();
  for (long i = 0; i < n; i += W) {
    const Vec v = load_some(x + i, n - i);
    most = (v > most) & first_lanes(n - i) ? v : most;
  }
  float found = most[0];
  for (int i = 1; i < W; ++i) found = std::max(found, most[i]);
  return found;
}

// The means [rows] of the returns linspace(low, high, atoms) under softmax(logits) [rows, atoms], and their
// derivatives by the logits, slope [rows, atoms] or null.
void expectation(long rows, long atoms, float low, float high, const float* logits, float* mean, float* slope) {
  const float step = (high - low) / std::max(1L, atoms - 1);
  Vec lanes;
  for (int i = 0; i < W; ++i) lanes[i] = i;
  for (long row = 0; row < rows; ++row, logits += atoms) {
    const float most = highest(atoms, logits);
    Vec odds{}, along{};
    for (long i = 0; i < atoms; i += W) {
      const Vec odd = first_lanes(atoms - i) ? exp_of(load_some(logits + i, atoms - i) - most) : Vec{};
      odds += odd, along += odd * (lanes + (float)i);
      if (slope) store_some(slope + i, odd, atoms - i);
    }
    const float all = sum(odds), place = sum(along) / all;  // in steps from the lowest return
    mean[row] = low + step * place;
    for (long i = 0; slope && i < atoms; i += W)
      store_some(slope + i, load_some(slope + i, atoms - i) * (lanes + (float)i - place) * (step / all), atoms - i);
    if (slope) slope += atoms;
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
      const float most = highest(atoms, x);
      Vec odds{}, along{};
      for (long i = 0; i < atoms; i += W) {
        const Vec far = load_some(x + i, atoms - i) - most;
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
