#include "heads.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace {

constexpr float LOG_SQRT_2PI = 0.9189385332f, LOG_2 = 0.6931471806f;

/// Actions in a box.
class BoxHead : public Head {
  public:
    explicit BoxHead(Box box) : box_(std::move(box)) { num_actions = int(box_.low.size()); }

    bool uniform(Random& random, const uint8_t*, double* action, float* log_prob) const override {
        if (box_.low.empty()) return false;
        for (int i = 0; i < num_actions; ++i) action[i] = float(random.uniform(box_.low[i], box_.high[i]));
        if (log_prob) *log_prob = -LOG_2 * num_actions;  // the density in [-1, 1]^A
        return true;
    }

    void clip(double* action) const override {
        if (box_.low.empty()) return;
        for (int i = 0; i < num_actions; ++i) action[i] = std::clamp<double>(action[i], box_.low[i], box_.high[i]);
    }

    bool is_discrete() const override { return false; }

  protected:
    void needs_bounds(const char* kind) const {
        if (box_.low.empty()) throw InputError(std::string("a ") + kind + " needs bounds of the actions");
    }

    const Box box_;
};

class TanhNormal : public BoxHead {
  public:
    TanhNormal(const Json& about, Box box)
        : BoxHead(std::move(box)), low_(about.at("log_std_min")), high_(about.at("log_std_max")) {
        if (about.at("log_std") != "tanh") throw InputError("unknown log_std " + about.at("log_std").dump());
        needs_bounds("tanh_normal");
        num_outputs = 2 * num_actions;
    }

    void draw(const float* output, Random& random, float, const uint8_t*, double* action, float* log_prob) const override {
        float density = 0;
        for (int i = 0; i < num_actions; ++i) {
            const float log_std = low_ + (high_ - low_) * 0.5f * (std::tanh(output[num_actions + i]) + 1);
            const float noise = float(random.normal()), u = output[i] + std::exp(log_std) * noise;
            action[i] = box_.scaled(i, std::tanh(u));
            if (log_prob == nullptr) continue;
            // log(1 - tanh(u)^2), written so that a large u does not give log(0)
            const float squash = 2 * (LOG_2 - std::abs(u) - std::log1p(std::exp(-2 * std::abs(u))));
            density += -0.5f * noise * noise - log_std - LOG_SQRT_2PI - squash;
        }
        if (log_prob) *log_prob = density;
    }

    void mode(const float* output, const uint8_t*, double* action) const override {
        for (int i = 0; i < num_actions; ++i) action[i] = box_.scaled(i, std::tanh(output[i]));
    }

  private:
    const float low_, high_;
};

class Normal : public BoxHead {
  public:
    Normal(const Json& about, Box box, int outputs)
        : BoxHead(std::move(box)), low_(about.at("log_std_min")), high_(about.at("log_std_max")) {
        if (box_.low.empty()) num_actions = outputs / 2;
        num_outputs = 2 * num_actions;
    }

    void draw(const float* output, Random& random, float, const uint8_t*, double* action, float* log_prob) const override {
        float density = 0;
        for (int i = 0; i < num_actions; ++i) {
            const float log_std = std::min(std::max(output[num_actions + i], low_), high_);
            const float noise = float(random.normal());
            action[i] = box_.scaled(i, output[i] + std::exp(log_std) * noise);
            if (log_prob) density += -0.5f * noise * noise - log_std - LOG_SQRT_2PI;
        }
        if (log_prob) *log_prob = density;
    }

    void mode(const float* output, const uint8_t*, double* action) const override {
        for (int i = 0; i < num_actions; ++i) action[i] = box_.scaled(i, output[i]);
        clip(action);
    }

  private:
    const float low_, high_;
};

class Deterministic : public BoxHead {
  public:
    Deterministic(const Json& about, Box box)
        : BoxHead(std::move(box)), least_(about.at("noise_min")), most_(about.at("noise_max")) {
        needs_bounds("deterministic");
        num_outputs = num_actions;
    }

    void draw(const float* output, Random& random, float place, const uint8_t*, double* action, float*) const override {
        const float sigma = least_ + (most_ - least_) * place;
        for (int i = 0; i < num_actions; ++i) {
            const float unit = std::tanh(output[i]) + sigma * float(random.normal());
            action[i] = box_.scaled(i, std::min(std::max(unit, -1.0f), 1.0f));
        }
    }

    void mode(const float* output, const uint8_t*, double* action) const override {
        for (int i = 0; i < num_actions; ++i) action[i] = box_.scaled(i, std::tanh(output[i]));
    }

    bool has_log_prob() const override { return false; }

  private:
    const float least_, most_;
};

/// Whole numbers from 0.
class DiscreteHead : public Head {
  public:
    explicit DiscreteHead(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {
        num_actions = int(sizes_.size());
        if (sizes_.empty() || *std::min_element(sizes_.begin(), sizes_.end()) < 1)
            throw InputError("a distribution over whole numbers needs sizes of at least 1");
        num_choices = int(std::accumulate(sizes_.begin(), sizes_.end(), int64_t(0)));
    }

    bool uniform(Random& random, const uint8_t* legal, double* action, float* log_prob) const override {
        float density = 0;
        for (int k = 0; k < num_actions; legal = after(legal, k++)) {
            action[k] = double(any_of(legal, k, random));
            density -= std::log(float(count(legal, k)));
        }
        if (log_prob) *log_prob = density;
        return true;
    }

    void check_legal(const uint8_t* legal) const override {
        for (int k = 0; k < num_actions; legal = after(legal, k++))
            if (count(legal, k) == 0) throw InputError("its action mask allows no action");
    }

    bool is_discrete() const override { return true; }

  protected:
    static bool allows(const uint8_t* legal, int64_t i) { return legal == nullptr || legal[i]; }
    const uint8_t* after(const uint8_t* legal, int k) const { return legal == nullptr ? legal : legal + sizes_[k]; }

    int64_t count(const uint8_t* legal, int k) const {
        return legal == nullptr ? sizes_[k] : std::count_if(legal, legal + sizes_[k], [](uint8_t flag) { return flag; });
    }

    /// One of the legal choices of discrete action k, each alike.
    int64_t any_of(const uint8_t* legal, int k, Random& random) const {
        int64_t left = random.integer(count(legal, k)), i = 0;
        if (legal == nullptr) return left;
        while (!legal[i] || left-- > 0) ++i;
        return i;
    }

    const std::vector<int64_t> sizes_;
};

class Categorical : public DiscreteHead {
  public:
    explicit Categorical(const Json& about) : DiscreteHead(about.at("sizes").get<std::vector<int64_t>>()) {
        num_outputs = num_choices;
    }

    void draw(const float* output, Random& random, float, const uint8_t* legal, double* action,
              float* log_prob) const override {
        float density = 0;
        for (int k = 0; k < num_actions; output += sizes_[k], legal = after(legal, k++)) {
            const float most = output[best(output, legal, k)];
            double total = 0;
            for (int i = 0; i < sizes_[k]; ++i)
                if (allows(legal, i)) total += std::exp(output[i] - most);
            double left = random.uniform() * total;
            int chosen = -1;  // the last legal one, if rounding leaves a rest
            for (int i = 0; i < sizes_[k] && left >= 0; ++i) {
                if (!allows(legal, i)) continue;
                chosen = i;
                left -= std::exp(output[i] - most);
            }
            const bool is_whole = chosen >= 0;  // NaN and infinite logits give no probabilities
            action[k] = is_whole ? chosen : NAN;
            density += is_whole ? output[chosen] - most - float(std::log(total)) : NAN;
        }
        if (log_prob) *log_prob = density;
    }

    void mode(const float* output, const uint8_t* legal, double* action) const override {
        for (int k = 0; k < num_actions; output += sizes_[k], legal = after(legal, k++))
            action[k] = best(output, legal, k);
    }

  private:
    int best(const float* logits, const uint8_t* legal, int k) const {
        int found = -1;
        for (int i = 0; i < sizes_[k]; ++i)
            if (allows(legal, i) && (found < 0 || logits[i] > logits[found])) found = i;
        return found;
    }
};

class EpsilonGreedy : public DiscreteHead {
  public:
    explicit EpsilonGreedy(const Json& about)
        : DiscreteHead({about.at("num_actions").get<int64_t>()}),
          epsilon_(about.at("epsilon")),
          spread_(about.at("spread")),
          low_(about.at("v_min")),
          high_(about.at("v_max")),
          atoms_(about.at("atoms")) {
        if (!(epsilon_ >= 0 && epsilon_ <= 1 && spread_ >= 0) || atoms_ < 1)
            throw InputError("epsilon is not within 0 to 1, spread below 0, or atoms below 1");
        num_outputs = int(sizes_[0]) * atoms_;
    }

    void draw(const float* output, Random& random, float place, const uint8_t* legal, double* action,
              float* log_prob) const override {
        double best;
        mode(output, legal, &best);
        const double epsilon = std::pow(epsilon_, 1 + spread_ * place), n = double(count(legal, 0));
        *action = random.uniform() < epsilon ? double(any_of(legal, 0, random)) : best;
        if (log_prob) *log_prob = float(std::log(epsilon / n + (1 - epsilon) * (*action == best)));
    }

    void mode(const float* output, const uint8_t* legal, double* action) const override {
        int best = -1;
        for (int i = 0; i < sizes_[0]; ++i)
            if (allows(legal, i) && (best < 0 || value(output + i * atoms_) > value(output + best * atoms_))) best = i;
        *action = std::isnan(value(output + best * atoms_)) ? NAN : best;
    }

  private:
    /// The mean of linspace(v_min, v_max, atoms) under softmax(logits); of one atom the number itself.
    float value(const float* logits) const {
        if (atoms_ == 1) return *logits;
        const float most = *std::max_element(logits, logits + atoms_);
        float total = 0, sum = 0;
        for (int i = 0; i < atoms_; ++i) {
            const float weight = std::exp(logits[i] - most);
            total += weight;
            sum += weight * (low_ + (high_ - low_) * float(i) / float(atoms_ - 1));
        }
        return sum / total;
    }

    const double epsilon_, spread_;
    const float low_, high_;
    const int atoms_;
};

}  // namespace

std::unique_ptr<Head> make_head(const Json& about, Box box, int num_outputs) {
    const std::string kind = about.at("kind");
    std::unique_ptr<Head> head;
    if (kind == "tanh_normal") head = std::make_unique<TanhNormal>(about, std::move(box));
    if (kind == "normal") head = std::make_unique<Normal>(about, std::move(box), num_outputs);
    if (kind == "deterministic") head = std::make_unique<Deterministic>(about, std::move(box));
    if (kind == "categorical") head = std::make_unique<Categorical>(about);
    if (kind == "epsilon_greedy") head = std::make_unique<EpsilonGreedy>(about);
    if (!head) throw InputError("unknown distribution " + kind);
    if (head->num_outputs != num_outputs)
        throw InputError("a " + kind + " takes " + std::to_string(head->num_outputs) + " numbers, the last layer gives " +
                         std::to_string(num_outputs));
    return head;
}
