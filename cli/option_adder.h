// cli/option_adder.h -- adds options to one subcommand, in groups of its help page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace remat::cli {

/// CLI11's check without the limits in the help page, where they would be noise.
template <class Number>
CLI::Validator range(Number least, Number most) {
  return CLI::Range(least, most).description("");
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
  void count(const std::string& name, Value& value, const std::string& text) {
    add(name, value, text)->check(range(int64_t{1}, int64_t{1} << 40))->type_name("N");
  }
  CLI::Option* file(const std::string& name, std::string& path, const std::string& text) {
    return app_.add_option(name, path, text)->type_name("FILE")->group(group_);
  }
  void flag(const std::string& name, bool& value, const std::string& text) {
    app_.add_flag(name, value, text)->group(group_);
  }
  /// One of `names`.
  void choice(const std::string& name, std::string& value, const std::vector<std::string>& names,
              const std::string& text) {
    add(name, value, text)->check(CLI::IsMember(names))->type_name("NAME");
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
