// A batch of environments. One of your own takes the place of `make_environments`.
#pragma once

#include <memory>

#include "message.hpp"
#include "random.hpp"

/// What one step of one environment gave, its observation apart.
struct Outcome {
    double reward;
    bool terminated;  // the state's value is zero; the time limit is not the environment's affair
    const char* failure = nullptr;  // why the step is none, after the environment's name; its episode is then cut
};

/// Environments 0 .. n - 1 of one kind.
class Environments {
  public:
    virtual ~Environments() = default;

    virtual int num_obs() const = 0;
    virtual int num_actions() const = 0;

    /// Begins an episode of environment n; writes the observation [num_obs].
    virtual void reset(int n, Random& random, float* obs) = 0;

    /// Steps environment n by an action [num_actions] in its own units.
    virtual Outcome step(int n, const double* action, float* obs) = 0;
};

/// The environment of run.json, `count` times; throws InputError for one that is not here.
std::unique_ptr<Environments> make_environments(const Json& plan, int count);
