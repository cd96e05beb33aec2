// Reader of JSON, for the manifests of an answer. Every fault is a std::runtime_error.
#pragma once
#include <cctype>
#include <charconv>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct Json {
    enum Kind { NONE, FLAG, NUMBER, FRACTION, TEXT, LIST, OBJECT } kind = NONE;
    int64_t whole = 0;  // of a NUMBER; no value of a FRACTION is needed
    std::string text;
    std::vector<Json> items;
    std::map<std::string, Json> members;

    const std::map<std::string, Json>& entries() const { return of(OBJECT).members; }
    const Json& operator[](const std::string& name) const {
        const auto found = entries().find(name);
        if (found == members.end()) throw std::runtime_error("it lacks '" + name + "'");
        return found->second;
    }
    const std::vector<Json>& list() const { return of(LIST).items; }
    const std::string& string() const { return of(TEXT).text; }
    int64_t integer() const { return of(NUMBER).whole; }
    std::vector<std::string> strings() const {
        std::vector<std::string> all;
        for (const Json& item : list()) all.push_back(item.string());
        return all;
    }
    std::vector<int64_t> integers() const {
        std::vector<int64_t> all;
        for (const Json& item : list()) all.push_back(item.integer());
        return all;
    }

   private:
    const Json& of(Kind wanted) const {
        static const char* const names[] = {"null",   "true or false", "a number", "a fraction or too large a number",
                                      "a text", "a list",        "an object"};
        if (kind != wanted)
            throw std::runtime_error(std::string("it has ") + names[kind] + " in place of " + names[wanted]);
        return *this;
    }
};

class JsonReader {
   public:
    static Json read(const std::string& text) {
        JsonReader reader(text);
        Json value = reader.value(0);
        reader.skip();
        if (reader.at_ != text.size()) reader.fail();
        return value;
    }

   private:
    explicit JsonReader(const std::string& text) : text_(text) {}

    [[noreturn]] void fail() const { throw std::runtime_error("it is no JSON at byte " + std::to_string(at_)); }
    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    void skip() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    }
    bool taken(const char* word) {
        const std::string wanted(word);
        if (text_.compare(at_, wanted.size(), wanted) != 0) return false;
        at_ += wanted.size();
        return true;
    }

    Json value(int depth) {
        if (depth > 64) throw std::runtime_error("it is nested too deeply");
        skip();
        Json made;
        switch (peek()) {
            case '{':
                made.kind = Json::OBJECT;
                sequence('}', [&] {
                    skip();
                    std::string name = string();
                    skip();
                    if (!taken(":")) fail();
                    made.members.insert_or_assign(std::move(name), value(depth + 1));
                });
                return made;
            case '[':
                made.kind = Json::LIST;
                sequence(']', [&] { made.items.push_back(value(depth + 1)); });
                return made;
            case '"':
                made.kind = Json::TEXT;
                made.text = string();
                return made;
        }
        if (taken("null")) return made;
        if (taken("true") || taken("false")) {
            made.kind = Json::FLAG;
            return made;
        }
        return number();
    }

    template <class Item>
    void sequence(char end, Item item) {
        ++at_;
        skip();
        if (peek() == end) return void(++at_);
        for (;;) {
            item();
            skip();
            if (peek() == end) return void(++at_);
            if (!taken(",")) fail();
        }
    }

    Json number() {
        const size_t begin = at_;
        taken("-");
        digits();
        if (taken(".")) digits();
        if (taken("e") || taken("E")) {
            if (!taken("-")) taken("+");
            digits();
        }
        Json made;
        const char *const first = text_.data() + begin, *const last = text_.data() + at_;
        const auto [end, error] = std::from_chars(first, last, made.whole);
        made.kind = end == last && error == std::errc() ? Json::NUMBER : Json::FRACTION;
        return made;
    }
    void digits() {
        if (!std::isdigit(static_cast<unsigned char>(peek()))) fail();
        while (std::isdigit(static_cast<unsigned char>(peek()))) ++at_;
    }

    std::string string() {
        if (!taken("\"")) fail();
        std::string made;
        while (peek() != '"') {
            if (at_ >= text_.size()) fail();
            const char letter = text_[at_++];
            if (letter != '\\') {
                made += letter;
                continue;
            }
            static const std::map<char, char> escapes{{'n', '\n'}, {'t', '\t'}, {'r', '\r'},  {'b', '\b'},
                                                      {'f', '\f'}, {'"', '"'},  {'\\', '\\'}, {'/', '/'}};
            const char code = peek();
            ++at_;
            if (code == 'u') {
                append(made, code_point());
            } else {
                const auto known = escapes.find(code);
                if (known == escapes.end()) fail();
                made += known->second;
            }
        }
        ++at_;
        return made;
    }

    uint32_t code_point() {
        const uint32_t first = hexadecimal();
        if (first < 0xD800 || first >= 0xDC00 || !taken("\\u")) return first;
        const uint32_t second = hexadecimal();
        if (second < 0xDC00 || second >= 0xE000) fail();
        return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);  // two halves of a large one
    }
    uint32_t hexadecimal() {
        uint32_t made = 0;
        for (int k = 0; k < 4; ++k, ++at_) {
            const char digit = peek();
            if (!std::isxdigit(static_cast<unsigned char>(digit))) fail();
            made = made * 16 +
                   uint32_t(std::isdigit(static_cast<unsigned char>(digit)) ? digit - '0' : (digit | 32) - 'a' + 10);
        }
        return made;
    }
    static void append(std::string& to, uint32_t point) {  // as UTF-8
        if (point < 0x80) {
            to += char(point);
        } else if (point < 0x800) {
            to += {char(0xC0 | point >> 6), char(0x80 | (point & 63))};
        } else if (point < 0x10000) {
            to += {char(0xE0 | point >> 12), char(0x80 | (point >> 6 & 63)), char(0x80 | (point & 63))};
        } else {
            to += {char(0xF0 | (point >> 18 & 7)), char(0x80 | (point >> 12 & 63)), char(0x80 | (point >> 6 & 63)),
                   char(0x80 | (point & 63))};
        }
    }

    const std::string& text_;
    size_t at_ = 0;
};
