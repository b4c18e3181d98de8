#include "policy.hpp"

#include <algorithm>
#include <cmath>

namespace {

/// A float32 array; empty where it did not come.
std::vector<float> floats(const Arrays& arrays, const std::string& name) {
    const auto found = arrays.find(name);
    return found == arrays.end() ? std::vector<float>() : found->second.floats();
}

}  // namespace

std::vector<float> places_of(int index, int count) {
    const double shift = std::fmod(0.5 + index * ((std::sqrt(5.0) - 1) / 2), 1.0);
    std::vector<float> places(count);
    for (int n = 0; n < count; ++n) places[n] = float((n + shift) / count);
    return places;
}

Policy::Policy(const Json& fields, const Arrays& arrays) : version(fields.value("version", int64_t(-1))) {
    try {
        read(fields.at("description"), arrays);
    } catch (const InputError& error) {
        throw unusable(error.what());
    } catch (const Json::exception& error) {
        throw unusable(error.what());
    }
}

InputError Policy::unusable(const std::string& why) const {
    return InputError("policy version " + std::to_string(version) + " cannot be used: " + why);
}

void Policy::read(const Json& description, const Arrays& arrays) {
    if (description.contains("class"))
        throw InputError("it is the Python class " + description["class"].dump() + "; use = \"sampler\" plays it");
    const Json& observation = description.at("observation");
    if (observation.value("stack", 1) != 1 || observation.value("channels_last", false))
        throw InputError("it takes stacks of images; use = \"sampler\" plays it");
    for (const int size : observation.at("shape").get<std::vector<int>>()) {
        if (size < 1 || size > (1 << 24) / num_obs_) throw InputError("it observes " + observation["shape"].dump());
        num_obs_ *= size;
    }
    if (observation.at("normalize")) {
        clip_ = observation.at("clip");
        mean_ = floats(arrays, "observation_mean");
        std_ = floats(arrays, "observation_std");
        if (int(mean_.size()) != num_obs_)
            throw InputError("mean and standard deviation of each observation are missing");
    }
    layers_ = read_layers(description.at("layers"), floats(arrays, "parameters"), num_obs_);
    Box box = {floats(arrays, "action_low"), floats(arrays, "action_high")};
    head_ = make_head(description.at("distribution"), std::move(box), layers_.back()->num_out);
    takes_masks_ = description.at("distribution").value("action_mask", false);
    if (takes_masks_ && !head_->is_discrete()) throw InputError("it takes action masks, and its actions are a box");
}

void Policy::check_legal(const uint8_t* legal, int n) const {
    if (takes_masks_ && legal == nullptr) throw unusable("it chooses among legal actions, and needs their masks");
    try {
        for (int row = 0; legal != nullptr && row < n; ++row) head_->check_legal(legal + size_t(row) * head_->num_choices);
    } catch (const InputError& error) {
        throw unusable(error.what());
    }
}

void Policy::check_finite(const double* action, int n) const {
    for (int i = 0; i < n * head_->num_actions; ++i)
        if (!is_finite(action[i])) throw unusable("its action holds NaN, an infinity or a number beyond 1e15");
}

const float* Policy::scaled(const float* obs, int n) {
    if (mean_.empty()) return obs;
    scaled_.resize(size_t(n) * num_obs_);
    for (int row = 0; row < n; ++row)
        for (int i = 0; i < num_obs_; ++i) {
            const size_t at = size_t(row) * num_obs_ + i;
            scaled_[at] = std::min(std::max((obs[at] - mean_[i]) / std_[i], -clip_), clip_);
        }
    return scaled_.data();
}

const float* Policy::output(const float* obs, int n) {
    const float* x = scaled(obs, n);
    for (const auto& layer : layers_) {
        out_.resize(std::max(out_.size(), size_t(n) * layer->num_out));
        layer->apply(x, n, out_.data());
        std::swap(in_, out_);
        x = in_.data();
    }
    return x;
}

void Policy::act(const float* obs, int n, Random& random, const float* places, double* action, float* log_prob,
                 const uint8_t* legal) {
    check_legal(legal, n);
    if (log_prob != nullptr && !head_->has_log_prob())
        throw unusable("a deterministic policy has no log_prob, but it is asked for");
    const int size = head_->num_actions, num_outputs = head_->num_outputs;
    const auto log_prob_of = [&](int row) { return log_prob == nullptr ? nullptr : log_prob + row; };
    const auto legal_of = [&](int row) { return legal == nullptr ? nullptr : legal + size_t(row) * head_->num_choices; };
    if (version == 0 && head_->uniform(random, legal_of(0), action, log_prob_of(0))) {
        for (int row = 1; row < n; ++row)
            head_->uniform(random, legal_of(row), action + row * size, log_prob_of(row));
        return;
    }
    const float* out = output(obs, n);
    for (int row = 0; row < n; ++row)
        head_->draw(out + size_t(row) * num_outputs, random, places[row], legal_of(row), action + row * size,
                    log_prob_of(row));
    check_finite(action, n);
}

void Policy::mode(const float* obs, int n, double* action, const uint8_t* legal) {
    check_legal(legal, n);
    const float* out = output(obs, n);
    for (int row = 0; row < n; ++row) {
        const uint8_t* mask = legal == nullptr ? nullptr : legal + size_t(row) * head_->num_choices;
        head_->mode(out + size_t(row) * head_->num_outputs, mask, action + row * head_->num_actions);
    }
    check_finite(action, n);
}
