// cli/option_adder.h -- adds options to one subcommand, in groups of its help page.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <remat/budget.h>
#include <remat/disk.h>
#include <remat/error.h>

#include <remat/support/number_text.h>
#include "cli/comma_list.h"
#include "cli/settings.h"
#include "cli/suggestion.h"

namespace remat::cli {

template <class Number>
std::string number_text(Number number) {
  if constexpr (std::is_integral_v<Number>) {
    return std::to_string(number);
  } else {
    return support::short_text(number);
  }
}

/// From `least` to `most`, in decimal digits. Unlike CLI11's own check it refuses nan, and what does not fit the type;
/// and the help page has no limits, which would be noise. Given to transform(): CLI11 would read 010 as eight.
template <class Number>
CLI::Validator range(Number least, Number most) {
  const auto problem = [least, most](std::string& text) {
    Number number{};
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && rest == end && number >= least && number <= most) {
      if constexpr (std::is_integral_v<Number>) text = std::to_string(number);
      return std::string();
    }
    return "'" + text + "' is not a number from " + number_text(least) + " to " + number_text(most);
  };
  return {problem, ""};
}

/// One of `names`, or a question whether the nearest was meant.
inline CLI::Validator one_of(const std::vector<std::string>& names) {
  return {[names](const std::string& text) {
            if (std::ranges::find(names, text) != names.end()) return std::string();
            std::string list;
            for (const auto& name : names) list += (list.empty() ? "" : ", ") + name;
            return "'" + text + "' is none of " + list + did_you_mean(text, names);
          },
          ""};
}

/// "a,b": parts with a comma between, each of them as `part` wants it.
inline CLI::Validator list_of(CLI::Validator part) {
  return {[part = std::move(part)](std::string& text) {
            for (std::string item : comma_list(text)) {
              if (std::string problem = part(item); !problem.empty()) return problem;
            }
            return std::string();
          },
          ""};
}

/// What Budget::parse() reads; the command line says which option it is about. `follows`: the command's steps look at
/// the memory that is left.
inline CLI::Validator budget_given(bool follows = false) {
  return {[follows](const std::string& text) {
            try {
              if (Budget::parse(text).kind() == Budget::Kind::kPressure && !follows) {
                return "\"" + text + "\" is known while a training runs alone; give bytes (2GiB)";
              }
            } catch (const Error& error) {
              const std::string message = error.what(), where = "[budget] ";
              return message.starts_with(where) ? message.substr(where.size()) : message;
            }
            return std::string();
          },
          ""};
}

/// What `read` takes without an Error; the command line says which option it is about.
inline CLI::Validator read_by(std::function<void(const std::string& text)> read) {
  return {[read = std::move(read)](const std::string& text) {
            try {
              read(text);
            } catch (const Error& error) {
              const std::string message = error.what();
              return message.substr(message.starts_with('[') ? message.find("] ") + 2 : 0);
            }
            return std::string();
          },
          ""};
}

/// An empty path would mean that the option is not given.
inline CLI::Validator path_given() {
  return {[](const std::string& path) { return path.empty() ? "the path is empty" : std::string(); }, ""};
}

class OptionAdder {
 public:
  explicit OptionAdder(CLI::App& app) : app_(app) {}

  void group(const std::string& name) { group_ = name; }

  template <class Value>
  CLI::Option* add(const std::string& name, Value& value, const std::string& text) {
    return app_.add_option(name, value, text)->capture_default_str()->group(group_);
  }
  template <class Value>
  void count(const std::string& name, Value& value, const std::string& text, int64_t most = int64_t{1} << 40) {
    add(name, value, text)->transform(range(int64_t{1}, most))->type_name("N");
  }
  CLI::Option* file(const std::string& name, std::string& path, const std::string& text) {
    return app_.add_option(name, path, text)->check(path_given())->type_name("FILE")->group(group_);
  }
  void flag(const std::string& name, bool& value, const std::string& text) {
    app_.add_flag(name, value, text)->group(group_);
  }
  /// One of `names`.
  void choice(const std::string& name, std::string& value, const std::vector<std::string>& names,
              const std::string& text) {
    add(name, value, text)->check(one_of(names))->type_name("NAME");
  }
  /// `compares`: steps in tiles and with whole logits are.
  void head(std::string& value, bool compares = false) {
    choice(
        "--head", value, {kHeadAuto, kHeadTiles, kHeadWhole},
        "How the loss of a language model is made, with the same bits. auto: in tiles where its logits are larger "
        "than 16 MiB" +
            std::string(compares ? ", unless a budget in bytes has room for whole ones and steps are shorter so" : "") +
            ". tiles: wherever a trial shows the same bits. whole: as without remat");
  }
  void disk(std::string& value) {
    add("--disk", value,
        "Values may move to a file without a name in this directory, of so many bytes, where that is faster than to "
        "recompute them: 100GiB:/scratch")
        ->check(read_by([](const std::string& text) { Disk::parse(text); }))
        ->type_name("BYTES:DIR");
  }
  CLI::Option* budget(const std::string& value_name, std::string& value, const std::string& text,
                      bool show_default = true, bool follows = false) {
    auto* option =
        app_.add_option(value_name, value, text)->check(budget_given(follows))->type_name("BYTES")->group(group_);
    return show_default ? option->capture_default_str() : option;
  }
  /// A word without a name: it must be there, once.
  CLI::Option* word(const std::string& name, std::string& value, const std::string& text) {
    return app_.add_option(name, value, text)
        ->required()
        ->type_name("NAME")
        ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }

 private:
  CLI::App& app_;
  std::string group_ = "Options";
};

}  // namespace remat::cli
