// Pieces of ncnn: networks in float32, run through the C interface of libncnn.
#pragma once
#include "pieces.hpp"

// The functions of libncnn that a piece needs, with the types of its headers spelled out.
class Ncnn : public Library {
   public:
    using Destroy = void (*)(void*);
    using Owned = std::unique_ptr<void, Destroy>;

    const char* (*version)();
    void* (*create_pool)();
    void* (*create_net)();
    void* (*option_of)(void*);
    int (*load_param)(void*, const char*);
    int (*load_model)(void*, const char*);
    void* (*create_extractor)(void*);
    int (*input)(void*, const char*, void*);
    int (*extract)(void*, const char*, void**);
    void* (*wrap)(int, void*, void*);
    void* (*create)(int, void*);
    void* (*data_of)(void*);
    void* (*channel_of)(void*, int);
    Destroy free_pool, free_net, free_extractor, free_mat;

    void set(void* option, const std::string& name, int value) const {
        void (*setter)(void*, int);
        find(setter, ("ncnn_option_set_" + name).c_str());
        setter(option, value);
    }
    void set_allocator(void* option, const std::string& name, void* allocator) const {
        void (*setter)(void*, void*);
        find(setter, ("ncnn_option_set_" + name).c_str());
        setter(option, allocator);
    }
    // A view of ``mat`` with these sizes, or a copy if ncnn has gaps between channels of this size.
    Owned reshaped(void* mat, const std::vector<int>& sizes) const {
        const auto s = [&](size_t k) { return sizes[sizes.size() - 1 - k]; };  // width first
        switch (sizes.size()) {
            case 1: return {reshape_1d(mat, s(0), nullptr), free_mat};
            case 2: return {reshape_2d(mat, s(0), s(1), nullptr), free_mat};
            case 3: return {reshape_3d(mat, s(0), s(1), s(2), nullptr), free_mat};
            default: return {reshape_4d(mat, s(0), s(1), s(2), s(3), nullptr), free_mat};
        }
    }

    // The sizes of a Mat of 32-bit numbers, width last; none of another.
    std::vector<int> sizes_of(void* mat) const {
        const int w = width_(mat), h = height_(mat), d = depth_(mat), c = channels_(mat);
        const std::vector<int> sizes[] = {{}, {w}, {h, w}, {c, h, w}, {c, d, h, w}};
        const int rank = rank_(mat);
        return element_bytes_(mat) == sizeof(float) && rank > 0 && rank < 5 ? sizes[rank] : sizes[0];
    }

   private:
    friend class Library;
    explicit Ncnn(const std::string& place)
        : Library("ncnn", "libncnn.so", "ncnn", place, RTLD_LOCAL,
                  "set COLLAGE_EVO_NCNN to the folder of a shared build, or search with "
                  "-s 'backends.use=[onnxruntime, openvino, tvm]'") {
        find(version, "ncnn_version");
        find(create_pool, "ncnn_allocator_create_pool_allocator");
        find(free_pool, "ncnn_allocator_destroy");
        find(create_net, "ncnn_net_create");
        find(free_net, "ncnn_net_destroy");
        find(option_of, "ncnn_net_get_option");
        find(load_param, "ncnn_net_load_param");
        find(load_model, "ncnn_net_load_model");
        find(create_extractor, "ncnn_extractor_create");
        find(free_extractor, "ncnn_extractor_destroy");
        find(input, "ncnn_extractor_input");
        find(extract, "ncnn_extractor_extract");
        find(wrap, "ncnn_mat_create_external_1d");
        find(create, "ncnn_mat_create_1d");
        find(reshape_1d, "ncnn_mat_reshape_1d");
        find(reshape_2d, "ncnn_mat_reshape_2d");
        find(reshape_3d, "ncnn_mat_reshape_3d");
        find(reshape_4d, "ncnn_mat_reshape_4d");
        find(free_mat, "ncnn_mat_destroy");
        find(rank_, "ncnn_mat_get_dims");
        find(width_, "ncnn_mat_get_w");
        find(height_, "ncnn_mat_get_h");
        find(depth_, "ncnn_mat_get_d");
        find(channels_, "ncnn_mat_get_c");
        find(element_bytes_, "ncnn_mat_get_elemsize");
        find(data_of, "ncnn_mat_get_data");
        find(channel_of, "ncnn_mat_get_channel_data");
    }

    int (*rank_)(void*);
    int (*width_)(void*);
    int (*height_)(void*);
    int (*depth_)(void*);
    int (*channels_)(void*);
    size_t (*element_bytes_)(void*);
    void* (*reshape_1d)(void*, int, void*);
    void* (*reshape_2d)(void*, int, int, void*);
    void* (*reshape_3d)(void*, int, int, int, void*);
    void* (*reshape_4d)(void*, int, int, int, int, void*);
};

class NcnnPiece : public Piece {
   public:
    NcnnPiece(const PieceData& data, const std::string& place) : ncnn_(Library::get<Ncnn>(place)), data_(data) {
        void* const option = ncnn_.option_of(net_.get());
        ncnn_.set_allocator(option, "blob_allocator", blobs_.get());
        ncnn_.set_allocator(option, "workspace_allocator", workspace_.get());
        ncnn_.set(option, "num_threads", data.threads("num_threads"));
        ncnn_.set(option, "use_winograd_convolution", data.setting("use_winograd_convolution") == "1");
        for (const char* name : {"fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage",
                                 "int8_packed", "int8_storage", "int8_arithmetic", "vulkan_compute"})
            ncnn_.set(option, std::string("use_") + name, 0);
        if (ncnn_.load_param(net_.get(), data.paths.at(0).c_str()) ||
            ncnn_.load_model(net_.get(), data.paths.at(1).c_str()))
            throw std::runtime_error("ncnn cannot load " + data.paths[0]);
    }

    std::string version() const override { return ncnn_.version(); }
    std::unique_ptr<Call> bind(Values inputs, Values outputs) override {
        return std::make_unique<Bound>(*this, inputs, outputs);
    }

   private:
    struct Port {
        std::string name;        // ncnn's
        Value& value;
        std::vector<int> sizes;  // of the axes that ncnn has
        bool read_only;          // no layer writes on it

        size_t count() const { return bytes_of(value.type, value.shape) / sizeof(float); }
    };

    struct Bound : Call {  // an extractor for each run: the network itself is for all threads
        Bound(NcnnPiece& piece, const Values& inputs, const Values& outputs)
            : ncnn(piece.ncnn_),
              net(piece.net_.get()),
              in(piece.ports("in", inputs, "inputs_without_batch_axis", piece.data_.setting("inputs_read_in_place"))),
              out(piece.ports("out", outputs, "outputs_without_batch_axis", std::string(outputs.size(), '0'))) {}

        void run() override {
            const Ncnn::Owned extractor(ncnn.create_extractor(net), ncnn.free_extractor);
            for (const Port& port : in) {
                const Ncnn::Owned flat = fed(port), mat = ncnn.reshaped(flat.get(), port.sizes);
                require(ncnn.input(extractor.get(), port.name.c_str(), mat.get()), port);
            }
            for (const Port& port : out) {
                void* found = nullptr;
                const int status = ncnn.extract(extractor.get(), port.name.c_str(), &found);
                const Ncnn::Owned mat(found, ncnn.free_mat);
                require(status, port);
                if (ncnn.sizes_of(found) != port.sizes)
                    throw std::runtime_error("ncnn: a piece made '" + port.value.type.name + "' in another shape");
                const int channels = port.sizes.size() > 2 ? port.sizes[0] : 1;
                const size_t bytes = port.count() * sizeof(float) / size_t(channels);
                for (int k = 0; k < channels; ++k)
                    std::memcpy(static_cast<char*>(port.value.data) + size_t(k) * bytes, ncnn.channel_of(found, k),
                                bytes);
            }
        }

        // Layers work in place on memory that ncnn counts references of, and only on such.
        Ncnn::Owned fed(const Port& port) const {
            void* const data = port.value.data;
            if (port.read_only && aligned(data))
                return {ncnn.wrap(int(port.count()), data, nullptr), ncnn.free_mat};
            Ncnn::Owned made(ncnn.create(int(port.count()), nullptr), ncnn.free_mat);
            std::memcpy(ncnn.data_of(made.get()), data, port.count() * sizeof(float));
            return made;
        }
        static void require(int status, const Port& port) {
            if (status == 0) return;
            const std::string number = std::to_string(status);
            throw std::runtime_error("ncnn: error " + number + " at '" + port.value.type.name + "'");
        }

        const Ncnn& ncnn;
        void* const net;
        const std::vector<Port> in, out;
    };

    std::vector<Port> ports(const std::string& side, const Values& values, const std::string& setting,
                            const std::string& read_only) const {
        const std::string& batched = data_.setting(setting);
        if (batched.size() != values.size() || read_only.size() != values.size())
            throw std::runtime_error("a piece of ncnn has settings of other tensors");
        std::vector<Port> all;
        for (size_t k = 0; k < values.size(); ++k) {
            const TensorType& type = values[k]->type;
            const bool cut = batched[k] == '1';
            const std::vector<int> sizes(type.shape.begin() + (cut && !type.shape.empty()), type.shape.end());
            const size_t bytes = bytes_of(type, type.shape);
            const bool fits = !sizes.empty() && sizes.size() < 5 && bytes > 0 && bytes < INT32_MAX && !type.open();
            if (!fits || type.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || (cut && type.shape[0] != 1))
                throw std::runtime_error("ncnn does not take '" + type.name + "' as " +
                                         format_tensor(type.dtype, type.shape));
            all.push_back({side + std::to_string(k), *values[k], sizes, read_only[k] == '1'});
        }
        return all;
    }

    const Ncnn& ncnn_;
    const PieceData& data_;
    // The network's weights lie in the pools, which are freed after it.
    const Ncnn::Owned blobs_{ncnn_.create_pool(), ncnn_.free_pool}, workspace_{ncnn_.create_pool(), ncnn_.free_pool},
        net_{ncnn_.create_net(), ncnn_.free_net};
};
