// HalfCheetah, Hopper, Walker2d and Ant of Gymnasium (v5): the same models, rewards, ends and first states.
#include <mujoco/mujoco.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "environments.hpp"

namespace {

bool always(const mjModel*, const mjData*) { return true; }

bool hops(const mjModel* model, const mjData* data) {
    const auto is_small = [](double x) { return -100 < x && x < 100; };
    return 0.7 < data->qpos[1] && -0.2 < data->qpos[2] && data->qpos[2] < 0.2 &&
           std::all_of(data->qpos + 2, data->qpos + model->nq, is_small) &&
           std::all_of(data->qvel, data->qvel + model->nv, is_small);
}

bool walks(const mjModel*, const mjData* data) {
    const double height = data->qpos[1], angle = data->qpos[2];
    return 0.8 < height && height < 2.0 && -1.0 < angle && angle < 1.0;
}

bool stands(const mjModel* model, const mjData* data) {
    const auto is_finite = [](double x) { return std::isfinite(x); };
    return 0.2 <= data->qpos[2] && data->qpos[2] <= 1.0 && std::all_of(data->qpos, data->qpos + model->nq, is_finite) &&
           std::all_of(data->qvel, data->qvel + model->nv, is_finite);
}

struct Robot {
    const char *id, *model;
    int frame_skip, hidden;  // `hidden` coordinates of qpos, the place in the world, are not observed
    double ctrl_cost, noise, healthy_reward;
    bool (*is_healthy)(const mjModel*, const mjData*);
    bool has_normal_velocity;  // of first states, else uniform
    bool clips_velocity;       // observes qvel within -10 .. 10
    bool feels_contact;        // observes contact forces, pays for them, and measures its speed at its first body
};

constexpr Robot ROBOTS[] = {
    {"HalfCheetah-v5", "half_cheetah.xml", 5, 1, 0.1, 0.1, 0.0, always, true, false, false},
    {"Hopper-v5", "hopper.xml", 4, 1, 1e-3, 5e-3, 1.0, hops, false, true, false},
    {"Walker2d-v5", "walker2d_v5.xml", 4, 1, 1e-3, 5e-3, 1.0, walks, false, true, false},
    {"Ant-v5", "ant.xml", 5, 2, 0.5, 0.1, 1.0, stands, true, false, true},
};
constexpr double CONTACT_COST = 5e-4, MAX_FORCE = 1.0, MAX_VELOCITY = 10.0;
/// Warnings after which MuJoCo resets a simulation in the midst of a step.
constexpr mjtWarning UNSTABLE[] = {mjWARN_BADQPOS, mjWARN_BADQVEL, mjWARN_BADQACC};

/// One simulation that takes the state of each environment in turn: what a step computes stays in the cache.
class Robots : public Environments {
  public:
    Robots(const Robot& robot, int count) : robot_(robot) {
        char problem[1000] = "";
        const std::string path = std::string(GYMNASIUM_MODELS) + "/" + robot.model;
        model_ = mj_loadXML(path.c_str(), nullptr, problem, sizeof problem);
        if (model_ == nullptr) throw InputError("MuJoCo cannot load " + path + ": " + problem);
        // A model of one tree has at most one island: the search for islands changes nothing.
        if (model_->ntree == 1) model_->opt.disableflags |= mjDSBL_ISLAND;
        data_ = mj_makeData(model_);
        state_size_ = int(mj_stateSize(model_, mjSTATE_INTEGRATION));
        states_.resize(size_t(count) * state_size_);
        places_.resize(count);
    }

    ~Robots() override {
        mj_deleteData(data_);
        mj_deleteModel(model_);
    }

    int num_obs() const override {
        const int forces = robot_.feels_contact ? 6 * int(model_->nbody - 1) : 0;
        return int(model_->nq + model_->nv) - robot_.hidden + forces;
    }
    int num_actions() const override { return int(model_->nu); }

    void reset(int n, Random& random, float* obs) override {
        const double noise = robot_.noise;
        mj_resetData(model_, data_);
        for (int i = 0; i < model_->nq; ++i) data_->qpos[i] = model_->qpos0[i] + random.uniform(-noise, noise);
        for (int i = 0; i < model_->nv; ++i)
            data_->qvel[i] = robot_.has_normal_velocity ? noise * random.normal() : random.uniform(-noise, noise);
        mj_forward(model_, data_);
        keep(n, obs);
    }

    Outcome step(int n, const double* action, float* obs) override {
        const double before = places_[n];
        mj_setState(model_, data_, &states_[size_t(n) * state_size_], mjSTATE_INTEGRATION);
        std::copy(action, action + num_actions(), data_->ctrl);
        for (const mjtWarning kind : UNSTABLE) data_->warning[kind].number = 0;
        for (int i = 0; i < robot_.frame_skip; ++i) mj_step(model_, data_);
        if (has_reset_itself()) return {0, false, "went on although MuJoCo has reset its simulation"};
        if (robot_.feels_contact) mj_rnePostConstraint(model_, data_);
        keep(n, obs);
        const bool is_healthy = robot_.is_healthy(model_, data_);
        const double speed = (places_[n] - before) / (model_->opt.timestep * robot_.frame_skip);
        return {speed + is_healthy * robot_.healthy_reward - cost(action), !is_healthy};
    }

  private:
    bool has_reset_itself() const {
        return std::any_of(std::begin(UNSTABLE), std::end(UNSTABLE), [&](int kind) { return data_->warning[kind].number > 0; });
    }

    /// Stores the state of environment n and writes what it observes.
    void keep(int n, float* obs) {
        mj_getState(model_, data_, &states_[size_t(n) * state_size_], mjSTATE_INTEGRATION);
        places_[n] = robot_.feels_contact ? data_->xpos[3] : data_->qpos[0];
        obs = std::copy(data_->qpos + robot_.hidden, data_->qpos + model_->nq, obs);
        const double most = robot_.clips_velocity ? MAX_VELOCITY : HUGE_VAL;
        obs = std::transform(data_->qvel, data_->qvel + model_->nv, obs,
                             [&](double x) { return float(std::clamp(x, -most, most)); });
        if (robot_.feels_contact) std::transform(data_->cfrc_ext + 6, data_->cfrc_ext + 6 * model_->nbody, obs, clipped);
    }

    static float clipped(double force) { return float(std::clamp(force, -MAX_FORCE, MAX_FORCE)); }

    double cost(const double* action) const {
        double ctrl = 0, contact = 0;
        for (int i = 0; i < model_->nu; ++i) ctrl += action[i] * action[i];
        for (int i = 0; robot_.feels_contact && i < 6 * model_->nbody; ++i) {
            const double force = std::clamp(data_->cfrc_ext[i], -MAX_FORCE, MAX_FORCE);
            contact += force * force;
        }
        return robot_.ctrl_cost * ctrl + CONTACT_COST * contact;
    }

    const Robot& robot_;
    mjModel* model_;
    mjData* data_;
    int state_size_;
    std::vector<double> states_, places_;
};

}  // namespace

std::unique_ptr<Environments> make_environments(const Json& plan, int count) {
    const Json& about = plan.at("environment");
    const std::string id = about.at("id");
    const Json& randomize = plan.at("run").at("randomize");
    if (!about.at("kwargs").empty() || !randomize.empty())
        throw InputError("run.env_kwargs and run.randomize are not known here: leave them out, or use = \"sampler\"");
    mju_user_warning = [](const char* text) { std::fprintf(stderr, "MuJoCo: %s\n", text); };
    std::string known;
    for (const Robot& robot : ROBOTS) {
        if (id == robot.id) return std::make_unique<Robots>(robot, count);
        known += std::string(known.empty() ? "" : ", ") + robot.id;
    }
    throw InputError("run.env: there is no " + id + " here; there is " + known + "; use = \"sampler\" steps any");
}
