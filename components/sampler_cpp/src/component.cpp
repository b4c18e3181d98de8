#include "component.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <ctime>
#include <fstream>
#include <random>
#include <utility>

namespace {

constexpr double REPORT_INTERVAL_S = 0.5, REPORTED_WAIT_S = 1.0, PATIENCE_S = 5.0, LAST_REPORTS_S = 2.0;
/// A `hello` is on its way for less time than this.
constexpr double UNHEARD_S = 2.0;
constexpr size_t MOST_KEPT = 1000;
constexpr const char* CLOCKS[] = {"busy", "blocked", "starved", "idle"};

volatile std::sig_atomic_t signalled = 0;

void on_signal(int number) { signalled = number; }

double unix_time_s() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

double cpu_s() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const timeval &user = usage.ru_utime, &system = usage.ru_stime;
    return double(user.tv_sec + system.tv_sec) + 1e-6 * double(user.tv_usec + system.tv_usec);
}

int64_t resident_bytes() {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * sysconf(_SC_PAGE_SIZE);
}

Json read_plan(std::string path) {
    struct stat about;
    if (stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode)) path += "/run.json";
    std::ifstream file(path);
    if (!file) throw InputError(path + ": there is no such run file");
    const Json plan = Json::parse(file, nullptr, false);
    const Json format = plan.is_object() ? plan.value("format", Json()) : Json();
    if (format != 2) throw InputError(path + ": not a run file of format 2: format is " + format.dump());
    return plan;
}

uint64_t random_incarnation() {
    std::random_device device;
    return ((uint64_t(device()) << 32 | device()) & ((uint64_t(1) << 53) - 2)) + 1;
}

}  // namespace

Component::Component(const std::string& role_, std::string run_file, std::optional<int> wanted)
    : plan(read_plan(run_file)), role(role_), context_(zmq_ctx_new()), began_s_(now_s()) {
    identity.incarnation = random_incarnation();
    claim_name(wanted);
    identity.name = role + "-" + std::to_string(index);
    charged_s_ = began_s_;
    next_report_s_ = began_s_ + REPORT_INTERVAL_S;
    control_.emplace(context_, channel("control"));
    outbox_.emplace(context_, channel("report"), identity);
    struct sigaction action = {};  // without SA_RESTART: a signal ends the wait under way
    action.sa_handler = on_signal;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
}

Component::~Component() {
    control_.reset();
    outbox_.reset();
    zmq_ctx_term(context_);
}

void Component::claim_name(std::optional<int> wanted) {
    const std::string sockets = plan.at("socket_dir");
    struct stat about;
    if (stat(sockets.c_str(), &about) != 0)
        throw InputError("the run is over: its socket folder " + sockets + " is gone; start it again");
    const auto& own = plan.at("components").at(role);
    const int first = own.value("launched", false) ? own.at("count").at("maximum").get<int>() : 0;
    index = wanted.value_or(first);  // those below are the launcher's
    while (!lock(index)) {
        if (wanted) throw std::runtime_error(role + "-" + std::to_string(index) + " is taken by another process");
        ++index;
    }
}

/// Holds SOCKET_DIR/ROLE-INDEX.lock until this process ends; false where another one does.
bool Component::lock(int number) {
    const std::string path =
        plan.at("socket_dir").get<std::string>() + "/" + role + "-" + std::to_string(number) + ".lock";
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) throw std::runtime_error(path + ": cannot be opened: " + std::strerror(errno));
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        close(descriptor);
        return false;
    }
    struct stat before;
    had_another = fstat(descriptor, &before) == 0 && before.st_size > 0;
    if (ftruncate(descriptor, 0) != 0 || dprintf(descriptor, "%d %llu\n", getpid(), (unsigned long long)identity.incarnation) < 0)
        throw std::runtime_error(path + ": cannot be written: " + std::strerror(errno));
    return true;
}

const Json& Component::channel(const std::string& name) const {
    const Json& about = plan.at("channels").at(name);
    if (about.value("curve", false))
        throw InputError("channels." + name + " is encrypted (" + about.at("endpoint").get<std::string>() +
                         "), and CURVE is not spoken here: leave out its endpoint and curve, or use = \"sampler\"");
    return about;
}

bool Component::running() const { return stop_reason_.empty() && !signalled; }

void Component::ready() {
    std::fprintf(stderr, "%s is ready (pid %d)\n", identity.name.c_str(), getpid());
    say_hello();
    send_report();
}

void Component::say_hello() {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    hello_s_ = now_s();
    report("hello",
           {{"role", role}, {"name", identity.name}, {"pid", getpid()}, {"protocol", 1}, {"host", std::string(host)}});
}

/// Whether a broker knows this process and not that it is ready: its hello went with the broker before this one.
bool Component::is_unheard(const Json& status) const {
    const Json processes = status.value("processes", Json());
    const Json row = processes.is_object() ? processes.value(identity.name, Json()) : Json();
    const bool is_known = row.is_object() && row.value("pid", Json()) == getpid() && row.value("ready", Json()) == false;
    return is_known && hello_s_ > 0 && now_s() - hello_s_ > UNHEARD_S;
}

/// Charges the time since the last call to a clock: a report in the middle of a wait has it so far.
void Component::charge(Clock clock) {
    const double time_s = now_s();
    clock_s_[int(clock)] += time_s - charged_s_;
    charged_s_ = time_s;
}

bool Component::poll(const Wait& wait) {
    charge(Clock::busy);
    const double began_s = charged_s_;
    bool is_ready = false;
    for (double time_s = began_s;;) {
        const double left_s = std::max(0.0, std::min(began_s + wait.timeout_s, next_report_s_) - time_s);
        zmq_pollitem_t items[] = {{control_->socket(), 0, ZMQ_POLLIN, 0},
                                  {wait.channel ? wait.channel->socket() : nullptr, 0, wait.events, 0}};
        const int count = zmq_poll(items, wait.channel ? 2 : 1, long(std::ceil(1000 * left_s)));
        if (count > 0) {
            is_ready = wait.channel && items[1].revents != 0;
            hear();
        }
        charge(wait.clock);
        time_s = charged_s_;
        if (time_s >= next_report_s_) send_report();
        if (is_ready || time_s >= began_s + wait.timeout_s || (!running() && !wait.draining)) break;
    }
    if (!wait.waiting_for.empty()) note_wait(is_ready ? "" : wait.waiting_for, began_s);
    return is_ready;
}

void Component::breathe() {
    if (now_s() >= next_report_s_) poll({});
}

void Component::hear() {
    while (auto message = control_->receive()) {
        if (message->kind == "status" && is_unheard(message->fields)) say_hello();
        if (message->kind != "stop") continue;
        const Json& roles = message->fields["roles"];
        const bool is_meant = std::any_of(roles.begin(), roles.end(), [&](const Json& r) { return r == role || r == "*"; });
        if (is_meant && stop_reason_.empty()) stop_reason_ = "told to stop: " + message->fields["reason"].get<std::string>();
    }
}

void Component::report(const std::string& kind, Json fields, Arrays arrays) {
    Message message{kind, std::move(fields), std::move(arrays)};
    if (push_kept() && outbox_->try_push(message)) return;
    if (kind == "report" || kept_.size() >= MOST_KEPT)
        ++reports_dropped_;  // the next one says all that it said
    else
        kept_.push_back(std::move(message));
}

void Component::report_failure(const std::string& kind, const std::string& summary) {
    if (const auto found = failures_.find(kind); found != failures_.end()) {
        found->second = {found->second.first + 1, summary};
        return;
    }
    failures_[kind] = {0, summary};
    report("failure", {{"name", identity.name}, {"summary", summary}, {"traceback", summary}});
}

/// Tells how many there were beside those that were told at once.
void Component::report_failures() {
    const auto failures = std::exchange(failures_, {});
    for (const auto& [kind, about] : failures) {
        const auto& [count, summary] = about;
        if (count == 0) continue;
        report("failure", {{"name", identity.name}, {"summary", summary}, {"traceback", summary}, {"count", count}});
    }
}

/// Sends what found no place, in its order; whether none is left.
bool Component::push_kept() {
    while (!kept_.empty() && outbox_->try_push(kept_.front())) kept_.pop_front();
    return kept_.empty();
}

Json Component::own_report() const {
    Json clock = Json::object();
    for (int i = 0; i < 4; ++i) clock[CLOCKS[i]] = clock_s_[i];
    const bool waits_long = !waiting_for_.empty() && now_s() - waiting_since_s_ > REPORTED_WAIT_S;
    return {{"role", role},
            {"name", identity.name},
            {"pid", getpid()},
            {"time_s", unix_time_s()},
            {"uptime_s", now_s() - began_s_},
            {"cpu_s", cpu_s()},
            {"rss_bytes", resident_bytes()},
            {"clock_s", clock},
            {"counters", {{"reports_dropped", reports_dropped_}}},
            {"gauges", Json::object()},
            {"pushed", pushed ? pushed() : Json::object()},
            {"waiting_for", waits_long ? waiting_for_ : ""}};
}

void Component::send_report() {
    next_report_s_ = now_s() + REPORT_INTERVAL_S;
    report("report", own_report());
    report_failures();
}

void Component::leave(const std::string& reason) {
    report_failures();
    Json fields = own_report();
    fields["reason"] = reason;
    report("bye", fields);
    for (const double until_s = now_s() + LAST_REPORTS_S; !push_kept() && now_s() < until_s;) {
        zmq_pollitem_t place = {outbox_->socket(), 0, ZMQ_POLLOUT, 0};
        zmq_poll(&place, 1, 100);
    }
}

void Component::note_wait(const std::string& waiting_for, double began_s) {
    if (waiting_for != waiting_for_) {
        if (complained_) std::fprintf(stderr, "no longer waiting for %s\n", waiting_for_.c_str());
        waiting_for_ = waiting_for;
        waiting_since_s_ = began_s;
        complained_ = false;
    } else if (!waiting_for.empty() && !complained_ && now_s() - waiting_since_s_ > PATIENCE_S) {
        complained_ = true;
        std::fprintf(stderr, "%s has waited %.0f s for %s\n", identity.name.c_str(), PATIENCE_S, waiting_for.c_str());
    }
}
