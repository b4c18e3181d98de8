// The layers of a policy's description, each over many rows at once.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "message.hpp"

/// Maps rows of `num_in` numbers to rows of `num_out`.
class Layer {
  public:
    Layer(int in, int out) : num_in(in), num_out(out) {}
    virtual ~Layer() = default;

    /// From x [n, num_in] to y [n, num_out], which do not overlap.
    virtual void apply(const float* x, int n, float* y) = 0;

    const int num_in, num_out;
};

/// The layers of a description over their parameters; throws InputError where they do not fit one another.
std::vector<std::unique_ptr<Layer>> read_layers(const Json& description, const std::vector<float>& parameters,
                                                int num_in);
