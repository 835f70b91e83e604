// As much XML as OpenVINO's IR needs: elements, attributes, text. No DTD, no namespaces.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace softdriver::xml {

struct Element {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<Element> children;
  std::string text;  // only of elements without children; white space between elements is dropped

  // The attribute's value, or null.
  const std::string* find_attribute(std::string_view name) const noexcept;
  // The attribute's value. Throws ModelError when there is none.
  const std::string& attribute(std::string_view name) const;
  void set_attribute(std::string_view name, std::string value);

  // The first child of that name, or null.
  const Element* find_child(std::string_view name) const noexcept;
  Element* find_child(std::string_view name) noexcept;
};

// Throws ModelError that names the offset when the text is not well formed, or nested too deep.
Element parse(std::string_view text);
std::string write(const Element& root);

}  // namespace softdriver::xml
