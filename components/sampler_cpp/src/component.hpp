// One process of a run: its plan, its name, what it reports, and whether it should go on.
#pragma once

#include <deque>
#include <functional>
#include <map>

#include "channel.hpp"

/// What a wait is charged to.
enum class Clock { busy, blocked, starved, idle };

/// A wait on one channel, or on none.
struct Wait {
    const Channel* channel = nullptr;
    short events = 0;
    double timeout_s = 0;
    Clock clock = Clock::idle;
    std::string waiting_for{};  // which peer owes what; logged and reported when the wait is long
    bool draining = false;      // wait although the process has been told to stop
};

class Component {
  public:
    /// Joins the run of `run_file` (or of the folder that holds it) under the first free index, or under `index`.
    Component(const std::string& role, std::string run_file, std::optional<int> index);
    ~Component();

    bool running() const;
    const std::string& stop_reason() const { return stop_reason_; }
    std::string stream() const { return identity.name + "/" + std::to_string(identity.incarnation); }
    void* context() const { return context_; }

    /// A channel's entry in run.json; throws InputError for one that is encrypted.
    const Json& channel(const std::string& name) const;

    /// Tells the broker that this process is set up, and again where a status says that it has not heard so.
    void ready();

    /// Whether the channel is ready before the timeout; hears the broker and reports meanwhile.
    bool poll(const Wait& wait);

    /// Reports if a report is due; cheap enough to call between two steps.
    void breathe();

    /// Sends one message to the broker. Where it finds no place a report is dropped and counted, others wait for one.
    void report(const std::string& kind, Json fields, Arrays arrays = {});

    /// Reports a failure that the process survives: of a `kind` one at once, the number of others with the next report.
    void report_failure(const std::string& kind, const std::string& summary);

    /// Sends `bye`, for which it waits a little where there is no place.
    void leave(const std::string& reason);

    Json plan;
    std::string role;
    int index = 0;
    Identity identity;
    bool had_another = false;  // whether the name had another life before this one
    std::function<Json()> pushed;  // learner -> transitions pushed to it

  private:
    void claim_name(std::optional<int> index);
    bool lock(int index);
    void hear();
    void say_hello();
    bool is_unheard(const Json& status) const;
    void charge(Clock clock);
    Json own_report() const;
    void send_report();
    void report_failures();
    bool push_kept();
    void note_wait(const std::string& waiting_for, double began_s);

    void* context_;
    std::optional<Subscriber> control_;
    std::optional<Pusher> outbox_;
    std::string stop_reason_;
    double began_s_, charged_s_, next_report_s_;
    double hello_s_ = 0;  // when it was said last; 0 before
    double clock_s_[4] = {};
    std::string waiting_for_;
    double waiting_since_s_ = 0;
    bool complained_ = false;
    std::deque<Message> kept_;  // for the broker, in their order
    int64_t reports_dropped_ = 0;
    std::map<std::string, std::pair<int64_t, std::string>> failures_;  // kind -> further ones, the newest's summary
};
