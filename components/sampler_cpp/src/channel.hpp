// The connecting ends of channels: ZeroMQ sockets with every option written out.
#pragma once

#include <zmq.h>

#include <optional>
#include <set>

#include "message.hpp"

/// Who sends: stamped on each message.
struct Identity {
    std::string name;
    uint64_t incarnation;
};

/// Seconds of a clock that only goes forward.
double now_s();

class Channel {
  public:
    /// `about` is the channel's entry in run.json, `type` ZMQ_PUSH or ZMQ_SUB.
    Channel(void* context, const Json& about, int type);
    ~Channel();
    Channel(const Channel&) = delete;

    void* socket() const { return socket_; }
    const std::string& endpoint() const { return endpoint_; }

  protected:
    void set(int option, int value);

    void* socket_;
    std::string endpoint_;
    std::set<std::string> kinds_;
    int high_water_mark_;
};

class Pusher : public Channel {
  public:
    Pusher(void* context, const Json& about, const Identity& identity);
    ~Pusher();

    /// False where no queue has a place; the message is then neither sent nor counted.
    bool try_push(Message message);

  private:
    bool send(const Frames& frames);
    void limit_kernel_buffer();

    const Identity& identity_;
    int64_t sent_ = 0;
    int buffer_bytes_;
    void* monitor_ = nullptr;
};

class Subscriber : public Channel {
  public:
    Subscriber(void* context, const Json& about);

    /// The next message that is news; refused ones are told in the log and passed over.
    std::optional<Message> receive();

    /// The last of those that wait. Where the queue was full it may have lost a later one: it then asks.
    std::optional<Message> newest();

  private:
    bool take(Frames& frames);
    std::optional<Message> drain(int& drained);
    bool is_news(const Message& message);
    void ask_again();
    void ask_when_quiet(bool has_news);

    std::pair<std::string, uint64_t> life_;
    std::map<std::string, int64_t> had_;
    int64_t last_ = -1;
    int answers_ = 0, refused_ = 0, drained_ = 0;
    double news_s_, quiet_s_ = 1.0;
    bool in_doubt_ = false;
};
