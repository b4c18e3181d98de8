#include "message.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace {

constexpr int64_t MAX_COUNT = (int64_t(1) << 53) - 1;
constexpr int64_t MAX_DIMENSION = int64_t(1) << 30;
constexpr int64_t MAX_FRAME_BYTES = int64_t(1) << 30;
constexpr double LARGEST = 1e15;
constexpr size_t MAX_HEADER_BYTES = 64 * 1024, MAX_ENTRIES = 4096, MAX_ARRAYS = 64, MAX_RANK = 8;
/// Deeper headers are refused before the parser, which recurses, builds them.
constexpr int MAX_DEPTH = 64;

const std::map<std::string, int64_t> ITEM_BYTES = {
    {"float16", 2}, {"float32", 4}, {"float64", 8}, {"int8", 1},   {"int16", 2},  {"int32", 4},
    {"int64", 8},   {"uint8", 1},   {"uint16", 2},  {"uint32", 4}, {"uint64", 8}, {"bool", 1}};

/// Reads a header without building it; false for what must not be in one.
struct Scan : nlohmann::json_sax<Json> {
    std::vector<std::set<std::string>> keys;
    int depth = 0;

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t size) override {
        keys.emplace_back();
        return size <= MAX_ENTRIES && ++depth <= MAX_DEPTH;
    }
    bool key(string_t& name) override { return keys.back().insert(name).second; }
    bool end_object() override {
        keys.pop_back();
        --depth;
        return true;
    }
    bool start_array(std::size_t size) override { return size <= MAX_ENTRIES && ++depth <= MAX_DEPTH; }
    bool end_array() override {
        --depth;
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }
};

Json header_of(const Frames& frames) {
    if (frames.empty()) throw Refused("missing_frames: there is no header");
    if (frames[0].size() > MAX_HEADER_BYTES) throw Refused("oversize_header: it is over 64 KiB");
    Scan scan;
    if (!Json::sax_parse(frames[0], &scan, Json::input_format_t::msgpack))
        throw Refused("bad_header: the header is not one plain MessagePack map");
    Json header = Json::from_msgpack(frames[0]);
    if (!header.is_object()) throw Refused("header_not_map: the header is " + std::string(header.type_name()));
    return header;
}

const Json& key(const Json& header, const char* name) {
    const auto found = header.find(name);
    if (found == header.end()) throw Refused(std::string("missing_key: the header has no ") + name);
    return *found;
}

int64_t count(const Json& header, const char* name) {
    const Json& value = key(header, name);
    if (!value.is_number_integer() || value < 0 || value > MAX_COUNT)
        throw Refused(std::string("wrong_key_type: ") + name + " is " + value.dump());
    return value;
}

std::string text(const Json& header, const char* name) {
    const Json& value = key(header, name);
    if (!value.is_string()) throw Refused(std::string("wrong_key_type: ") + name + " is no text");
    return value;
}

Array array_of(const std::string& name, const Json& entry, const std::string& frame) {
    const std::string dtype = entry[1];
    const auto item = ITEM_BYTES.find(dtype);
    if (item == ITEM_BYTES.end()) throw Refused("unknown_dtype: " + name + " is of " + dtype);
    if (entry[2].size() > MAX_RANK) throw Refused("wrong_rank: " + name + " has over 8 dimensions");
    int64_t bytes = item->second;
    std::vector<int64_t> shape;
    for (const Json& dimension : entry[2]) {
        if (!dimension.is_number_integer() || dimension < 0 || dimension > MAX_DIMENSION)
            throw Refused("bad_shape: " + name + " has the shape " + entry[2].dump());
        shape.push_back(dimension);
        bytes *= shape.back();
        if (bytes > MAX_FRAME_BYTES) throw Refused("oversize_frame: " + name + " is over 1 GiB");
    }
    if (bytes != int64_t(frame.size()))
        throw Refused("wrong_bytes: " + name + " has " + std::to_string(frame.size()) + " bytes, its shape " +
                      std::to_string(bytes));
    return Array(dtype, shape, frame);
}

void read_arrays(const Json& listed, const Frames& frames, Arrays& arrays) {
    if (!listed.is_array()) throw Refused("wrong_key_type: arrays is no list");
    if (listed.size() > MAX_ARRAYS) throw Refused("too_many_arrays: over 64");
    if (listed.size() + 1 != frames.size())
        throw Refused((listed.size() + 1 > frames.size() ? "missing_frames: " : "extra_frames: ") +
                      std::to_string(frames.size() - 1) + " frames for " + std::to_string(listed.size()) + " arrays");
    for (size_t i = 0; i < listed.size(); ++i) {
        const Json& entry = listed[i];
        if (!entry.is_array() || entry.size() != 3 || !entry[0].is_string() || !entry[1].is_string() ||
            !entry[2].is_array())
            throw Refused("bad_array_entry: " + entry.dump(-1, ' ', true, Json::error_handler_t::replace));
        const std::string name = entry[0];
        if (!arrays.emplace(name, array_of(name, entry, frames[i + 1])).second)
            throw Refused("duplicate_array: " + name);
    }
}

const Json& field(const Message& message, const char* name) {
    const auto found = message.fields.find(name);
    if (found == message.fields.end()) throw Refused("missing_field: " + message.kind + " has no " + name);
    return *found;
}

void expect(bool is_right, const char* name) {
    if (!is_right) throw Refused(std::string("wrong_field_type: ") + name);
}

bool is_count(const Json& value) { return value.is_number_integer() && value >= 0 && value <= MAX_COUNT; }

template <class Values, class Condition>
bool all_of(const Values& values, Condition condition) {
    return std::all_of(values.begin(), values.end(), condition);
}

/// An array of finite numbers of a policy; null where it did not come.
const Array* numbers(const Message& message, const std::string& name, size_t max_rank) {
    const auto found = message.arrays.find(name);
    if (found == message.arrays.end()) return nullptr;
    const Array& array = found->second;
    if (array.dtype != "float32") throw Refused("wrong_dtype: " + name + " is " + array.dtype + ", expected float32");
    if (array.shape.empty() || array.shape.size() > max_rank) throw Refused("wrong_rank: " + name);
    if (!all_of(array.floats(), is_finite))
        throw Refused("not_finite: " + name + " holds NaN, infinity or a number beyond 1e15");
    return &array;
}

/// Two arrays that come together.
void check_pair(const Array* one, const Array* other, const std::string& names) {
    if ((one == nullptr) != (other == nullptr)) throw Refused("missing_array: only one of " + names);
    if (one != nullptr && one->shape != other->shape) throw Refused("wrong_shape: " + names + " differ");
}

/// Its arrays can be acted with; bounds and statistics come in pairs.
void check_arrays(const Message& message) {
    if (numbers(message, "parameters", 1) == nullptr) throw Refused("missing_array: parameters");
    numbers(message, "average", 1);
    numbers(message, "auxiliary", 1);
    check_pair(numbers(message, "action_low", 1), numbers(message, "action_high", 1), "action_low and action_high");
    const Array* std = numbers(message, "observation_std", MAX_RANK);
    check_pair(numbers(message, "observation_mean", MAX_RANK), std, "observation_mean and observation_std");
    if (std != nullptr && !all_of(std->floats(), [](float x) { return x > 0; }))
        throw Refused("not_finite: observation_std holds a number that is not positive");
}

/// What a sampler relies on, of the kinds that it uses.
void check_kind(const Message& message) {
    if (message.kind == "stop") {
        const Json& roles = field(message, "roles");
        expect(roles.is_array() && all_of(roles, [](const Json& role) { return role.is_string(); }), "roles");
        expect(field(message, "reason").is_string(), "reason");
    }
    if (message.kind != "policy") return;
    for (const char* name : {"version", "critic_updates", "actor_updates"}) expect(is_count(field(message, name)), name);
    for (const char* name : {"description", "extras"}) expect(field(message, name).is_object(), name);
    expect(all_of(message.fields["extras"], [](const Json& value) { return value.is_number(); }), "extras");
    if (!all_of(message.fields["extras"], is_finite)) throw Refused("not_finite: extras");
    const Json limits = message.fields.value("collect_until", Json::object());
    expect(limits.is_object() && all_of(limits, is_count), "collect_until");
    expect(message.fields.value("layout", Json("")).is_string(), "layout");
    check_arrays(message);
}

}  // namespace

bool is_finite(double number) { return std::abs(number) <= LARGEST; }

Frames encode(const Message& message) {
    Json arrays = Json::array();
    for (const auto& [name, array] : message.arrays) arrays.push_back({name, array.dtype, array.shape});
    const Json header = {{"protocol", 1},
                         {"kind", message.kind},
                         {"sender", message.sender},
                         {"incarnation", message.incarnation},
                         {"arrays", arrays},
                         {"sequence", message.sequence},
                         {"fields", message.fields}};
    Frames frames(1);
    Json::to_msgpack(header, frames[0]);
    for (const auto& [name, array] : message.arrays) frames.push_back(array.bytes);
    return frames;
}

Message decode(const Frames& frames) {
    const Json header = header_of(frames);
    if (count(header, "protocol") != 1) throw Refused("unknown_version: protocol " + header["protocol"].dump());
    Message message;
    message.kind = text(header, "kind");
    message.sender = text(header, "sender");
    message.incarnation = uint64_t(count(header, "incarnation"));
    message.sequence = count(header, "sequence");
    message.fields = key(header, "fields");
    if (!message.fields.is_object()) throw Refused("wrong_key_type: fields is no map");
    message.repeat = header.value("repeat", Json(false)) == Json(true);
    read_arrays(key(header, "arrays"), frames, message.arrays);
    check_kind(message);
    return message;
}
