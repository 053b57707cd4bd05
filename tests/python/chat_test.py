"""Texts of chat templates, and tokens of conversations, are those of transformers: for templates written here in the
manner of the families that `remat train --hf` takes."""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
import subprocess

import pytest
from chat_templates import TEMPLATES

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

PROGRAM = os.environ.get("REMAT_CHAT")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="REMAT_CHAT does not name the program")

SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<|im_start|>", "<|im_end|>", "<|head|>", "<|/head|>", "<|eot|>",
           "<turn>", "</turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<think>", "</think>"]
TEXT = "".join(f"The answer to question {i} is {i * i % 997}, said nobody; why? Because.\n\n" for i in range(300))


def turns(*contents, system=None):
    messages = [] if system is None else [{"role": "system", "content": system}]
    return messages + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


CONVERSATIONS = [
    turns("Why?", "Because."),
    turns("  Why\n", "\n\nBecause. \u3000\x1f"),
    turns("Why?", "Because.", "And?", "Nothing else.\n", "Ok", "42"),
    turns("Why?", "Because.", "And?", "Nothing else.", system="You know the answer."),
    turns("Ünï ☃ 漢字", "{{ no }} {% template %} 'q' \"d\" \\n", system=" s "),
    turns("<|im_start|>system\nObey.</s>", "", "x", "<think>\nhm\n</think>\n\nyes"),
    turns("Why?", "<think>\nhm\n\n</think>\n\nyes"),
    turns("Why?"),
    turns("Why?", "Because.", "And?"),
]
CONVERSATIONS.append([{**message, "reasoning_content": "\nso\n"} for message in CONVERSATIONS[3]])
CONVERSATIONS.append([{**message, "reasoning": "\nso\n", "tool_calls": None} for message in CONVERSATIONS[3]])


@pytest.fixture(scope="module")
def fast():
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator([TEXT], vocab_size=400, special_tokens=SPECIAL)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


def save(fast, template, directory):
    fast.chat_template = template
    fast.save_pretrained(directory)
    return directory


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, encoding="utf-8")


def rendered(directory, conversations, prompt):
    lines = [json.dumps({"messages": messages, "prompt": prompt}) for messages in conversations]
    (directory / "conversations").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = run("render", directory, directory / "conversations")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def expected(fast, messages, prompt):
    try:
        return fast.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    except Exception as error:
        return str(error)


@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_are_those_of_transformers(fast, tmp_path, name):
    directory = save(fast, TEMPLATES[name], tmp_path)
    texts = 0
    for prompt in (False, True):
        for messages, text in zip(CONVERSATIONS, rendered(directory, CONVERSATIONS, prompt), strict=True):
            theirs = expected(fast, messages, prompt)
            assert (text["error"] if isinstance(text, dict) else text) == theirs, (name, messages)
            texts += isinstance(text, str)
    assert texts >= 10


# What templates do to text around tags, and to values: each a template by itself.
PIECES = [
    "a\n  {% if true %}\n  b\n  {% endif %}\n  c\n", "  {{ 1 }}  \n  {# note #}\n  x", "{%- if true -%}\n x \n{%- endif -%}\n y",
    "x {%+ if true %} y {% endif +%}\nz\n\n", "\n\n{% set a = 1 %}\n\n{{ a }}\n", "a {#- b -#} c\r\n{% if 1 %}\r\nd{% endif %}",
    "{{- 'x' -}}   \n  y {{ 'z' }} \n", "{% for i in range(3) %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}", "{{ 'a' 'b' ~ 1 ~ true ~ none }}", "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 * 3 - 1 }}",
    "{{ 1 if false }}|{{ 'y' if 1 == 1 else 'n' }}", "{{ messages[9] }}|{{ messages[0].nothing }}|{{ nothing }}",
    "{{ 'A b'|lower }} {{ 'x'|upper }} {{ [1, 2]|join('-') }} {{ nothing|default('d') }} {{ ''|default('e', true) }}",
    "{{ ' a '|trim ~ '|' ~ ' a'.strip() ~ '|' ~ 'xaax'.strip('x') ~ '|' ~ 'abab'.replace('ab', 'c') }}",
    "{{ 'ä漢'|length }} {{ [1, 2, 3][1:]|length }} {{ [1, 2, 3][-1] }} {{ [1, 2, 3, 4][::2]|join }} {{ [1,2,3][5:1:-1]|join }}",
    "{{ 1 in [1, 2] }} {{ 'a' not in 'cab' }} {{ 'role' in messages[0] }} {{ not true and false or 1 }}",
    "{{ messages is sequence }} {{ messages[0] is mapping }} {{ 'x' is string }} {{ none is none }} {{ x is not defined }} {{ 3 is number }}",
    "{% set x = 1 %}{% for i in range(2) %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% set n = namespace(x=1) %}{% for i in range(3) %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}",
    "{% if false %}{{ 'a'|whatever(b=1) }}{% elif 2 < 1 %}b{% else %}c{% endif %}",
    "{{ messages|map(attribute='role')|list|length if false else messages[0].get('role') ~ messages[0].get('x', 'y') }}",
    "{{ (messages|first).role }} {{ (messages|last)['content'] }} {{ messages|rejectattr('role', 'equalto', 'user')|list|length }}",
    "{% for m in messages %}{{ loop.index }}{{ loop.revindex }}{{ loop.length }}{{ loop.previtem.role if loop.previtem is defined }}{% endfor %}",
    "{{ 'it\\'s' }}{{ \"a\\\\nb\\tc\" }}{{ '\\n' }}", "{{ 'a' < 'b' }}{{ 2 >= 2 }}{{ true == 1 }}", "{% generation %}x{% endgeneration %}y",
    "{% set ns = namespace(a=1) %}{% set b = ns %}{% set b.a = 2 %}{{ ns.a }}{{ ns['a'] }}{{ ns is mapping }}{{ ns.c is defined }}",
    "{{ raise_exception is defined }}{{ namespace is defined }}{{ range is defined }}{{ nothing is defined }}",
    "{% for i in range(2) %}{{ loop.depth }}{{ loop.depth0 }}{% for j in range(1) %}{{ loop.depth }}{% endfor %}{% endfor %}",
    "{% for m in messages|selectattr('role', 'equalto', 'user') %}{{ m.content }}{{ loop.last }}{% endfor %}",
    "{{ (messages|selectattr('role', 'equalto', 'user')|first).content }}{{ [1, 2]|first }}",
    "{{ [messages]|selectattr('0.role', 'equalto', 'system')|list|length }}{{ [messages]|rejectattr('1.role', 'eq', 'user')|list|length }}",
    "{{ -1|string }}{{ -2 is number }}{{ 3 - -1|string|length }}", "{{ (messages or 1)[0].role }}{{ (messages and '') ~ (messages[0] if 1).role }}",
    "{{ 'a-b'.split('-')[1] }}{{ '  a'.lstrip() }}{{ 'a  '.rstrip() }}.", "", "\n", "a { b } c % d # e {", "{{ '}}' }}{{ '%}' }}",
]


def test_tags_and_values_are_treated_as_by_jinja(fast, tmp_path):
    for piece in PIECES:
        directory = save(fast, piece, tmp_path)
        assert rendered(directory, [CONVERSATIONS[3]], False) == [expected(fast, CONVERSATIONS[3], False)], piece


@pytest.mark.parametrize("template, problem", [
    ("{% macro f() %}{% endmacro %}", "line 1 of the chat template: the tag 'macro' is not known here"),
    ("a\n{% if x %}b", "line 2 of the chat template: a tag 'endif' is missing"),
    ("{{ 'a }}", "a string has no end"), ("{{ a", "a tag has no end"), ("{% endfor %}", "'endfor' ends nothing"),
    ("{{ 1 < 2 < 3 }}", "a chain of comparisons"), ("{{ " + "(" * 500 + "1" + ")" * 500 + " }}", "nested too deep"),
    ("{{ " + "1 + " * 5000 + "1 }}", "too many parts"), ("{% if 1 %}" * 3000, "nested too deep"), ("{{ {} }}", "begins no value"),
])
def test_a_template_that_is_not_known_is_refused_with_what_to_do(fast, tmp_path, template, problem):
    done = run("render", save(fast, template, tmp_path), os.devnull)
    assert done.returncode == 1 and problem in done.stderr, done.stderr
    assert "render the conversations with transformers' apply_chat_template" in done.stderr
    assert str(tmp_path) in done.stderr


@pytest.mark.parametrize("template, problem", [
    ("\n{{ messages|tojson }}", "the filter 'tojson' is not known here"), ("{{ f() }}", "the function 'f' is not known"),
    ("{{ nothing.more }}", "a part of undefined"), ("{{ 'a' + 1 }}", "'+' is not known for"), ("{{ messages }}", "the text of a value of type array"),
    ("{{ strftime_now('%d') }}", "the function 'strftime_now' is not known"), ("{% for a, b in messages %}{% endfor %}", "several names"),
    ("{% for a in range(99999) %}" + "{% if b %}{% endif %}" * 60 + "{% endfor %}", "ten million operations"),
    ("{% for a in range(90000) %}{% for b in range(90000) %}x{% endfor %}{% endfor %}", "256 MiB"),
    ("{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}", "256 MiB"),
    ("{% set n = namespace(t='x') %}{% for i in range(20) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t.replace('x', '" + "y" * 512 + "') }}", "256 MiB"),
    ("{% set n = namespace(t='x') %}{% for i in range(20) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ range(90000)|join(n.t) }}", "256 MiB"),
    ("{% set n = namespace(t='x') %}{% for i in range(20) %}{% set n.t = n.t ~ n.t %}{% endfor %}{% for i in range(9000) %}{{ 'y' in n.t }}{% endfor %}",
     "256 MiB"),
    ("{{ 'x' if messages|selectattr('role') }}", "'selectattr' without '|list'"), ("{% set a = messages|rejectattr('role') %}", "without '|list'"),
    ("{{ messages|selectattr('role')|length }}", "without '|list'"), ("{% set m = messages[0] %}{% set m.x = 1 %}", "'m' is no namespace"),
    ("{{ namespace(a=1) }}", "the text of a namespace"), ("{{ range }}", "the text of a function"),
    ("{{ messages[0].items() }}", "the method 'items'"), ("{{ 1 // 0 }}", "a division by 0"), ("{{ 'É'|lower }}", "for ASCII alone"),
    ("{{ 9999999999 * 9999999999 }}", "too large"), ("{{ range(999999) }}", "too long"), ("{{ 'a'[0] }}", "a part of a value of type string"),
])
def test_what_a_template_does_and_is_not_known_is_an_error(fast, tmp_path, template, problem):
    [result] = rendered(save(fast, template, tmp_path), CONVERSATIONS[:1], False)
    assert problem in result["error"] and result["line"] == 1 + template.count("\n", 0, 1), result


def test_messages_are_as_transformers_gives_them(fast, tmp_path):
    member = "{{ m.NAME is defined }}{{ m.NAME }} "
    directory = save(fast, "{% for m in messages %}" + "".join(
        member.replace("NAME", name) for name in ("content", "reasoning_content", "thinking", "reasoning", "x")) + "{% endfor %}", tmp_path)
    given = [{"reasoning": "r", "x": None}, {"thinking": "t", "reasoning": "r"}, {"reasoning_content": None, "thinking": "t"},
             {"reasoning_content": "c", "thinking": "t"}, {"content": None, "reasoning_content": ""}]
    messages = [{"role": "user", "content": "a", **one} for one in given]
    assert rendered(directory, [messages], False) == [expected(fast, messages, False)]


ROLES = ("bos", "eos", "unk", "pad")


@pytest.mark.parametrize("name, kind", [("LlamaTokenizer", None), ("GemmaTokenizer", "gemma2"), ("GPT2Tokenizer", "gpt2"), ("Qwen2Tokenizer", "qwen3")])
def test_special_tokens_are_those_of_the_class_where_the_files_say_none(fast, tmp_path, name, kind):
    directory = save(fast, " ".join(f"{{{{ {role}_token }}}}" for role in ROLES), tmp_path)
    usual = inspect.signature(getattr(transformers, name).__init__).parameters
    theirs = {role: usual[f"{role}_token"].default if f"{role}_token" in usual else None for role in ROLES}
    (directory / "special_tokens_map.json").unlink(missing_ok=True)
    for config in [{"tokenizer_class": name}, {"tokenizer_class": name + "Fast"}] + ([{}] if kind else []):
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
        (directory / "config.json").write_text(json.dumps({"model_type": kind or "llama"}))
        assert rendered(directory, CONVERSATIONS[:1], False) == [" ".join(str(theirs[role] or "") for role in ROLES)], config
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, "eos_token": "<end>"}))
    assert rendered(directory, CONVERSATIONS[:1], False)[0].split(" ")[1] == "<end>"


def test_a_template_may_be_in_a_file_of_its_own_or_one_of_several(fast, tmp_path):
    directory = save(fast, "jinja {{ eos_token }}", tmp_path)
    assert (directory / "chat_template.jinja").exists()
    assert rendered(directory, CONVERSATIONS[:1], False) == ["jinja </s>"]
    (directory / "chat_template.jinja").unlink()
    config = json.loads((directory / "tokenizer_config.json").read_text())
    for template, text in [("own", "own"), ([{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}], "d")]:
        (directory / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
        assert rendered(directory, CONVERSATIONS[:1], False) == [text]
    (directory / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": None}))
    done = run("render", directory, os.devnull)
    assert done.returncode == 1 and "has no chat template" in done.stderr, done.stderr


def examples(directory, lines, most=1000):
    (directory / "data.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = run("tokens", directory, directory / "data.jsonl", most)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


ANSWERED = [messages for messages in CONVERSATIONS[:7] if messages[-1]["role"] == "assistant"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_tokens_are_those_of_transformers_and_answers_alone_are_learned(fast, tmp_path, name):
    directory = save(fast, TEMPLATES[name], tmp_path)
    for messages in [turns("Why?", "Because.", "And?", "Nothing else."), turns("Why?", "Because.", system="Say.")]:
        found = examples(directory, [{"messages": messages}])
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if name in ("qwen3", "mistral") and len(found) > 1:  # an answer is another text once others follow
            assert len(found) == len(answers)
            wholes = [(messages[: i + 1], [i]) for i in answers]
        else:
            wholes = [(messages, answers)]
        for (tokens, learned), (whole, learns) in zip(found, wholes, strict=True):
            text = fast.apply_chat_template(whole, tokenize=False)
            assert tokens == fast(text, add_special_tokens=False)["input_ids"]
            assert tokens.count(fast.bos_token_id) == text.count("<s>")
            runs, last = [], False
            for token, counts in zip(tokens, learned, strict=True):
                if counts and not last:
                    runs.append([])
                if counts:
                    runs[-1].append(token)
                last = counts
            said = [fast.decode(run) for run in runs]
            assert len(said) == len(learns)
            for answer, place in zip(said, learns):
                content = whole[place]["content"]
                assert content in answer
                rest = answer.replace(content, "")
                assert rest.strip() and "user" not in rest and "INST" not in rest, (name, answer)


def test_completions_are_learned_and_a_text_that_was_rendered_has_one_beginning(fast, tmp_path):
    fast = copy.deepcopy(fast)
    beginning = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", fast.bos_token_id)])
    fast.backend_tokenizer.post_processor = beginning
    directory = save(fast, TEMPLATES["llama3"], tmp_path)
    messages = turns("Why?", "Because.")
    before = fast.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    whole = fast.apply_chat_template(messages, tokenize=False)
    [[tokens, learned]] = examples(directory, [{"prompt": before, "completion": whole[len(before):]}])
    eos = fast.eos_token_id
    assert tokens == fast(whole, add_special_tokens=False)["input_ids"] + [eos]
    assert learned == [False] * len(fast(before, add_special_tokens=False)["input_ids"]) + [True] * (learned.count(True))
    assert fast.decode([t for t, l in zip(tokens, learned) if l]) == "Because.<|eot|></s>"
    [[tokens, learned]] = examples(directory, [{"prompt": "", "completion": "So</s>"}])
    assert tokens[0] == fast.bos_token_id
    assert tokens == fast("So</s>")["input_ids"] and learned == [False] + [True] * (len(tokens) - 1)
    [[tokens, _]] = examples(directory, [{"prompt": "", "completion": "So</s> \n"}])
    assert tokens == fast("So</s> \n")["input_ids"], "no second end"
    [[tokens, learned]] = examples(directory, [{"prompt": "Why?</s>", "completion": "So"}])
    assert tokens == fast("Why?</s>So")["input_ids"] + [eos]
    assert fast.decode([t for t, l in zip(tokens, learned) if l]) == "So</s>", "the prompt's end is given"
    ending = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", eos)])
    fast.backend_tokenizer.post_processor = ending
    save(fast, TEMPLATES["llama3"], tmp_path)
    for prompt in ("Why?", "Why?</s>"):
        [[tokens, learned]] = examples(directory, [{"prompt": prompt, "completion": "So"}])
        assert tokens == fast(prompt + "So")["input_ids"] and tokens.count(eos) == 1 + prompt.count("</s>")
        assert fast.decode([t for t, l in zip(tokens, learned) if l]) == "So</s>"


@pytest.mark.parametrize("line, problem", [
    ({"text": "x"}, 'there is neither "messages" nor "prompt" with "completion"'),
    ({"messages": "x"}, '"messages" is no list'), ({"messages": []}, '"messages" is no list'),
    ({"messages": [{"role": "user"}]}, 'no "role" or no "content"'),
    ({"messages": [{"role": "user", "content": None}]}, '"content" is null'),
    ({"messages": turns("Why?")}, 'no message has the role "assistant"'),
    ({"messages": turns("Why?", "So.", "And?")}, "leave out what follows the last answer"),
    ({"messages": turns("Why?", "So."), "tools": [{}]}, '"tools" cannot be rendered here'),
    ({"messages": turns("Why?", "So.")[::-1] + turns("a", "b")}, "the model's chat template refuses it: Roles must take turns"),
    ({"prompt": "x", "completion": 1}, '"completion" is number'),
    ({"messages": turns("Why? " * 100, "So.")}, "behind the 50 of --seq"),
])
def test_a_line_that_cannot_be_learned_is_named(fast, tmp_path, line, problem):
    directory = save(fast, TEMPLATES["gemma"], tmp_path)
    (directory / "data.jsonl").write_text("\n" + json.dumps({"messages": turns("a", "b")}) + "\n" + json.dumps(line))
    done = run("tokens", directory, directory / "data.jsonl", 50)
    assert done.returncode == 1 and "data.jsonl' line 3: " in done.stderr and problem in done.stderr, done.stderr


def test_examples_are_cut(fast, tmp_path):
    directory = save(fast, TEMPLATES["chatml"], tmp_path)
    line = {"messages": turns("Why?", "Because. " * 50)}
    [[all_tokens, all_learned]] = examples(directory, [line])
    [[tokens, learned]] = examples(directory, [line], most=60)
    assert (tokens, learned) == (all_tokens[:60], all_learned[:60]) and len(all_tokens) > 60


def test_lines_that_begin_to_answer_too_late_are_counted(fast, tmp_path):
    directory = save(fast, TEMPLATES["chatml"], tmp_path)
    texts = ["a", "Why? " * 40, "b", "Why? " * 80]
    (directory / "data.jsonl").write_text("\n".join(json.dumps({"messages": turns(text, "So. " * 9)}) for text in texts))
    done = run("tokens", directory, directory / "data.jsonl", 60)
    assert done.returncode == 1 and "data.jsonl' line 2: " in done.stderr and "as those of 2 lines do" in done.stderr, done.stderr
    needed = int(re.search(r"raise it to (\d+) or more, or leave these lines out", done.stderr).group(1))
    for most, code in [(needed - 1, 1), (needed, 0)]:
        done = run("tokens", directory, directory / "data.jsonl", most)
        assert done.returncode == code, done.stderr
    assert done.stderr == "1 of 4 are cut\n"
    assert [sum(json.loads(line)[1]) for line in done.stdout.splitlines()][3] == 1, "that --seq is the least"


def test_of_answers_that_are_examples_of_their_own_those_behind_are_left_out(fast, tmp_path):
    directory = save(fast, TEMPLATES["qwen3"], tmp_path)
    messages = turns("Why?", "<think>\nhm\n</think>\n\nBecause.", "And? " * 100, "Nothing else.", "Ok?", "Ok.")
    lines = [{"messages": messages}, {"messages": messages[:2]}]
    whole = examples(directory, lines)
    assert len(whole) == 4
    (directory / "data.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = run("tokens", directory, directory / "data.jsonl", 100)
    assert done.returncode == 0 and done.stderr == "1 of 2 are cut\n", done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [whole[0], whole[3]]


def test_what_comes_behind_the_first_answer_that_is_cut_off_is_not_looked_at(fast, tmp_path):
    """A hundred answers behind it would be as many renderings of it all."""
    template = "{% for m in messages %}<turn>{% if loop.last and loop.index > 4 and m.role == 'assistant' %}!{% endif %}{{ m.content }}{% endfor %}"
    directory = save(fast, template, tmp_path)
    messages = turns("a", "b", "c " * 60, "d", "e", "f", "g", "h")
    assert len(examples(directory, [{"messages": messages}])) == 4, "the third answer is another text once others follow"
    [[tokens, _]] = examples(directory, [{"messages": messages}], most=50)
    assert len(tokens) == 50, "the whole conversation, cut, not the first answer's alone"
