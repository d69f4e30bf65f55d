// What templates write. tests/conformance/jinja.py compares with Jinja2; here are the answers that
// a reader can check, and the limits.
#include "jinja/template.h"

#include <gtest/gtest.h>

#include "expect_failure.h"

namespace octavo::jinja {
namespace {

const OrderedJson& chat() {
  static const auto context = OrderedJson::parse(R"({
    "messages": [{"role": "system", "content": " Be kind. "}, {"role": "user", "content": "Hi"},
                 {"role": "assistant", "content": "Hello!"}],
    "tools": [{"name": "zoo", "args": {"b": 1, "a": [true, null, 1.5, "é\n"]}}],
    "n": 7, "text": "one, two", "eos_token": "</s>"})");
  return context;
}

std::string rendered(std::string_view text, const Limits& limits = {}) {
  RenderOptions options;
  options.limits = limits;
  std::tm day{};
  day.tm_year = 124, day.tm_mon = 1, day.tm_mday = 29;
  options.now = day;
  return Template(text, "test").render(chat(), options).text;
}

void expect_refused(std::string_view text, const std::vector<std::string>& parts,
                    const Limits& limits = {}) {
  for (const std::string& part : parts)
    expect_failure(ExitCode::kDamaged, part, [&] { rendered(text, limits); });
}

TEST(Jinja, WritesChatml) {
  EXPECT_EQ(
      rendered("{% for m in messages %}\n{{ '<|im_start|>' + m.role + '\\n' + m['content']|trim + "
               "'<|im_end|>' }}\n{% endfor %}\n"),
      "<|im_start|>system\nBe "
      "kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n");
}

TEST(Jinja, CutsWhiteSpaceAsTransformersDoes) {
  EXPECT_EQ(rendered("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(rendered("a  {%- if true -%}  b  {%- endif -%}  c"), "abc");
  EXPECT_EQ(rendered("  {%+ if true %}b{% endif +%}\nc"), "  b\nc");
  EXPECT_EQ(rendered("x {# note #}\ny {{- 1 -}} z\n\n"), "x y1z\n");
  EXPECT_EQ(rendered("{% raw %}{{ x }}{% endraw %}\r\n{{ 1 }}"), "{{ x }}1");
}

TEST(Jinja, PrintsPythonsValues) {
  EXPECT_EQ(rendered("{{ [1, 2.0, 'a\"b\\'c', none, true, {'k': (1,)}] }}"),
            "[1, 2.0, 'a\"b\\'c', None, True, {'k': (1,)}]");
  EXPECT_EQ(rendered("{{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ -0.0 }} {{ 7 // -2 }} {{ -7 % 3 }} "
                     "{{ 2 ** -1 }}"),
            "1e+16 0.30000000000000004 1e-05 -0.0 -4 2 0.5");
  EXPECT_EQ(rendered("{{ tools|tojson }}"),
            R"([{"name": "zoo", "args": {"b": 1, "a": [true, null, 1.5, "é\n"]}}])");
  EXPECT_EQ(rendered("{{ tools[0].args|tojson(indent=1) }}"),
            "{\n \"b\": 1,\n \"a\": [\n  true,\n  null,\n  1.5,\n  \"é\\n\"\n ]\n}");
  EXPECT_EQ(
      rendered("{{ missing }}{{ missing is defined }}{{ missing|default('d') }}{{ text[::-1] }}"),
      "Falsedowt ,eno");
}

TEST(Jinja, HasScopesOfItsOwn) {
  EXPECT_EQ(
      rendered("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"),
      "231");
  EXPECT_EQ(rendered("{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i "
                     "%}{% endfor %}{{ ns.x }}"),
            "4");
  EXPECT_EQ(rendered("{% for i in [1] %}{{ n }}{% endfor %}{% set n = 2 %}"),
            "");  // stored below: never the context's
  EXPECT_EQ(rendered("{% if false %}{% set n = 2 %}{% endif %}{{ n }}"), "7");
  EXPECT_EQ(rendered("{% macro m(a, b='-') %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}{% call "
                     "m(1) %}{{ n }}{% endcall %}"),
            "1-7");
}

TEST(Jinja, KnowsItsLoops) {
  EXPECT_EQ(rendered("{% for m in messages if m.role != 'user' %}{{ loop.index }}/{{ loop.length "
                     "}}{{ loop.last }} {% endfor %}"),
            "1/2False 2/2True ");
  EXPECT_EQ(rendered("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 4 %}{% "
                     "break %}{% endif %}{{ i }}{% else %}none{% endfor %}"),
            "023");
  EXPECT_EQ(rendered("{% for k, v in tools[0].args.items() %}{{ loop.previtem[0] if not loop.first "
                     "}}{{ k }}{% endfor %}"),
            "bba");
}

TEST(Jinja, SaysWhatTheModelWrites) {
  const Template made(
      "{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' %}{% generation %}{{ "
      "m.content }}{{ eos_token }}{% endgeneration %}{% endif %}{% endfor %}",
      "test");
  ASSERT_TRUE(made.has_generation());
  const Rendered result = made.render(chat());
  EXPECT_EQ(result.text, "suaHello!</s>");
  ASSERT_EQ(result.generated.size(), 1U);
  EXPECT_EQ(result.text.substr(result.generated[0].begin,
                               result.generated[0].end - result.generated[0].begin),
            "Hello!</s>");
  EXPECT_FALSE(result.generation_is_unplaced);
  const Template hidden("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}",
                        "test");
  EXPECT_TRUE(hidden.render(chat()).generation_is_unplaced);
}

TEST(Jinja, RefusesWithTheTemplatesOwnWords) {
  expect_refused("{{ raise_exception('only user roles') }}", {"test", "only user roles"});
  expect_refused("a\n{% if x %}", {"line 2", "elif"});
  expect_refused("{{ missing.x }}", {"'missing' is undefined"});
  EXPECT_EQ(rendered("{{ missing.__class__ }}|"), "|");  // as Jinja2's sandbox
  expect_refused("{{ missing.__class__.x }}", {"'__class__' of 'Undefined'", "unsafe"});
  expect_refused("{{ messages|nothing }}", {"nothing"});
  expect_refused("{% include 'x' %}", {"include", "not supported"});
  expect_refused("{% set l = [] %}{{ l.append(1) }}", {"append", "unsafe"});
  expect_refused("{{ 9223372036854775807 + 1 }}", {"64 bits"});
  expect_refused("{{ 'a' + 1 }}", {"str", "int"});
  EXPECT_EQ(rendered("{% if false %}{{ 1|nothing }}{% endif %}ok"), "ok");
}

TEST(Jinja, HasAClockThatStands) {
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y') }}"), "29 Feb 2024");
}

// Each would take for ever, or all memory.
TEST(Jinja, StopsHostileTemplates) {
  const std::string big = "{% set ns = namespace(s='0123456789') %}";
  for (const std::string& hostile :
       {std::string(
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
        std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
        std::string("{{ 'x' * 10000000000 }}"), std::string("{{ [0] * 10000000000 }}"),
        std::string("{{ ('x' * 100000).replace('x', 'y' * 100000) }}"),
        std::string("{{ 'x'.center(99999999999) }}"), std::string("{{ 'x'|indent(99999999999) }}"),
        std::string("{{ '%99999999999d' % 1 }}"), std::string("{{ range(100001) }}"),
        big + "{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        big + "{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
        big + "{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}",
        std::string("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"),
        "{{ " + std::string(1000, '(') + "1" + std::string(1000, ')') + " }}",
        "{{ 1" +
            [] {
              std::string sums;
              for (int i = 0; i < 10000; ++i) sums += "+1";
              return sums;
            }() +
            " }}",
        [] {
          std::string ifs;
          for (int i = 0; i < 1000; ++i) ifs += "{% if 1 %}";
          return ifs;
        }(),
        std::string(1 << 20, 'a')})
    expect_refused(
        hostile, {"test"},
        {.steps = 200'000, .made_bytes = 8 << 20, .output_bytes = 1 << 20, .depth = 300});
}

TEST(Jinja, KeepsValuesThatHoldEachOtherNoLongerThanItRuns) {
  EXPECT_EQ(rendered("{% set ns = namespace() %}{% set ns.me = ns %}{% macro m() %}{{ ns.me is "
                     "defined }}{% endmacro %}{% set ns.m = m %}{{ ns.m() }}"),
            "True");
  EXPECT_EQ(rendered("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}"), "True");
}

}  // namespace
}  // namespace octavo::jinja
