// The processor's vectors, number formats, and activations.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int W = 16, MR = 12, NV = 2;
#elif defined(__AVX2__)
constexpr int W = 8, MR = 6, NV = 2;
#else
constexpr int W = 4, MR = 4, NV = 2;
#endif
constexpr long P = W * NV, BLOCK = 256;
typedef float Vec __attribute__((vector_size(4 * W)));
typedef int32_t Int __attribute__((vector_size(4 * W)));
typedef uint32_t Bits __attribute__((vector_size(4 * W)));

template <class V> inline V load(const void* from) { V v; std::memcpy(&v, from, sizeof v); return v; }
template <class V> inline void store(void* to, V v) { std::memcpy(to, &v, sizeof v); }
inline Int first_lanes(long n) {
  Int lanes;
  for (int i = 0; i < W; ++i) lanes[i] = i;
  return lanes < (int32_t)std::min<long>(n, W);
}

// Load the first n of W numbers, the others are 0. Under a sanitizer these are plain copies: it does not check
// masked ones.
inline Vec load_some(const void* from, long n) {
  if (n >= W) return load<Vec>(from);
#if defined(__AVX512F__) && !defined(__SANITIZE_ADDRESS__)
  return (Vec)_mm512_maskz_loadu_ps((1u << n) - 1, from);
#elif defined(__AVX2__) && !defined(__SANITIZE_ADDRESS__)
  return (Vec)_mm256_maskload_ps(static_cast<const float*>(from), (__m256i)first_lanes(n));
#else
  Vec v{};
  std::memcpy(&v, from, 4 * n);
  return v;
#endif
}

inline void store_some(float* to, Vec v, long n) {
  if (n >= W) return store(to, v);
#if defined(__AVX512F__) && !defined(__SANITIZE_ADDRESS__)
  _mm512_mask_storeu_ps(to, (1u << n) - 1, (__m512)v);
#elif defined(__AVX2__) && !defined(__SANITIZE_ADDRESS__)
  _mm256_maskstore_ps(to, (__m256i)first_lanes(n), (__m256)v);
#else
  std::memcpy(to, &v, 4 * n);
#endif
}

constexpr long up(long n, long to) { return (n + to - 1) / to * to; }
inline float sum(Vec v) {  // by halves, because each of sixteen successive sums would wait for the one before
  typedef float Half __attribute__((vector_size(2 * W)));
  typedef float Quarter __attribute__((vector_size(W)));
  Half halves[2];
  std::memcpy(halves, &v, sizeof v);
  const Half half = halves[0] + halves[1];
  Quarter quarters[2];
  std::memcpy(quarters, &half, sizeof half);
  const Quarter quarter = quarters[0] + quarters[1];
  float s = quarter[0];
  for (int i = 1; i < W / 4; ++i) s += quarter[i];
  return s;
}

// --- number formats: elements in memory, units (1 float or 2 bf16) in products

struct Fp32 {
  typedef float Element; typedef float Unit; typedef Vec Units;
  static constexpr long pair = 1;
  static Vec get(const float* from) { return load<Vec>(from); }
  static void put(float* to, Vec v) { store(to, v); }
  static Vec fma(Vec c, float a, Vec b) { return c + a * b; }
};

#if defined(__AVX512BF16__)
struct Bf16 {
  typedef uint16_t Element; typedef uint32_t Unit; typedef Bits Units;
  static constexpr long pair = 2;
  static Vec get(const uint16_t* from) { return (Vec)(wide(from) << 16); }
  static Bits wide(const uint16_t* from) { return (Bits)_mm512_cvtepu16_epi32(load<__m256i>(from)); }
  static void put(uint16_t* to, Vec v) { store(to, _mm512_cvtneps_pbh((__m512)v)); }
  static Vec fma(Vec c, uint32_t a, Bits b) {
    return (Vec)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
  }
};
#endif

// --- functions of one number

inline Vec exp_of(Vec x) {  // relative error below 2e-7; NaN stays NaN
  x = x < -87.0f ? Vec{} - 87.0f : x;
  x = x > 88.0f ? Vec{} + 88.0f : x;
  const Vec shifted = x * 1.44269504f + 12582912.0f;  // the nearest integer is in the lowest bits
  const Vec n = shifted - 12582912.0f, r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f; p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f; p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * (Vec)(((Bits)shifted + 127u) << 23);
}

inline Vec log_one_plus(Vec x) {  // of x in [0, 1]; relative error below 3e-7
  const Vec z = x / (x + 2.0f), w = z * z;
  Vec p = w * (1.0f / 15) + 1.0f / 13;
  p = p * w + 1.0f / 11; p = p * w + 1.0f / 9; p = p * w + 1.0f / 7; p = p * w + 1.0f / 5; p = p * w + 1.0f / 3;
  return 2.0f * z * (p * w + 1.0f);
}

inline Vec log_of(Vec x) {  // of normal numbers above 0; error below 3e-7 (1 + |log x|)
  const Vec exponent = __builtin_convertvector((Int)((Bits)x >> 23) - 127, Vec);
  const Vec fraction = (Vec)(((Bits)x & 0x7fffffu) | 0x3f800000u);  // in [1, 2)
  return exponent * 0.69314718f + log_one_plus(fraction - 1.0f);
}

inline Vec tanh_of(Vec x) {
  const Vec size = x < 0.0f ? -x : x, z = x * x;
  Vec p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f; p = p * z + 1.33314422036e-1f; p = p * z - 3.33332819422e-1f;
  const Vec far = 1.0f - 2.0f / (exp_of(2.0f * size) + 1.0f);
  return size < 0.625f ? x + x * z * p : (x < 0.0f ? -far : far);
}

enum Activation : long { NONE, RELU, ELU, SILU, TANH };

inline Vec apply(long kind, Vec x) {
  switch (kind) {
    case RELU: return x < 0.0f ? Vec{} : x;
    case ELU: return x > 0.0f ? x : exp_of(x < 0.0f ? x : Vec{} + x * 0.0f) - 1.0f;
    case SILU: return x / (1.0f + exp_of(-x));
    case TANH: return tanh_of(x);
    default: return x;
  }
}

inline Vec silu_slope(Vec x) {
  const Vec s = 1.0f / (1.0f + exp_of(-x));
  return s * (1.0f + x * (1.0f - s));
}

// The slope of an activation from its output, or the stored slope itself.
inline Vec slope(long kind, Vec y) {
  switch (kind) {
    case RELU: return y > 0.0f ? Vec{} + 1.0f : Vec{};
    case ELU: return y > 0.0f ? Vec{} + 1.0f : y + 1.0f;
    case TANH: return 1.0f - y * y;
    default: return y;
  }
}

}  // namespace
