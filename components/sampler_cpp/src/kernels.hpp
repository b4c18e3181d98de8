// Loops over numbers, in a file of their own: they alone are compiled with -ffast-math.
#pragma once

/// y[i] is a function of x[i], for n numbers.
using Kernel = void (*)(const float* x, int n, float* y);

void relu(const float* x, int n, float* y);
void elu(const float* x, int n, float* y);
void hyperbolic_tangent(const float* x, int n, float* y);
void silu(const float* x, int n, float* y);

struct NamedKernel {
    const char* name;
    Kernel kernel;
};
constexpr NamedKernel ACTIVATIONS[] = {{"relu", relu}, {"elu", elu}, {"tanh", hyperbolic_tangent}, {"silu", silu}};

/// (x - mean) / sqrt(variance + eps) * weight + bias, of one row.
void layer_norm(const float* x, int n, float eps, const float* weight, const float* bias, float* y);
