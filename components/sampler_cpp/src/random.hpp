// Random numbers of a process.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

class Random {
  public:
    explicit Random(std::seed_seq&& seeds) : engine_(seeds) {}

    /// In [0, 1).
    double uniform() { return double(engine_() >> 11) * 0x1p-53; }
    double uniform(double low, double high) { return std::fma(high - low, uniform(), low); }
    double normal() { return normal_(engine_); }
    /// One of 0 .. size - 1.
    int64_t integer(int64_t size) { return int64_t(uniform() * double(size)); }

  private:
    std::mt19937_64 engine_;
    std::normal_distribution<double> normal_;
};
