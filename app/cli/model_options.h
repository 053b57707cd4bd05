// cli/model_options.h -- which of the zoo's models a subcommand is about, and the sizes of its step.
#pragma once

#include <cstdint>
#include <string>

#include "cli/option_adder.h"

namespace remat::cli {

/// The word MODEL, which must be there. `text` says what it is for; a line for each model follows.
void add_model(OptionAdder& add, std::string& model, const std::string& text = "The model of the zoo:");

/// Throws UsageError where `head` asks for tiles and the model has no loss that could be made in them.
void check_head(const std::string& model, const std::string& head);

/// One of the group "Sizes". The value stays what it is where the option is not given.
void add_size(CLI::App& app, const std::string& name, int64_t& value, const std::string& text);

/// --batch, --length, --depth and --width.
template <class Settings>
void add_sizes(CLI::App& app, Settings& settings) {
  add_size(app, "--batch", settings.batch, "Examples per step (default: the model's usual)");
  add_size(app, "--length", settings.length, "Tokens of an example, or pixels on each side");
  add_size(app, "--depth", settings.depth, "Layers");
  add_size(app, "--width", settings.width, "Features or channels");
}

}  // namespace remat::cli
