#include "layers.hpp"

#include <algorithm>

#include "kernels.hpp"

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16, ROWS = 8;
#else
constexpr int LANES = 8, ROWS = 4;
#endif
typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));
/// Outputs that one pass over the inputs computes: two registers for each of ROWS rows.
constexpr int BLOCK = 2 * LANES;
/// In a row that a layer gives, at most.
constexpr int64_t MAX_NUMBERS = int64_t(1) << 28;

/// weight x + bias; the weights are packed so that each pass reads them one after the other.
class Linear : public Layer {
  public:
    Linear(int in, int out, const float* weight, const float* bias)
        : Layer(in, out), num_blocks_((out + BLOCK - 1) / BLOCK), packed_(size_t(num_blocks_) * (in + 1) * 2) {
        float* to = reinterpret_cast<float*>(packed_.data());
        for (int block = 0; block < num_blocks_; ++block)
            for (int k = -1; k < in; ++k)
                for (int j = block * BLOCK; j < (block + 1) * BLOCK; ++j, ++to)
                    *to = j >= out ? 0.0f : k < 0 ? bias[j] : weight[size_t(j) * in + k];
    }

    void apply(const float* x, int n, float* y) override {
        int row = 0;
        for (; row + ROWS <= n; row += ROWS) multiply<ROWS>(x + size_t(row) * num_in, y + size_t(row) * num_out);
        for (; row < n; ++row) multiply<1>(x + size_t(row) * num_in, y + size_t(row) * num_out);
    }

  private:
    template <int N>
    void multiply(const float* x, float* y) {
        const Vector* weight = packed_.data();
        for (int block = 0; block < num_blocks_; ++block) {
            Vector sum[N][2];
#pragma GCC unroll 8
            for (int r = 0; r < N; ++r) sum[r][0] = weight[0], sum[r][1] = weight[1];  // the bias
            weight += 2;
            for (int k = 0; k < num_in; ++k, weight += 2) {
#pragma GCC unroll 8
                for (int r = 0; r < N; ++r) {
                    const float value = x[r * num_in + k];
                    sum[r][0] += weight[0] * value;
                    sum[r][1] += weight[1] * value;
                }
            }
            const int first = block * BLOCK, count = std::min(BLOCK, num_out - first);
            for (int r = 0; r < N; ++r) std::memcpy(y + size_t(r) * num_out + first, sum[r], count * sizeof(float));
        }
    }

    const int num_blocks_;
    std::vector<Vector> packed_;
};

class LayerNorm : public Layer {
  public:
    LayerNorm(int size, float eps, const float* weight, const float* bias)
        : Layer(size, size), eps_(eps), weight_(weight, weight + size), bias_(bias, bias + size) {}

    void apply(const float* x, int n, float* y) override {
        for (int row = 0; row < n; ++row, x += num_in, y += num_in)
            layer_norm(x, num_in, eps_, weight_.data(), bias_.data(), y);
    }

  private:
    const float eps_;
    const std::vector<float> weight_, bias_;
};

/// One function of each number.
class Activation : public Layer {
  public:
    Activation(int size, Kernel kernel) : Layer(size, size), kernel_(kernel) {}

    void apply(const float* x, int n, float* y) override { kernel_(x, n * num_in, y); }

  private:
    const Kernel kernel_;
};

/// The input, then the same numbers for every row.
class Append : public Layer {
  public:
    Append(int in, int size, const float* numbers) : Layer(in, in + size), numbers_(numbers, numbers + size) {}

    void apply(const float* x, int n, float* y) override {
        for (int row = 0; row < n; ++row, x += num_in) {
            y = std::copy(x, x + num_in, y);
            y = std::copy(numbers_.begin(), numbers_.end(), y);
        }
    }

  private:
    const std::vector<float> numbers_;
};

/// arXiv 1511.06581, equation 9, atom by atom.
class Dueling : public Layer {
  public:
    Dueling(int actions, int atoms) : Layer((1 + actions) * atoms, actions * atoms), actions_(actions), atoms_(atoms) {}

    void apply(const float* x, int n, float* y) override {
        for (int row = 0; row < n; ++row, x += num_in, y += num_out)
            for (int atom = 0; atom < atoms_; ++atom) {
                float sum = 0;
                for (int i = 1; i <= actions_; ++i) sum += x[i * atoms_ + atom];
                for (int i = 0; i < actions_; ++i)
                    y[i * atoms_ + atom] = x[atom] + x[(i + 1) * atoms_ + atom] - sum / actions_;
            }
    }

  private:
    const int actions_, atoms_;
};

/// Without padding: each patch of the image is a row of a linear layer.
class Conv2d : public Layer {
  public:
    Conv2d(const std::vector<int>& image, int out, int kernel, int stride, const float* weight, const float* bias)
        : Layer(image[0] * image[1] * image[2],
                out * ((image[1] - kernel) / stride + 1) * ((image[2] - kernel) / stride + 1)),
          image_(image),
          kernel_(kernel),
          stride_(stride),
          linear_(image[0] * kernel * kernel, out, weight, bias),
          patches_(size_t(num_out / out) * linear_.num_in),
          products_(num_out) {}

    void apply(const float* x, int n, float* y) override {
        const int out = linear_.num_out, places = num_out / out;
        for (int row = 0; row < n; ++row, x += num_in, y += num_out) {
            gather(x);
            linear_.apply(patches_.data(), places, products_.data());
            for (int place = 0; place < places; ++place)
                for (int k = 0; k < out; ++k) y[k * places + place] = products_[size_t(place) * out + k];
        }
    }

  private:
    void gather(const float* x) {
        float* to = patches_.data();
        const int height = image_[1], width = image_[2];
        for (int i = 0; i + kernel_ <= height; i += stride_)
            for (int j = 0; j + kernel_ <= width; j += stride_)
                for (int c = 0; c < image_[0]; ++c)
                    for (int m = 0; m < kernel_; ++m) {
                        const float* from = x + (size_t(c) * height + i + m) * width + j;
                        to = std::copy(from, from + kernel_, to);
                    }
    }

    const std::vector<int> image_;
    const int kernel_, stride_;
    Linear linear_;
    std::vector<float> patches_, products_;
};

/// Gives each layer its part of the parameters.
class Reader {
  public:
    explicit Reader(const std::vector<float>& parameters) : parameters_(parameters) {}

    std::unique_ptr<Layer> layer(const Json& about, int size) {
        const std::string kind = about.at("kind");
        for (const auto& [name, kernel] : ACTIVATIONS)
            if (kind == name) return std::make_unique<Activation>(size, kernel);
        if (kind == "linear") {
            const int out = count(about, "out");
            fits(kind, count(about, "in"), size);
            const float *weight = take(size_t(out) * size), *bias = take(out);
            return std::make_unique<Linear>(size, out, weight, bias);
        }
        if (kind == "layer_norm") {
            fits(kind, count(about, "size"), size);
            const float *weight = take(size), *bias = take(size);
            return std::make_unique<LayerNorm>(size, about.at("eps").get<float>(), weight, bias);
        }
        if (kind == "append") {
            const int appended = count(about, "size");
            return std::make_unique<Append>(size, appended, take(appended));
        }
        if (kind == "dueling") {
            const int actions = count(about, "actions"), atoms = count(about, "atoms");
            fits(kind, (1 + int64_t(actions)) * atoms, size);
            return std::make_unique<Dueling>(actions, atoms);
        }
        if (kind == "conv2d") return convolution(about, size);
        throw InputError("unknown layer " + kind);
    }

    bool is_at_end() const { return at_ == parameters_.size(); }

  private:
    static int count(const Json& about, const char* name) {
        const Json& value = about.at(name);
        if (!value.is_number_integer() || value < 1 || value > (1 << 24))
            throw InputError(std::string(name) + " of a layer is " + value.dump());
        return value;
    }

    static void fits(const std::string& kind, int64_t expected, int size) {
        if (expected != size)
            throw InputError("a " + kind + " layer takes " + std::to_string(expected) + " numbers, " +
                             std::to_string(size) + " come to it");
    }

    const float* take(size_t num) {
        if (num > parameters_.size() - at_) throw InputError("the layers need more parameters than came");
        at_ += num;
        return parameters_.data() + at_ - num;
    }

    std::unique_ptr<Layer> convolution(const Json& about, int size) {
        const auto image = about.at("shape").get<std::vector<int>>();
        const int out = count(about, "out"), kernel = count(about, "kernel"), stride = count(about, "stride");
        if (image.size() != 3 || image[0] < 1 || std::min(image[1], image[2]) < kernel ||
            *std::max_element(image.begin(), image.end()) > size)
            throw InputError("a conv2d layer takes images [c, h, w] of at least its kernel");
        fits("conv2d", int64_t(image[0]) * image[1] * image[2], size);
        if (int64_t(out) * size > MAX_NUMBERS) throw InputError("a conv2d layer gives too many numbers");
        const float *weight = take(size_t(out) * image[0] * kernel * kernel), *bias = take(out);
        return std::make_unique<Conv2d>(image, out, kernel, stride, weight, bias);
    }

    const std::vector<float>& parameters_;
    size_t at_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Layer>> read_layers(const Json& description, const std::vector<float>& parameters,
                                                int num_in) {
    Reader reader(parameters);
    std::vector<std::unique_ptr<Layer>> layers;
    for (const Json& about : description)
        layers.push_back(reader.layer(about, layers.empty() ? num_in : layers.back()->num_out));
    if (layers.empty()) throw InputError("there are no layers");
    if (!reader.is_at_end()) throw InputError("there are more parameters than the layers need");
    return layers;
}
