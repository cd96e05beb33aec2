// Shared libraries of pieces: found where a session's option, an environment variable, pip or the system has them.
#pragma once
#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

class Library {
   public:
    // The process's one library of a kind: the place that was named first counts.
    template <class Kind>
    static const Kind& get(const std::string& place) {
        static std::mutex mutex;
        static std::unique_ptr<Kind> loaded;
        const std::lock_guard<std::mutex> lock(mutex);
        if (!loaded) loaded.reset(new Kind(place));
        return *loaded;
    }

    // inside: the library's folder where pip installs packages. place: that folder, the library's own, or the file;
    // empty where nobody named one.
    Library(std::string title, const std::string& name, const std::string& inside, const std::string& place,
            int scope, const std::string& remedy)
        : title_(std::move(title)) {
        std::string tried;
        for (const std::string& path : paths(name, inside, place)) {
            handle_ = dlopen(path.c_str(), RTLD_NOW | scope);
            if (handle_) return;
            tried = dlerror();
        }
        throw std::runtime_error("the answer needs " + title_ + ", whose " + name + " was not found (" + tried +
                                 "): " + remedy);
    }

    template <class Function>
    void find(Function& function, const char* name) const {
        function = reinterpret_cast<Function>(dlsym(handle_, name));
        if (!function)
            throw std::runtime_error("this " + title_ + " lacks " + name + ": install the answer's version");
    }

   private:
    static std::vector<std::string> paths(const std::string& name, const std::string& inside,
                                          const std::string& place) {
        std::vector<std::string> found;
        const std::string root = place.empty() ? own_folder() + ".." : place;
        for (const std::string& folder : {place, root + "/" + inside}) {
            std::error_code ignored;
            for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
                if (entry.path().filename().string().rfind(name, 0) == 0) found.push_back(entry.path().string());
        }
        if (place.empty()) found.push_back(name);
        if (found.empty()) found.push_back(place);  // a file, or a folder without it: the system's error is clear
        return found;
    }
    // The folder of this library, with a slash at its end.
    static std::string own_folder() {
        Dl_info here{};
        if (!dladdr(reinterpret_cast<void*>(&own_folder), &here) || !here.dli_fname) return "./";
        const std::string file = here.dli_fname;
        return file.substr(0, file.rfind('/') + 1);
    }

    std::string title_;
    void* handle_ = nullptr;  // never closed: its threads and what it registered may outlive every session
};
