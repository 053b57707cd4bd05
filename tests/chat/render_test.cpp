// What damaged and hostile templates do; that texts are those of Jinja is tested in tests/python/chat_test.py.
#include "chat/render.h"

#include <gtest/gtest.h>

#include "chat/syntax.h"

namespace remat::chat {
namespace {

constexpr std::string_view kTemplate =
    "{{- bos_token }}{# all #}\n{% set ns = namespace(last=messages|length - 1) %}\n"
    "{%- for m in messages[::-1] if m.role != 'tool' %}{% set text = '<|' ~ m['role'] + '|>' %}\n"
    "  {%- if loop.first and not (m.content is none) -%} {{ text + m.content | trim }} {%- elif m.get('x', 1) == 1 %}"
    "{{ [1, 'a'][0] }}{% else %}{{ raise_exception(\"no\") if 1 in [2] else 'b' }}{% endif %}{% endfor %}\n";

std::map<std::string, Value> sample_variables() {
  return {{"bos_token", "<s>"},
          {"messages", Value::parse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": " b "}])")}};
}

TEST(Render, MakesTheTextOfATemplate) {
  EXPECT_EQ(render(parse_template(kTemplate), sample_variables()), "<s><|assistant|>b1");
}

/// A problem or a text, and nothing else.
void try_out(const std::string& text) {
  try {
    render(parse_template(text), sample_variables());
  } catch (const TemplateProblem& problem) {
    EXPECT_FALSE(problem.text.empty() && !problem.by_author) << text;
    EXPECT_GE(problem.line, 1) << text;
  }
}

TEST(Render, OfADamagedTemplateIsATextOrAProblem) {
  const std::string whole(kTemplate);
  for (size_t at = 0; at < whole.size(); ++at) {
    try_out(whole.substr(0, at));
    try_out(whole.substr(at));
    try_out(whole.substr(0, at) + whole.substr(at + 1));
    for (const char c : {'{', '}', '%', '-', '\'', '(', ']', '|', '.', ':', '9', ' ', '\0', '\xff'}) {
      std::string changed = whole;
      changed[at] = c;
      try_out(changed);
    }
  }
}

TEST(Render, WhatIsLookedAtIsNotCopied) {
  const std::string text =
      "{% set l = range(90000) %}{% set n = namespace(l=l) %}{% for i in range(2000) %}"
      "{% if l|length == 90000 and n.l[i] == i and l is sequence and (l or 1)[0] == 0 and not (n.l if l)[0] %}"
      "{% endif %}{% endfor %}{{ l|length }}";
  EXPECT_EQ(render(parse_template(text), {}), "90000");
}

TEST(Render, RefusesWhatIsTooLarge) {
  for (const char* text : {"{{ n + 1 }}", "{{ range(n) }}", "{{ [1, 2][n] }}", "{{ n < 1 }}"}) {
    try {
      render(parse_template(text), {{"n", UINT64_MAX}});
      FAIL() << text;
    } catch (const TemplateProblem& problem) {
      EXPECT_EQ(problem.text, "a number is too large") << text;
    }
  }
}

TEST(Render, TellsTheLineOfAProblem) {
  try {
    render(parse_template("a\n{# b\n #}\n{{ 'c\nd' + 1 }}"), {});
    FAIL();
  } catch (const TemplateProblem& problem) {
    EXPECT_EQ(problem.line, 5);
    EXPECT_FALSE(problem.by_author);
  }
}

TEST(Render, ATemplateMayRefuse) {
  try {
    render(parse_template("{{ raise_exception('no ' ~ 1) }}"), {});
    FAIL();
  } catch (const TemplateProblem& problem) {
    EXPECT_EQ(problem.text, "no 1");
    EXPECT_TRUE(problem.by_author);
  }
}

}  // namespace
}  // namespace remat::chat
