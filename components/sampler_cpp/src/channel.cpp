#include "channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>

namespace {

constexpr double QUIET_S = 1.0, MAX_QUIET_S = 10.0;
constexpr int ANSWER_TRIES = 5, ANSWER_MS = 10;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + zmq_strerror(zmq_errno())); }

}  // namespace

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Channel::Channel(void* context, const Json& about, int type)
    : socket_(zmq_socket(context, type)),
      endpoint_(about.at("endpoint")),
      kinds_(about.at("kinds").get<std::set<std::string>>()),
      high_water_mark_(about.at("high_water_mark")) {
    if (socket_ == nullptr) fail("no socket for " + endpoint_);
    set(ZMQ_SNDHWM, high_water_mark_);
    set(ZMQ_RCVHWM, high_water_mark_);
    set(ZMQ_LINGER, type == ZMQ_PUSH ? 1000 : 0);
    set(ZMQ_RECONNECT_IVL, 10);
    set(ZMQ_RECONNECT_IVL_MAX, 200);
    const int64_t max_bytes = int64_t(1) << 30;
    zmq_setsockopt(socket_, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes);
    if (const int bytes = about.at("socket_buffer_bytes")) {
        set(ZMQ_SNDBUF, bytes);
        set(ZMQ_RCVBUF, bytes);
    }
}

Channel::~Channel() { zmq_close(socket_); }

void Channel::set(int option, int value) {
    if (zmq_setsockopt(socket_, option, &value, sizeof value) != 0) fail("an option of " + endpoint_);
}

Pusher::Pusher(void* context, const Json& about, const Identity& identity)
    : Channel(context, about, ZMQ_PUSH), identity_(identity), buffer_bytes_(about.at("socket_buffer_bytes")) {
    if (buffer_bytes_ > 0 && endpoint_.rfind("ipc://", 0) == 0) {
        const std::string address = "inproc://connected-" + endpoint_;
        zmq_socket_monitor(socket_, address.c_str(), ZMQ_EVENT_CONNECTED);
        monitor_ = zmq_socket(context, ZMQ_PAIR);
        zmq_connect(monitor_, address.c_str());
    }
    if (zmq_connect(socket_, endpoint_.c_str()) != 0) fail(endpoint_);
}

Pusher::~Pusher() {
    if (monitor_ == nullptr) return;
    zmq_socket_monitor(socket_, nullptr, 0);
    zmq_close(monitor_);
}

/// ZeroMQ sets SNDBUF for tcp alone: of an ipc connection it is set here, on the descriptor that the monitor gives.
void Pusher::limit_kernel_buffer() {
    struct {
        uint16_t event;
        int32_t descriptor;
    } __attribute__((packed)) connected;
    char address[256];
    while (monitor_ != nullptr && zmq_recv(monitor_, &connected, sizeof connected, ZMQ_DONTWAIT) == sizeof connected) {
        zmq_recv(monitor_, address, sizeof address, ZMQ_DONTWAIT);
        setsockopt(connected.descriptor, SOL_SOCKET, SO_SNDBUF, &buffer_bytes_, sizeof buffer_bytes_);
    }
}

bool Pusher::send(const Frames& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
        const int flags = ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
        while (zmq_send(socket_, frames[i].data(), frames[i].size(), flags) < 0) {
            if (errno == EAGAIN && i == 0) return false;
            if (errno != EINTR) fail(endpoint_);
        }
    }
    return true;
}

bool Pusher::try_push(Message message) {
    limit_kernel_buffer();
    message.sender = identity_.name;
    message.incarnation = identity_.incarnation;
    message.sequence = sent_;
    const Frames frames = encode(message);
    zmq_pollitem_t item = {socket_, 0, ZMQ_POLLOUT, 0};  // without a poll ZeroMQ may see an old state of its queue
    if (!send(frames) && (zmq_poll(&item, 1, 0) <= 0 || !send(frames))) return false;
    ++sent_;
    return true;
}

Subscriber::Subscriber(void* context, const Json& about) : Channel(context, about, ZMQ_SUB), news_s_(now_s()) {
    ask_again();
    if (zmq_connect(socket_, endpoint_.c_str()) != 0) fail(endpoint_);
}

bool Subscriber::take(Frames& frames) {
    frames.clear();
    int more = 1;
    while (more) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        if (zmq_msg_recv(&part, socket_, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&part);
            return false;
        }
        frames.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
        more = zmq_msg_more(&part);
        zmq_msg_close(&part);
    }
    return true;
}

std::optional<Message> Subscriber::receive() {
    Frames frames;
    while (take(frames)) {
        ++drained_;
        try {
            Message message = decode(frames);
            if (kinds_.count(message.kind) == 0)
                throw Refused("wrong_kind: a " + message.kind + " message does not travel here");
            if (is_news(message)) return message;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s refused a message (%d so far): %s\n", endpoint_.c_str(), ++refused_, error.what());
        }
    }
    return std::nullopt;
}

std::optional<Message> Subscriber::drain(int& drained) {
    std::optional<Message> newest;
    drained_ = 0;
    while (auto message = receive()) newest = std::move(message);
    drained = drained_;
    return newest;
}

std::optional<Message> Subscriber::newest() {
    int drained = 0;
    const int answered = answers_;
    auto newest = drain(drained);
    if (drained < high_water_mark_) {
        ask_when_quiet(newest.has_value());
        return newest;
    }
    for (int tries = 0; tries < ANSWER_TRIES && answers_ == answered; ++tries) {
        ask_again();
        zmq_pollitem_t item = {socket_, 0, ZMQ_POLLIN, 0};
        zmq_poll(&item, 1, ANSWER_MS);
        if (auto later = drain(drained)) newest = std::move(later);
    }
    return newest;
}

bool Subscriber::is_news(const Message& message) {
    if (life_ != std::make_pair(message.sender, message.incarnation)) {
        life_ = {message.sender, message.incarnation};
        had_.clear();
        last_ = -1;
    }
    answers_ += message.repeat;
    std::string kept = message.kind;
    if (kept == "set") kept += message.fields.value("role", "") + "/" + message.fields.value("option", "");
    const auto [had, is_first] = had_.try_emplace(kept, message.sequence);
    if (!is_first && message.sequence <= had->second) return false;
    had->second = message.sequence;
    if (!message.repeat && last_ >= 0 && message.sequence > last_ + 1) ask_again();  // a gap is a loss
    last_ = std::max(last_, message.sequence);
    return true;
}

void Subscriber::ask_again() { zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0); }

/// The loss of a last message leaves no gap: ask once after each silence that is long beside the last interval.
void Subscriber::ask_when_quiet(bool has_news) {
    const double since_s = now_s() - news_s_;
    if (has_news) {
        quiet_s_ = std::clamp(4 * since_s, QUIET_S, MAX_QUIET_S);
        news_s_ = now_s();
    } else if (in_doubt_ && since_s > quiet_s_) {
        ask_again();
    } else {
        return;
    }
    in_doubt_ = has_news;
}
