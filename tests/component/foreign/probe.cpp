// Plays the parts of the sampler in C++ without a run.
//     probe act < frames and observations        one line of numbers for each observation
//     probe places INDEX COUNT        one number for each environment
//     probe play ENV NQ NV NOISE IS_NORMAL SEED COUNT < actions        one JSON line for each step and reset
#include <cstdio>
#include <iostream>
#include <iterator>

#include "environments.hpp"
#include "policy.hpp"

namespace {

template <class T>
bool read(T& value) {
    return bool(std::cin.read(reinterpret_cast<char*>(&value), sizeof value));
}

/// The policy of a message, then one row of observations after the other, of which many are evaluated at once; after
/// all of them a byte for each choice of each row, for a policy that takes masks.
int act(int rows_at_once) {
    uint32_t num_frames, size;
    read(num_frames);
    Frames frames;
    for (uint32_t i = 0; i < num_frames; ++i) {
        read(size);
        frames.emplace_back(size, '\0');
        std::cin.read(frames.back().data(), size);
    }
    const Message message = decode(frames);
    Policy policy(message.fields, message.arrays);
    const std::string bytes((std::istreambuf_iterator<char>(std::cin)), {});
    const size_t row_size = policy.num_obs() * sizeof(float), flags = policy.takes_masks() ? policy.head().num_choices : 0;
    const int num = int(bytes.size() / (row_size + flags)), actions = policy.head().num_actions;
    std::vector<float> obs(size_t(num) * policy.num_obs());
    std::memcpy(obs.data(), bytes.data(), num * row_size);
    const auto* masks = flags ? reinterpret_cast<const uint8_t*>(bytes.data()) + num * row_size : nullptr;
    std::vector<double> mode(num * actions), drawn(num * actions);
    std::vector<float> log_prob(num), places(num, 0.25f);
    Random random(std::seed_seq{1});
    const bool has_log_prob = policy.head().has_log_prob();
    for (int at = 0; at < num; at += rows_at_once) {
        const int rows = std::min(rows_at_once, num - at);
        const float* from = obs.data() + size_t(at) * policy.num_obs();
        const uint8_t* legal = masks ? masks + at * flags : nullptr;
        policy.mode(from, rows, &mode[at * actions], legal);
        policy.act(from, rows, random, places.data(), &drawn[at * actions], has_log_prob ? &log_prob[at] : nullptr, legal);
    }
    for (int row = 0; row < num; ++row) {
        for (int i = 0; i < actions; ++i) std::printf("%.9g ", mode[row * actions + i]);
        for (int i = 0; i < actions; ++i) std::printf("%.9g ", drawn[row * actions + i]);
        std::printf("%.9g\n", log_prob[row]);
    }
    return 0;
}

/// A reset draws in this order; the same numbers from a second generator let a reader set the same state.
Json noise_of(Random& random, int nq, int nv, double noise, bool is_normal) {
    Json drawn = Json::array();
    for (int i = 0; i < nq; ++i) drawn.push_back(random.uniform(-noise, noise));
    for (int i = 0; i < nv; ++i) drawn.push_back(is_normal ? noise * random.normal() : random.uniform(-noise, noise));
    return drawn;
}

int play(char** words) {
    const Json plan = {{"environment", {{"id", words[0]}, {"kwargs", Json::object()}}},
                       {"run", {{"randomize", Json::object()}}}};
    const int nq = std::atoi(words[1]), nv = std::atoi(words[2]);
    const double noise = std::atof(words[3]);
    const bool is_normal = std::atoi(words[4]);
    Random random(std::seed_seq{std::atoi(words[5])}), twin(std::seed_seq{std::atoi(words[5])});
    const int count = std::atoi(words[6]);
    const auto envs = make_environments(plan, count);  // in turn: none may disturb another
    std::vector<float> obs(envs->num_obs()), action(envs->num_actions());
    const auto reset = [&](int n) {
        envs->reset(n, random, obs.data());
        std::cout << Json{{"env", n}, {"noise", noise_of(twin, nq, nv, noise, is_normal)}, {"obs", obs}}.dump() << "\n";
    };
    for (int n = 0; n < count; ++n) reset(n);
    for (int step = 0; std::cin.read(reinterpret_cast<char*>(action.data()), 4 * action.size()); ++step) {
        const std::vector<double> given(action.begin(), action.end());
        const Outcome outcome = envs->step(step % count, given.data(), obs.data());
        std::cout << Json{{"env", step % count}, {"reward", outcome.reward}, {"terminated", outcome.terminated}, {"obs", obs}}
                         .dump()
                  << "\n";
        if (outcome.terminated) reset(step % count);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc == 4)
            for (const float place : places_of(std::atoi(argv[2]), std::atoi(argv[3])))
                std::printf("%.9g\n", place);
        else
            return argc == 9 ? play(argv + 2) : act(argc > 2 ? std::atoi(argv[2]) : 16);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    return 0;
}
