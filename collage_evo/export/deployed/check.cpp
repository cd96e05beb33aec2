// Runs the stored inputs and times the first: check FOLDER SAMPLES RUNS OUT. Prints milliseconds; outputs go to OUT.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "pipeline.hpp"

// A file of NumPy's: its shape stands in a text before the data.
static void read_npy(const std::string& path, Tensor& tensor) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    if (bytes.size() < 10) throw std::runtime_error("cannot read " + path);
    const size_t begin = 10 + (unsigned char)bytes[8] + 256 * (unsigned char)bytes[9];
    const size_t open = bytes.find("'shape': (") + 10;
    std::stringstream sizes(bytes.substr(open, bytes.find(')', open) - open));
    std::vector<int64_t> shape;
    for (std::string size; std::getline(sizes, size, ',');)
        if (size.find_first_not_of(' ') != std::string::npos) shape.push_back(std::stoll(size));
    if (tensor.open) tensor.resize(shape);
    if (bytes.size() - begin != tensor.bytes()) throw std::runtime_error(path + " does not fit " + tensor.name);
    std::memcpy(tensor.data, bytes.data() + begin, tensor.bytes());
}

static void feed(Pipeline& pipeline, const std::string& folder, int sample) {
    for (size_t k = 0; k < INPUTS.size(); ++k)
        read_npy(folder + "/samples/" + std::to_string(sample) + ".in." + std::to_string(k) + ".npy", pipeline[INPUTS[k]]);
}

int main(int count, char** given) try {
    if (count != 5) throw std::runtime_error("give FOLDER SAMPLES RUNS OUT");
    const std::string folder = given[1], out = given[4];
    Pipeline pipeline(folder);
    for (int sample = 0; sample < std::stoi(given[2]); ++sample) {
        feed(pipeline, folder, sample);
        pipeline.run();
        for (size_t k = 0; k < OUTPUTS.size(); ++k) {
            const Tensor& made = pipeline[OUTPUTS[k]];
            const std::string path = out + "/" + std::to_string(sample) + ".out." + std::to_string(k);
            std::ofstream(path, std::ios::binary).write(made.data, std::streamsize(made.bytes()));
            std::ofstream shape(path + ".shape");
            for (const int64_t length : made.shape) shape << length << " ";
        }
    }
    feed(pipeline, folder, 0);
    pipeline.run();
    for (int run = 0; run < std::stoi(given[3]); ++run) {
        const auto start = std::chrono::steady_clock::now();
        pipeline.run();
        std::printf("%.6f\n", std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
