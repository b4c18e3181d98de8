// A sampler: steps a batch of environments with the newest policy and pushes rollouts to the learners.
//     sampler_cpp RUN_FILE [INDEX]
#include <algorithm>
#include <cstdio>
#include <limits>

#include "collector.hpp"

namespace {

constexpr double EPISODES_INTERVAL_S = 0.5, WAIT_S = 1.0;
/// A puller whose queue is full loses what the kernel holds for it when the pusher hangs up: it gets time to drain.
constexpr double SETTLE_S = 0.2;

/// Pushes rollouts to one learner, only the arrays that it asks for, and counts them.
class Outlet {
  public:
    Outlet(Component& component, const std::string& channel)
        : learner(component.channel(channel).at("binds")),
          fields(component.channel(channel).at("fields").get<std::set<std::string>>()),
          component_(component),
          pusher_(component.context(), component.channel(channel), component.identity) {}

    void wait_for_place() {
        const std::string what = learner + " to take a rollout (" + pusher_.endpoint() + ")";
        while (component_.running() && !component_.poll({&pusher_, ZMQ_POLLOUT, WAIT_S, Clock::blocked, what})) {
        }
    }

    /// One that is told to stop meanwhile leaves the rollout unproduced.
    void push(const Policy& policy, const Collector& from, const Arrays& arrays) {
        const int64_t after = produced + int64_t(from.num_steps) * from.num_envs;
        Message message{"rollout",
                        {{"produced", after},
                         {"policy_version", policy.version},
                         {"num_steps", from.num_steps},
                         {"num_envs", from.num_envs}}};
        for (const std::string& name : fields) {
            const auto found = arrays.find(name);
            if (found == arrays.end()) throw InputError(learner + " asks for " + name + ", which is not made here");
            message.arrays.insert(*found);
        }
        while (!pusher_.try_push(message)) {
            if (!component_.running()) return;
            wait_for_place();
        }
        produced = after;
    }

    const std::string learner;
    const std::set<std::string> fields;
    int64_t produced = 0;

  private:
    Component& component_;
    Pusher pusher_;
};

using Outlets = std::vector<std::unique_ptr<Outlet>>;

/// The policy that acts: the newest that there is, or in order each version in its turn.
class Acting {
  public:
    Acting(Component& component, const Outlets& outlets)
        : component_(component),
          outlets_(outlets),
          in_order_(component.plan.at("balance").at("in_order")),
          subscriber_(component.context(), component.channel("policy")) {}

    /// The policy for the next rollout, waited for as long as it takes; null when told to stop first.
    Policy* next() {
        while (component_.running()) {
            if (!(in_order_ && is_fresh())) adopt();
            if (is_fresh()) return &*policy_;
            const std::string what = std::string(policy_ ? "a newer policy" : "a policy") + " from " +
                                     component_.channel("policy").at("binds").get<std::string>() + " (" +
                                     subscriber_.endpoint() + ")";
            component_.poll({&subscriber_, ZMQ_POLLIN, WAIT_S, Clock::starved, what});
        }
        return nullptr;
    }

  private:
    bool is_fresh() const {
        double produced = 0;
        for (const auto& outlet : outlets_) produced = std::max(produced, double(outlet->produced));
        return policy_ && produced < collect_until_;
    }

    void adopt() {
        const auto message = in_order_ ? subscriber_.receive() : subscriber_.newest();
        if (!message) return;
        const int64_t before = policy_ ? policy_->version : -1;
        policy_.emplace(message->fields, message->arrays);
        if (in_order_ && before >= 0 && policy_->version != before + 1 && policy_->version != before)
            throw std::runtime_error("version " + std::to_string(policy_->version) + " came after " +
                                     std::to_string(before) + "; a run in order cannot skip one: start it again");
        const Json limits = message->fields.value("collect_until", Json::object());
        const Json limit = limits.value(component_.stream(), limits.value("*", Json()));
        collect_until_ = limit.is_number() ? double(limit) : std::numeric_limits<double>::infinity();
    }

    Component& component_;
    const Outlets& outlets_;
    const bool in_order_;
    Subscriber subscriber_;
    std::optional<Policy> policy_;
    double collect_until_ = 0;
};

/// One for each learner.
Outlets outlets_of(Component& component) {
    Outlets outlets;
    for (const auto& [name, end] : component.plan.at("components").at("sampler").at("channels").items()) {
        if (name.rfind("experience.", 0) != 0) continue;
        outlets.push_back(std::make_unique<Outlet>(component, name));
    }
    return outlets;
}

/// Wait for a place at every learner, collect under the newest policy, push, report what ended.
void sample(Component& component, const Outlets& outlets) {
    const bool log_prob = std::any_of(outlets.begin(), outlets.end(),
                                      [](const auto& outlet) { return outlet->fields.count("log_prob") > 0; });
    Acting acting(component, outlets);
    Collector collector(component, log_prob);
    component.ready();
    double episodes_due_s = now_s() + EPISODES_INTERVAL_S;
    while (component.running()) {
        for (const auto& outlet : outlets) outlet->wait_for_place();
        Policy* policy = acting.next();
        if (policy == nullptr) break;
        const Arrays arrays = collector.collect(*policy);
        for (const auto& outlet : outlets) outlet->push(*policy, collector, arrays);
        component.poll({});
        if (now_s() >= episodes_due_s) {
            collector.report_episodes();
            episodes_due_s = now_s() + EPISODES_INTERVAL_S;
        }
    }
    collector.report_episodes();
    Wait settling;
    settling.timeout_s = SETTLE_S;
    settling.draining = true;
    component.poll(settling);
    component.leave(component.stop_reason().empty() ? "SIGTERM" : component.stop_reason());
}

int run(int argc, char** argv) {
    const std::string number = argc == 3 ? argv[2] : "0";
    const bool is_decimal = number.size() < 9 && number.find_first_not_of("0123456789") == std::string::npos;
    if (argc < 2 || argc > 3 || number.empty() || !is_decimal)
        throw InputError("usage: sampler_cpp RUN [INDEX]; RUN is the folder or run.json of a live run");
    Component component("sampler", argv[1], argc == 3 ? std::optional<int>(std::stoi(number)) : std::nullopt);
    Outlets outlets;
    component.pushed = [&outlets] {
        Json pushed = Json::object();
        for (const auto& outlet : outlets) pushed[outlet->learner] = outlet->produced;
        return pushed;
    };
    try {
        outlets = outlets_of(component);
        sample(component, outlets);
    } catch (const std::exception& error) {
        component.leave(std::string("failed: ") + error.what());
        throw;
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const InputError& error) {
        std::fprintf(stderr, "sampler: %s\n", error.what());
        return 2;
    } catch (const Json::exception& error) {
        std::fprintf(stderr, "sampler: run.json is not as PROTOCOL.md describes it: %s\n", error.what());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "sampler failed: %s\n", error.what());
        return 1;
    }
}
