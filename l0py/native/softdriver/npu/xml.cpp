#include "xml.hpp"

#include <algorithm>
#include <cstdint>

#include "model_error.hpp"

namespace softdriver::xml {
namespace {

// Bodies in bodies take three levels each; the limit keeps hostile input from exhausting the stack.
constexpr size_t deepest = 256;

bool is_space(char c) noexcept { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool is_name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':' || static_cast<unsigned char>(c) >= 0x80;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Element document() {
    skip_between_elements();
    if (!at("<")) {
      fail("the root element is missing");
    }
    Element root;
    element(root);
    skip_between_elements();
    if (position_ != text_.size()) {
      fail("something follows the root element");
    }
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ModelError(ModelError::Reason::bad_input,
                     "the model's XML is malformed at offset " + std::to_string(position_) + ": " + what);
  }

  bool at(std::string_view token) const noexcept { return text_.compare(position_, token.size(), token) == 0; }

  bool accept(std::string_view token) noexcept {
    if (!at(token)) {
      return false;
    }
    position_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) {
      fail("expected '" + std::string(token) + "'");
    }
  }

  bool skip_spaces() noexcept {
    size_t start = position_;
    while (position_ < text_.size() && is_space(text_[position_])) {
      ++position_;
    }
    return position_ != start;
  }

  void skip_past(std::string_view end) {
    size_t found = text_.find(end, position_);
    if (found == std::string_view::npos) {
      fail("expected '" + std::string(end) + "'");
    }
    position_ = found + end.size();
  }

  bool skip_comment() {
    if (accept("<!--")) {
      skip_past("-->");
      return true;
    }
    if (accept("<?")) {
      skip_past("?>");
      return true;
    }
    return false;
  }

  void skip_between_elements() {
    do {
      skip_spaces();
    } while (skip_comment());
  }

  std::string name() {
    size_t start = position_;
    while (position_ < text_.size() && is_name_character(text_[position_])) {
      ++position_;
    }
    if (position_ == start) {
      fail("expected a name");
    }
    return std::string(text_.substr(start, position_ - start));
  }

  void reference(std::string& out) {
    struct Entity {
      const char* token;
      char character;
    };
    for (Entity entity : {Entity{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}}) {
      if (accept(entity.token)) {
        out += entity.character;
        return;
      }
    }
    expect("&#");
    const uint32_t base = accept("x") ? 16 : 10;
    uint32_t code = 0;
    size_t digits = 0;
    for (; position_ < text_.size() && text_[position_] != ';'; ++position_, ++digits) {
      const char c = text_[position_];
      uint32_t digit = base;
      if (c >= '0' && c <= '9') {
        digit = static_cast<uint32_t>(c - '0');
      } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
        digit = static_cast<uint32_t>((c | 0x20) - 'a') + 10;
      }
      code = code * base + digit;
      if (digit >= base || code > 0x10ffff) {
        fail("a character reference is wrong");
      }
    }
    if (digits == 0 || code == 0) {
      fail("a character reference is wrong");
    }
    expect(";");
    append_utf8(out, code);
  }

  // Text up to (not including) the end character.
  std::string text_until(char end) {
    std::string out;
    while (position_ < text_.size() && text_[position_] != end) {
      if (text_[position_] == '&') {
        reference(out);
      } else {
        size_t stop = position_;
        while (stop < text_.size() && text_[stop] != end && text_[stop] != '&') {
          ++stop;
        }
        out.append(text_, position_, stop - position_);
        position_ = stop;
      }
    }
    return out;
  }

  void attributes(Element& element) {
    while (skip_spaces() && !at("/") && !at(">")) {
      std::string key = name();
      if (element.find_attribute(key) != nullptr) {
        fail("attribute '" + key + "' is given twice");
      }
      skip_spaces();
      expect("=");
      skip_spaces();
      const char quote = at("'") ? '\'' : '"';
      expect({&quote, 1});
      std::string value = text_until(quote);
      expect({&quote, 1});
      element.attributes.emplace_back(std::move(key), std::move(value));
    }
  }

  void element(Element& into) {
    if (++depth_ > deepest) {
      fail("elements are nested too deep");
    }
    expect("<");
    into.name = name();
    attributes(into);
    if (!accept("/>")) {
      expect(">");
      content(into);
      if (name() != into.name) {
        fail("'" + into.name + "' is not closed");
      }
      skip_spaces();
      expect(">");
    }
    --depth_;
  }

  // Everything up to and including "</".
  void content(Element& into) {
    while (true) {
      into.text += text_until('<');
      if (skip_comment()) {
        continue;
      }
      if (accept("</")) {
        break;
      }
      into.children.emplace_back();
      element(into.children.back());
    }
    if (!into.children.empty()) {
      if (!std::all_of(into.text.begin(), into.text.end(), is_space)) {
        fail("text stands between the elements of '" + into.name + "'");
      }
      into.text.clear();
    }
  }

  std::string_view text_;
  size_t position_ = 0;
  size_t depth_ = 0;
};

void write_escaped(std::string& out, std::string_view text) {
  for (char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      case '\n': out += "&#10;"; break;
      case '\r': out += "&#13;"; break;
      case '\t': out += "&#9;"; break;
      default: out += c;
    }
  }
}

void write_element(std::string& out, const Element& element) {
  out += '<';
  out += element.name;
  for (const auto& [key, value] : element.attributes) {
    out += ' ';
    out += key;
    out += "=\"";
    write_escaped(out, value);
    out += '"';
  }
  if (element.children.empty() && element.text.empty()) {
    out += "/>";
    return;
  }
  out += '>';
  write_escaped(out, element.text);
  for (const Element& child : element.children) {
    write_element(out, child);
  }
  out += "</";
  out += element.name;
  out += '>';
}

template <class Attributes>
auto locate(Attributes& attributes, std::string_view name) noexcept {
  return std::find_if(attributes.begin(), attributes.end(), [name](const auto& entry) { return entry.first == name; });
}

}  // namespace

const std::string* Element::find_attribute(std::string_view key) const noexcept {
  auto found = locate(attributes, key);
  return found == attributes.end() ? nullptr : &found->second;
}

const std::string& Element::attribute(std::string_view key) const {
  if (const std::string* value = find_attribute(key)) {
    return *value;
  }
  throw ModelError(ModelError::Reason::bad_input,
                   "the model's XML has a '" + name + "' without '" + std::string(key) + "'");
}

void Element::set_attribute(std::string_view key, std::string value) {
  auto found = locate(attributes, key);
  if (found != attributes.end()) {
    found->second = std::move(value);
  } else {
    attributes.emplace_back(key, std::move(value));
  }
}

const Element* Element::find_child(std::string_view key) const noexcept {
  auto found =
      std::find_if(children.begin(), children.end(), [key](const Element& child) { return child.name == key; });
  return found == children.end() ? nullptr : &*found;
}

Element* Element::find_child(std::string_view key) noexcept {
  return const_cast<Element*>(static_cast<const Element*>(this)->find_child(key));
}

Element parse(std::string_view text) { return Reader(text).document(); }

std::string write(const Element& root) {
  std::string out = "<?xml version=\"1.0\"?>";
  write_element(out, root);
  return out;
}

}  // namespace softdriver::xml
