// Steps the environments with a policy and turns their steps into rollouts.
#pragma once

#include <array>

#include "component.hpp"
#include "environments.hpp"
#include "policy.hpp"

class Collector {
  public:
    /// Makes and resets the environments of the run; `log_prob` says whether a learner asks for it.
    Collector(Component& component, bool log_prob);

    /// `num_steps` steps of every environment: all arrays of a rollout. Throws InputError for a policy of other spaces.
    Arrays collect(Policy& policy);

    /// Tells the broker which episodes have ended since the last time.
    void report_episodes();

    const int num_steps, num_envs;

  private:
    float* row(int n) { return &obs_[size_t(n) * size_]; }
    void check_spaces() const;
    void check_policy(const Policy& policy) const;
    void clear();
    void step(int t, int n, const double* action);
    void end_episode(int t, int n, bool is_whole);
    Arrays arrays() const;

    Component& component_;
    const Json& about_;  // the environment's entry in run.json
    const bool has_log_prob_;
    Random random_;
    std::unique_ptr<Environments> envs_;
    const int size_, num_actions_, max_steps_;
    const std::vector<std::array<double, 2>> limits_;  // as run.json has them, of each action or of none
    std::vector<float> obs_, places_;   // [num_envs, size], [num_envs]
    std::vector<double> returns_;       // of the episodes under way
    std::vector<int32_t> lengths_;
    std::vector<float> ended_returns_;  // of those that ended and are not reported yet
    std::vector<int32_t> ended_lengths_;
    std::vector<float> obs_rows_, actions_, rewards_, final_obs_, log_probs_;  // of the rollout under way
    std::vector<uint8_t> terminated_, truncated_;
    std::vector<size_t> failed_;  // places of `rewards_`
    float lowest_ = 0;            // reward of all rollouts in which no environment failed, 0 if none is below
    std::vector<int32_t> final_index_;
};
