// The distributions over actions of PROTOCOL.md.
#pragma once

#include <memory>

#include "message.hpp"
#include "random.hpp"

/// Bounds of each action; empty where there are none.
struct Box {
    std::vector<float> low, high;

    float scaled(size_t i, float unit) const {
        return low.empty() ? unit : (low[i] + high[i]) / 2 + (high[i] - low[i]) / 2 * unit;
    }
};

/// Turns one row of a network's output into actions: float32 numbers of a box, or whole numbers.
class Head {
  public:
    virtual ~Head() = default;

    /// Version 0 draws uniformly; false where there is no such distribution. `legal` is a flag for each choice of each
    /// discrete action, at least one of each set; null where all are legal, as for a box.
    virtual bool uniform(Random& random, const uint8_t* legal, double* action, float* log_prob) const = 0;
    /// NaN where the output says no action.
    virtual void draw(const float* output, Random& random, float place, const uint8_t* legal, double* action,
                      float* log_prob) const = 0;
    virtual void mode(const float* output, const uint8_t* legal, double* action) const = 0;

    /// What the environment is given for an action, in place.
    virtual void clip(double*) const {}
    virtual bool has_log_prob() const { return true; }
    virtual bool is_discrete() const = 0;

    /// Throws InputError unless the flags allow a choice of each discrete action.
    virtual void check_legal(const uint8_t*) const {}

    int num_outputs = 0, num_actions = 0, num_choices = 0;
};

/// Throws InputError for a distribution that is unknown or does not fit the output.
std::unique_ptr<Head> make_head(const Json& about, Box box, int num_outputs);
