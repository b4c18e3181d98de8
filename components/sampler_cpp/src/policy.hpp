// The policy of a policy message: observations to actions.
#pragma once

#include "heads.hpp"
#include "layers.hpp"

/// The place among all environments of the run, 0 to 1, of the `count` of sampler `index`: one in each of `count` equal
/// parts, shifted within it by the golden ratio, so that those of the first samplers are spread evenly, however many.
std::vector<float> places_of(int index, int count);

class Policy {
  public:
    /// Throws InputError, which names the version, where fields and arrays make no policy that can act.
    Policy(const Json& fields, const Arrays& arrays);

    /// Draws the actions [n, num_actions] for n observations, and their log densities [n] unless `log_prob` is null.
    /// Version 0 draws uniformly where it can. `legal` [n, head().num_choices] has a flag for each choice of each
    /// discrete action, for a policy that takes masks.
    void act(const float* obs, int n, Random& random, const float* places, double* action, float* log_prob,
             const uint8_t* legal = nullptr);

    /// The deterministic actions, within their bounds. Both throw InputError for an action that is not finite.
    void mode(const float* obs, int n, double* action, const uint8_t* legal = nullptr);

    /// Whether it chooses among legal actions only, and so needs to know them.
    bool takes_masks() const { return takes_masks_; }

    int num_obs() const { return num_obs_; }
    const Head& head() const { return *head_; }

    int64_t version;

  private:
    void read(const Json& description, const Arrays& arrays);
    InputError unusable(const std::string& why) const;
    void check_legal(const uint8_t* legal, int n) const;
    void check_finite(const double* action, int n) const;
    const float* output(const float* obs, int n);
    const float* scaled(const float* obs, int n);

    int num_obs_ = 1;
    bool takes_masks_ = false;
    float clip_ = 0;
    std::vector<float> mean_, std_;
    std::vector<std::unique_ptr<Layer>> layers_;
    std::unique_ptr<Head> head_;
    std::vector<float> scaled_, in_, out_;
};
