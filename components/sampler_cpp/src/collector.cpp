#include "collector.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace {

const Json& options_of(const Component& component) { return component.plan.at("components").at("sampler").at("options"); }

Random random_of(const Component& component) {
    const Json& run = component.plan.at("run");
    const std::string own = component.identity.name + " " + run.value("resume_from", Json()).dump();
    std::vector<uint64_t> seeds = {run.at("seed").get<uint64_t>()};
    seeds.insert(seeds.end(), own.begin(), own.end());
    if (component.had_another && !component.plan.at("balance").at("in_order").get<bool>())
        seeds.insert(seeds.end(), {component.identity.incarnation >> 32, component.identity.incarnation & 0xffffffff});
    return Random(std::seed_seq(seeds.begin(), seeds.end()));
}

int64_t product(const Json& shape) {
    const auto sizes = shape.get<std::vector<int64_t>>();
    return std::accumulate(sizes.begin(), sizes.end(), int64_t(1), std::multiplies<int64_t>());
}

/// `leading`, then the shape of one observation or action.
std::vector<int64_t> shape_of(std::vector<int64_t> leading, const Json& one) {
    for (const Json& size : one) leading.push_back(size);
    return leading;
}

/// Bounds of each action of a box that is bounded in part, infinite where there is none; empty for other boxes.
std::vector<std::array<double, 2>> limits_of(const Json& about) {
    std::vector<std::array<double, 2>> limits;
    for (const Json& pair : about.value("action_limits", Json::array()))
        limits.push_back({pair[0].is_null() ? -HUGE_VAL : pair[0].get<double>(),
                          pair[1].is_null() ? HUGE_VAL : pair[1].get<double>()});
    return limits;
}

}  // namespace

Collector::Collector(Component& component, bool log_prob)
    : num_steps(options_of(component).at("rollout_steps")),
      num_envs(options_of(component).at("envs")),
      component_(component),
      about_(component.plan.at("environment")),
      has_log_prob_(log_prob),
      random_(random_of(component)),
      envs_(make_environments(component.plan, num_envs)),
      size_(envs_->num_obs()),
      num_actions_(envs_->num_actions()),
      max_steps_(about_.at("max_episode_steps").is_null() ? std::numeric_limits<int>::max()
                                                          : about_.at("max_episode_steps").get<int>()),
      limits_(limits_of(about_)),
      obs_(size_t(num_envs) * size_),
      places_(places_of(component.index, num_envs)),
      returns_(num_envs),
      lengths_(num_envs) {
    check_spaces();
    for (int n = 0; n < num_envs; ++n) envs_->reset(n, random_, row(n));
}

void Collector::check_spaces() const {
    if (product(about_.at("obs_shape")) != size_ || product(about_.at("action_shape")) != num_actions_ ||
        about_.at("obs_dtype") != "float32" || about_.at("action_kind") != "box")
        throw InputError("the environment here gives " + std::to_string(size_) + " float32 numbers and takes " +
                         std::to_string(num_actions_) + ", that of run.json has other spaces");
}

void Collector::check_policy(const Policy& policy) const {
    if (policy.num_obs() != size_ || policy.head().num_actions != num_actions_ || policy.head().is_discrete())
        throw InputError("policy version " + std::to_string(policy.version) +
                         " cannot be used: it is for an environment of other spaces");
}

void Collector::clear() {
    const size_t steps = size_t(num_steps) * num_envs;
    for (auto* values : {&actions_, &rewards_, &final_obs_}) values->clear();
    final_index_.clear();
    terminated_.assign(steps, 0);
    truncated_.assign(steps, 0);
    failed_.clear();
    log_probs_.resize(steps);
    obs_rows_ = obs_;
}

Arrays Collector::collect(Policy& policy) {
    check_policy(policy);
    clear();
    std::vector<double> action(size_t(num_envs) * num_actions_);
    for (int t = 0; t < num_steps; ++t) {
        float* log_prob = has_log_prob_ ? &log_probs_[size_t(t) * num_envs] : nullptr;
        policy.act(obs_.data(), num_envs, random_, places_.data(), action.data(), log_prob);
        actions_.insert(actions_.end(), action.begin(), action.end());
        for (int n = 0; n < num_envs; ++n) {
            double* one = &action[size_t(n) * num_actions_];
            policy.head().clip(one);
            for (size_t i = 0; i < limits_.size(); ++i) one[i] = std::clamp(one[i], limits_[i][0], limits_[i][1]);
            step(t, n, one);
        }
        obs_rows_.insert(obs_rows_.end(), obs_.begin(), obs_.end());
        component_.breathe();
    }
    const float lowest = std::min(lowest_, *std::min_element(rewards_.begin(), rewards_.end()));
    for (size_t place : failed_) rewards_[place] = lowest;  // 0 would be the best of all where others are negative
    if (failed_.empty()) lowest_ = lowest;  // what a simulation pays as it blows up is not remembered
    return arrays();
}

void Collector::step(int t, int n, const double* action) {
    const std::vector<float> before(row(n), row(n) + size_);
    auto [reward, terminated, failure] = envs_->step(n, action, row(n));
    if (failure == nullptr && !(is_finite(reward) && std::all_of(row(n), row(n) + size_, is_finite)))
        failure = "gave NaN, an infinity or a number beyond 1e15";
    const bool is_whole = failure == nullptr;
    if (!is_whole) {  // the episode is cut at the last good observation
        std::copy(before.begin(), before.end(), row(n));
        reward = 0;
        terminated = false;
        failed_.push_back(rewards_.size());
        const std::string what = "environment " + std::to_string(n) + " " + failure + "; it begins anew";
        component_.report_failure(failure, what);
    }
    rewards_.push_back(float(reward));
    returns_[n] += reward;
    const bool truncated = ++lengths_[n] >= max_steps_ || !is_whole;
    terminated_[size_t(t) * num_envs + n] = terminated;
    truncated_[size_t(t) * num_envs + n] = truncated;
    if (terminated || truncated) end_episode(t, n, is_whole);
}

void Collector::end_episode(int t, int n, bool is_whole) {
    final_obs_.insert(final_obs_.end(), row(n), row(n) + size_);
    final_index_.insert(final_index_.end(), {t, n});
    if (is_whole) {
        ended_returns_.push_back(float(returns_[n]));
        ended_lengths_.push_back(lengths_[n]);
    }
    returns_[n] = 0;
    lengths_[n] = 0;
    envs_->reset(n, random_, row(n));
}

Arrays Collector::arrays() const {
    const int64_t steps = num_steps, envs = num_envs, ended = int64_t(final_index_.size() / 2);
    const Json &obs = about_.at("obs_shape"), &action = about_.at("action_shape");
    Arrays arrays;
    arrays.emplace("obs", Array("float32", shape_of({steps + 1, envs}, obs), obs_rows_));
    arrays.emplace("action", Array("float32", shape_of({steps, envs}, action), actions_));
    arrays.emplace("reward", Array("float32", {steps, envs}, rewards_));
    arrays.emplace("terminated", Array("bool", {steps, envs}, terminated_));
    arrays.emplace("truncated", Array("bool", {steps, envs}, truncated_));
    arrays.emplace("final_obs", Array("float32", shape_of({ended}, obs), final_obs_));
    arrays.emplace("final_index", Array("int32", {ended, 2}, final_index_));
    arrays.emplace("log_prob", Array("float32", {steps, envs}, log_probs_));
    return arrays;
}

void Collector::report_episodes() {
    if (ended_returns_.empty()) return;
    const int64_t count = int64_t(ended_returns_.size());
    Arrays arrays;
    arrays.emplace("returns", Array("float32", {count}, ended_returns_));
    arrays.emplace("lengths", Array("int32", {count}, ended_lengths_));
    component_.report("episodes", Json::object(), std::move(arrays));
    ended_returns_.clear();
    ended_lengths_.clear();
}
