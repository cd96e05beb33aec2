// Verified files of an answer: SHA-256 digests, and detection of a change between check and load.
// A change of times alone, as by chmod or a new link, has a file hashed again.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

class Sha256 {
   public:
    void add(const unsigned char* data, size_t size) {
        for (total_ += size; size > 0;) {
            const size_t part = std::min(size, sizeof block_ - filled_);
            std::memcpy(block_ + filled_, data, part);
            filled_ += part, data += part, size -= part;
            if (filled_ == sizeof block_) mix();
        }
    }
    std::string digest() {
        const uint64_t bits = total_ * 8;
        const unsigned char one = 0x80, zero = 0;
        add(&one, 1);
        while (filled_ != 56) add(&zero, 1);
        unsigned char end[8];
        for (int k = 0; k < 8; ++k) end[k] = static_cast<unsigned char>(bits >> (56 - 8 * k));
        add(end, 8);
        std::string text;
        for (const uint32_t word : state_)
            for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
        return text;
    }

   private:
    static uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }
    // The first 32 bits of the fractional parts of the cube roots of the first 64 primes, as the standard defines.
    static const std::array<uint32_t, 64>& rounds() {
        static const std::array<uint32_t, 64> made = [] {
            std::array<uint32_t, 64> all{};
            for (uint32_t prime = 2, found = 0; found < 64; ++prime) {
                bool divided = false;
                for (uint32_t by = 2; by * by <= prime; ++by) divided |= prime % by == 0;
                if (!divided) all[found++] = root_fraction(prime);
            }
            return all;
        }();
        return made;
    }
    static uint32_t root_fraction(uint32_t prime) {
        unsigned __int128 low = 0, high = uint64_t(1) << 36;  // floor(cbrt(prime) * 2^32) by bisection
        while (high - low > 1) {
            const unsigned __int128 middle = (low + high) / 2;
            (middle * middle * middle <= (static_cast<unsigned __int128>(prime) << 96) ? low : high) = middle;
        }
        return static_cast<uint32_t>(low);
    }
    void mix() {
        uint32_t w[64];
        for (int i = 0; i < 16; ++i)
            w[i] = uint32_t(block_[4 * i]) << 24 | uint32_t(block_[4 * i + 1]) << 16 |
                   uint32_t(block_[4 * i + 2]) << 8 | block_[4 * i + 3];
        for (int i = 16; i < 64; ++i)
            w[i] = w[i - 16] + (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
                   (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
        auto [a, b, c, d, e, f, g, h] = state_;
        for (int i = 0; i < 64; ++i) {
            const uint32_t first =
                h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + rounds()[i] + w[i];
            const uint32_t second = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
        }
        const uint32_t now[] = {a, b, c, d, e, f, g, h};
        for (int k = 0; k < 8; ++k) state_[k] += now[k];
        filled_ = 0;
    }

    std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char block_[64];
    size_t filled_ = 0;
    uint64_t total_ = 0;
};

// Device, inode, size and times of the last changes: they differ after a write or a replacement.
using Stamp = std::array<int64_t, 7>;

inline Stamp stamp_of(const struct stat& found) {
    return {int64_t(found.st_dev), int64_t(found.st_ino), found.st_size,        found.st_mtim.tv_sec,
            found.st_mtim.tv_nsec, found.st_ctim.tv_sec,  found.st_ctim.tv_nsec};
}

// The files of one answer, by names relative to its folder.
class CheckedFiles {
   public:
    // The folder stays the one that its path leads to now, whatever directory the process changes to.
    explicit CheckedFiles(const std::string& folder)
        : folder_(std::filesystem::weakly_canonical(std::filesystem::absolute(folder)).string()) {}

    const std::string& folder() const { return folder_; }
    std::string path(const std::string& name) const { return folder_ + "/" + name; }

    // Reads a plain file inside the folder and requires its digest; an empty one is not compared.
    std::string read(const std::string& name, const std::string& digest, size_t most) {
        std::string content;
        check(name, digest, &content, most);
        return content;
    }
    // Takes the digest of each file of the answer.
    void expect(std::map<std::string, std::string> digests) {
        digests_ = std::move(digests);
        for (const auto& [name, digest] : digests_)
            if (digest.size() != 64) throw std::runtime_error("the digest of " + name + " is none of SHA-256");
    }
    const std::string& digest_of(const std::string& name) const {
        const auto found = digests_.find(name);
        if (found == digests_.end())
            throw std::runtime_error("the manifest has no digest of " + name + ": export the answer again");
        return found->second;
    }
    void check_all() {
        for (const auto& [name, digest] : digests_) check(name, digest, nullptr, SIZE_MAX);
    }
    // The result of ``load``, which reads these files: their content is the checked one, before and after.
    template <class Load>
    auto unchanged(const std::vector<std::string>& names, Load load) {
        for (int attempt = 0; attempt < 3; ++attempt) {
            for (const auto& name : names)
                if (!is_unchanged(name)) check(name, digest_of(name), nullptr, SIZE_MAX);
            auto loaded = load();
            if (std::all_of(names.begin(), names.end(), [&](const auto& name) { return is_unchanged(name); }))
                return loaded;
        }
        throw std::runtime_error("files in " + folder_ +
                                 " were changed while they were loaded: create the session again");
    }
    // Has later loads read their files again: who writes into mapped memory need not change a file's times.
    void forget() { stamps_.clear(); }

    // Requires a name inside the folder, by which no file has two names.
    static void require_inside(const std::string& name) {
        bool is_plain = name.find('\0') == std::string::npos;
        for (size_t at = 0; at <= name.size();) {
            const size_t end = std::min(name.find('/', at), name.size());
            const std::string part = name.substr(at, end - at);
            is_plain &= !part.empty() && part != "." && part != "..";
            at = end + 1;
        }
        if (!is_plain)
            throw std::runtime_error("the manifest names '" + name +
                                     "', which is no file of the answer: do not use it");
    }

   private:
    bool is_unchanged(const std::string& name) const {
        const auto found = stamps_.find(name);
        struct stat now{};
        return found != stamps_.end() && lstat(path(name).c_str(), &now) == 0 && stamp_of(now) == found->second;
    }
    void check(const std::string& name, const std::string& digest, std::string* content, size_t most) {
        require_inside(name);
        const int file = open(path(name).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (file < 0)
            throw std::runtime_error("cannot read " + path(name) + " (" + std::strerror(errno) +
                                     "): export the answer again");
        struct Closed {
            int file;
            ~Closed() { close(file); }
        } closed{file};
        struct stat found{};
        if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode))
            throw std::runtime_error(path(name) + " is no plain file: do not use it");
        if (size_t(found.st_size) > most) throw std::runtime_error(path(name) + " is too large: do not use it");
        Sha256 hash;
        std::vector<unsigned char> part(1 << 18);
        for (ssize_t size; (size = ::read(file, part.data(), part.size())) != 0;) {
            if (size < 0) throw std::runtime_error("cannot read " + path(name) + ": " + std::strerror(errno));
            hash.add(part.data(), size_t(size));
            if (content) content->append(reinterpret_cast<const char*>(part.data()), size_t(size));
        }
        if (!digest.empty() && hash.digest() != digest)
            throw std::runtime_error(path(name) + " was changed: export the answer again");
        stamps_[name] = stamp_of(found);
    }

    std::string folder_;
    std::map<std::string, std::string> digests_;
    std::map<std::string, Stamp> stamps_;
};
