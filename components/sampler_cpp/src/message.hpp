// Messages as PROTOCOL.md describes them: a MessagePack header, then one raw little-endian frame for each array.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

using Json = nlohmann::ordered_json;
using Frames = std::vector<std::string>;

/// The user's input is at fault: one line on standard error, and exit code 2.
struct InputError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A message that breaks a rule; it begins with a word of the table "What is refused".
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Whether a number may travel: it is neither NaN nor beyond 1e15.
bool is_finite(double number);

/// An array of a message, row-major.
struct Array {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;

    template <class T>
    Array(const char* name, std::vector<int64_t> dimensions, const std::vector<T>& values)
        : dtype(name),
          shape(std::move(dimensions)),
          bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)) {}
    Array(std::string name, std::vector<int64_t> dimensions, std::string content)
        : dtype(std::move(name)), shape(std::move(dimensions)), bytes(std::move(content)) {}

    /// The elements of a float32 array.
    std::vector<float> floats() const {
        std::vector<float> values(bytes.size() / sizeof(float));
        std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
        return values;
    }
};

using Arrays = std::map<std::string, Array>;

struct Message {
    std::string kind;
    Json fields = Json::object();
    Arrays arrays{};
    std::string sender{};
    uint64_t incarnation = 0;
    int64_t sequence = 0;
    bool repeat = false;
};

Frames encode(const Message& message);

/// Throws Refused, also for fields that a sampler uses and that are missing or of another type.
Message decode(const Frames& frames);
