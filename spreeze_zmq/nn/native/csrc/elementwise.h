// Elementwise operations of torch with the same bits. At small batches torch takes longer to start an operation
// than to compute it.
#pragma once
#include <algorithm>
#include <cstdint>

namespace {

// The codes of the operations, as in device/elementwise.py.
enum Operator : int64_t {
  ADD, SUB, MUL, DIV, NEG, ABS, MINIMUM, MAXIMUM, CLAMP, COPY, WHERE, EQ, NE, LT, LE, GT, GE, AND, OR, NOT, TO_FLOAT
};

// The address of an operand [rows, columns], and its strides in elements.
struct Operand { char* at; int64_t row, column; };
struct Elementwise { int64_t what, rows, columns; Operand out, of[3]; };

constexpr int64_t CHUNK = 512;

// n consecutive elements: in place if they are contiguous, else gathered; one that fills a row at its beginning.
template <class T> const T* piece(const Operand& from, int64_t row, int64_t column, int64_t n, T* gathered) {
  const T* at = reinterpret_cast<const T*>(from.at) + row * from.row + column * from.column;
  if (from.column == 1) return at;
  if (from.column == 0) std::fill_n(gathered, column ? 0 : n, *at);
  else for (int64_t i = 0; i < n; ++i) gathered[i] = at[i * from.column];
  return gathered;
}

// out = f(of[0], of[1], of[2]); arguments that f does not take are a copy of the first.
template <class Out, class A, class B, class F> void each(const Elementwise& about, F f) {
  A a[CHUNK];
  B b[CHUNK], c[CHUNK];
  Out o[CHUNK];
  for (int64_t row = 0; row < about.rows; ++row)
    for (int64_t column = 0; column < about.columns; column += CHUNK) {
      const int64_t n = std::min(CHUNK, about.columns - column);
      const A* x = piece(about.of[0], row, column, n, a);
      const B *y = piece(about.of[1], row, column, n, b), *z = piece(about.of[2], row, column, n, c);
      Out* out = reinterpret_cast<Out*>(about.out.at) + row * about.out.row + column * about.out.column;
      Out* to = about.out.column == 1 ? out : o;
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) to[i] = f(x[i], y[i], z[i]);
      if (to == o)
        for (int64_t i = 0; i < n; ++i) out[i * about.out.column] = o[i];
    }
}

typedef uint8_t Bool;

template <class F> void numbers(const Elementwise& about, F f) { each<float, float, float>(about, f); }
template <class F> void compare(const Elementwise& about, F f) { each<Bool, float, float>(about, f); }
template <class F> void logical(const Elementwise& about, F f) { each<Bool, Bool, Bool>(about, f); }

// minimum, maximum and clamp pass NaN on.
inline float lower(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
inline float higher(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
inline float between(float a, float low, float high) {
  const float raised = low > a ? low : a;
  return high < raised ? high : raised;
}

void elementwise(const Elementwise& about) {
  switch (about.what) {
    case ADD: return numbers(about, [](float a, float b, float) { return a + b; });
    case SUB: return numbers(about, [](float a, float b, float) { return a - b; });
    case MUL: return numbers(about, [](float a, float b, float) { return a * b; });
    case DIV: return numbers(about, [](float a, float b, float) { return a / b; });
    case NEG: return numbers(about, [](float a, float, float) { return -a; });
    case ABS: return numbers(about, [](float a, float, float) { return __builtin_fabsf(a); });
    case MINIMUM: return numbers(about, [](float a, float b, float) { return lower(a, b); });
    case MAXIMUM: return numbers(about, [](float a, float b, float) { return higher(a, b); });
    case CLAMP: return numbers(about, between);
    case COPY: return numbers(about, [](float a, float, float) { return a; });
    case WHERE: return each<float, Bool, float>(about, [](Bool a, float b, float c) { return a ? b : c; });
    case EQ: return compare(about, [](float a, float b, float) -> Bool { return a == b; });
    case NE: return compare(about, [](float a, float b, float) -> Bool { return a != b; });
    case LT: return compare(about, [](float a, float b, float) -> Bool { return a < b; });
    case LE: return compare(about, [](float a, float b, float) -> Bool { return a <= b; });
    case GT: return compare(about, [](float a, float b, float) -> Bool { return a > b; });
    case GE: return compare(about, [](float a, float b, float) -> Bool { return a >= b; });
    case AND: return logical(about, [](Bool a, Bool b, Bool) -> Bool { return a & b; });
    case OR: return logical(about, [](Bool a, Bool b, Bool) -> Bool { return a | b; });
    case NOT: return logical(about, [](Bool a, Bool, Bool) -> Bool { return a ^ 1; });
    case TO_FLOAT: return each<float, Bool, Bool>(about, [](Bool a, Bool, Bool) -> float { return a; });
  }
}

// Rows of bytes less their mean and divided by their deviation, within a limit, rounded as torch does it in four
// operations. x, y: [rows, columns]; mean, deviation: [columns].
void scale_bytes(int64_t rows, int64_t columns, float limit, const uint8_t* x, const float* mean,
                 const float* deviation, float* y) {
  for (int64_t row = 0; row < rows; ++row, x += columns, y += columns)
#pragma GCC ivdep
    for (int64_t i = 0; i < columns; ++i) y[i] = between(((float)x[i] - mean[i]) / deviation[i], -limit, limit);
}

}  // namespace
