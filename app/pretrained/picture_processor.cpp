#include "pretrained/picture_processor.h"

#include <string>

#include <remat/error.h>

#include <remat/support/number_text.h>
#include "pretrained/config_file.h"

namespace remat::pretrained {
namespace {

constexpr const char* kName = "preprocessor_config.json";
constexpr int kNearest = 0, kBilinear = 2;  // as Pillow numbers its filters
constexpr const char* kKind = "image_processor_type";

std::array<double, 3> channels(const ConfigFile& config, const std::string& name) {
  std::array<double, 3> numbers = {0.5, 0.5, 0.5};
  if (!config.has(name)) return numbers;
  const auto& value = config.json().at(name);
  const auto refuse = [&] {
    config.refuse("has " + value.dump() + " for \"" + name + "\", which is not three numbers");
  };
  if (!value.is_array() || value.size() != numbers.size()) refuse();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!value.at(i).is_number()) refuse();
    numbers[i] = value.at(i).get<double>();
  }
  return numbers;
}

/// The number of old versions, or an object.
void check_side(const ConfigFile& config, int64_t side) {
  if (!config.has("size")) return;
  const bool number = config.json().at("size").is_number();
  const auto has = [&](const char* name) { return config.object("size").count(name, side) == side; };
  const bool same = number ? config.count("size") == side : has("height") && has("width");
  if (!number && config.object("size").has("shortest_edge")) {
    config.refuse("keeps the proportions of pictures (\"shortest_edge\"), and remat gives a model all of a picture");
  }
  if (same) return;
  config.refuse("has " + config.json().at("size").dump() + " for \"size\", and the model of config.json sees " +
                std::to_string(side) + " x " + std::to_string(side) + " pixels");
}

}  // namespace

PictureProcessor read_picture_processor(const std::filesystem::path& directory, int64_t side) {
  std::error_code error;
  if (!std::filesystem::exists(directory / kName, error)) {
    throw Error("[pretrained] '" + directory.string() + "' has no " + kName +
                ", which says how pictures become the input of a model; get it from where the model is from, or write "
                "it (transformers: ViTImageProcessor().save_pretrained())");
  }
  const ConfigFile config(directory / kName);
  config.expect("do_resize", {true});
  config.expect("do_center_crop", {false});
  config.expect("do_pad", {false});
  config.expect("resample", {kNearest, kBilinear});
  config.expect("rescale_offset", {false});
  const bool of_efficientnet = config.has(kKind) && config.text(kKind).starts_with("EfficientNet");
  if (of_efficientnet && !config.has("resample"))
    config.refuse("has no \"resample\", which says how pictures are resized");
  check_side(config, side);
  PictureProcessor processor{.side = side,
                             .nearest = config.has("resample") && config.json().at("resample") == kNearest};
  if (config.flag("do_rescale", true)) {
    const double factor = config.number("rescale_factor", 1.0 / 255);
    if (!(factor > 0))
      config.refuse("has " + support::short_text(factor) + " for \"rescale_factor\", which is not above 0");
    processor.white = 1 / factor;
  } else {
    processor.white = 1;
  }
  processor.mean = channels(config, "image_mean");
  processor.deviation = channels(config, "image_std");
  if (!config.flag("do_normalize", true)) {
    processor.mean = {0, 0, 0};
    processor.deviation = {1, 1, 1};
  }
  if (config.flag("include_top", of_efficientnet)) {  // EfficientNet's processor divides by the deviation once more
    const auto again = channels(config, "image_std");
    for (size_t i = 0; i < again.size(); ++i) processor.deviation[i] *= again[i];
  }
  for (const double deviation : processor.deviation) {
    if (!(deviation > 0)) config.refuse("has a number in \"image_std\" that is not above 0");
  }
  return processor;
}

}  // namespace remat::pretrained
