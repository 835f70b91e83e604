// The reader of XML.
#include "damage.hpp"
#include "xml.hpp"

using check::refuses;
using softdriver::xml::Element;
using softdriver::xml::parse;
using softdriver::xml::write;

namespace {

const std::string head = "<?xml version=\"1.0\"?>";

bool refused(const std::string& text) {
  return refuses([&] { parse(text); });
}

std::string nested(size_t depth) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) {
    text += "<a>";
  }
  for (size_t i = 0; i < depth; ++i) {
    text += "</a>";
  }
  return text;
}

}  // namespace

TEST(elements_attributes_and_text) {
  const Element root =
      parse(head + "<!-- c --> <net name='a \"b\"' v = \"1\">\n <l/><l k=''>t&lt;&#65;&#x42;</l >\n</net>\n");
  CHECK(root.name == "net" && root.attribute("name") == "a \"b\"" && root.attribute("v") == "1");
  CHECK(root.children.size() == 2 && root.text.empty());
  CHECK(root.children[1].text == "t<AB" && root.children[1].attribute("k").empty());
  CHECK(root.find_child("l") == &root.children[0] && root.find_child("m") == nullptr);
  CHECK(refuses([&] { root.attribute("other"); }));
}

TEST(characters_by_number) {
  CHECK(parse("<a>&#228;&#x20AC;&#x1F600;</a>").text == "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  for (const char* wrong :
       {"&#0;", "&#x110000;", "&#99999999999999999999;", "&#;", "&#x;", "&#xg;", "&nbsp;", "&#65", "&"}) {
    CHECK(refused("<a>" + std::string(wrong) + "</a>"));
  }
}

TEST(written_and_read_again) {
  Element root{"net", {{"key", "a\"<>&'\n\t\r"}}, {{"child", {}, {}, "x < y & z"}}, {}};
  const Element again = parse(write(root));
  CHECK(again.attribute("key") == "a\"<>&'\n\t\r" && again.children[0].text == "x < y & z");
  root.set_attribute("key", "2");
  root.set_attribute("new", "3");
  CHECK(write(root) == head + "<net key=\"2\" new=\"3\"><child>x &lt; y &amp; z</child></net>");
}

TEST(what_is_not_well_formed) {
  for (const char* wrong : {"",
                            " ",
                            "text",
                            "<",
                            "<a",
                            "<a>",
                            "<a/",
                            "<a></b>",
                            "<a></a",
                            "<a><b></a></b>",
                            "<a b></a>",
                            "<a b=c/>",
                            "<a b=\"c/>",
                            "<a b=\"1\" b=\"2\"/>",
                            "<a/><b/>",
                            "<a/>text",
                            "<a>text<b/></a>",
                            "<!-- <a/>",
                            "<?xml <a/>",
                            "<1></1",
                            "</a>",
                            "<!DOCTYPE a><a/>",
                            "<a><![CDATA[x]]></a>"}) {
    CHECK(refused(wrong));
  }
  CHECK(refused(std::string("<a\0b/>", 6)));
}

TEST(depth) {
  CHECK(!refused(nested(256)));
  CHECK(refused(nested(257)));
  CHECK(refused(nested(1'000'000)));
}

TEST(damaged_text) {
  const std::string text =
      head +
      "<net name=\"n\" version=\"11\"><layers><layer id=\"0\" name=\"x &amp; &#228;\" type=\"Parameter\"><output>"
      "<port id=\"0\" precision=\"FP32\"><dim>1</dim></port></output></layer></layers><edges/></net>";
  check::Damage damage(1);
  size_t taken = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string damaged = damage.apply(text, "<>/\"'=&;#x!-? ");
    if (!refuses([&] {
          const std::string once = write(parse(damaged));
          CHECK(write(parse(once)) == once);
        })) {
      ++taken;
    }
  }
  CHECK(taken > 0 && taken < 4000);
}
