#include "pretrained/rotary_settings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

namespace remat::pretrained {
namespace {

constexpr double kUsualBase = 10000;

/// One object of settings, in a config.json.
class Settings {
 public:
  Settings(const ConfigFile& config, std::optional<ConfigFile> rope) : config_(config), rope_(std::move(rope)) {}

  bool has(const std::string& name) const { return rope_ && rope_->has(name); }
  double number(const std::string& name, double otherwise) const {
    return rope_ ? rope_->number(name, otherwise) : otherwise;
  }
  /// Older files have it beside the object.
  double number_in_either(const std::string& name, double otherwise) const {
    return number(name, config_.number(name, otherwise));
  }
  double needed(const std::string& name) const {
    if (!has(name)) config_.refuse("has no \"" + name + "\" for positions of type \"" + type() + "\"");
    return rope_->number(name, 0);
  }
  std::vector<double> numbers(const std::string& name) const {
    const auto refuse = [&] {
      config_.refuse("has no list of numbers \"" + name + "\" for positions of type \"" + type() + "\"");
    };
    if (!has(name) || !rope_->json().at(name).is_array()) refuse();
    std::vector<double> values;
    for (const auto& value : rope_->json().at(name)) {
      if (!value.is_number()) refuse();
      values.push_back(value.get<double>());
    }
    return values;
  }
  bool flag(const std::string& name, bool otherwise) const { return rope_ ? rope_->flag(name, otherwise) : otherwise; }
  std::string type() const {
    const char* const name = has("rope_type") ? "rope_type" : "type";
    return has(name) ? rope_->text(name) : "default";
  }
  /// What stands beside the object comes first, as in transformers.
  int64_t trained_seq() const {
    constexpr const char* kTrainedSeq = "original_max_position_embeddings";
    if (config_.has(kTrainedSeq)) return config_.count(kTrainedSeq);
    return has(kTrainedSeq) ? rope_->count(kTrainedSeq) : config_.count("max_position_embeddings");
  }
  /// By how much positions are stretched: said, or by the longest input.
  double factor() const {
    if (has("factor")) return number("factor", 1);
    return static_cast<double>(config_.count("max_position_embeddings")) / static_cast<double>(trained_seq());
  }
  /// Throws Error where there is a setting but those of all types, and `known`.
  void expect_only(std::initializer_list<std::string_view> known) const {
    if (!rope_) return;
    constexpr std::string_view kOfAll[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    for (const auto& [name, value] : rope_->json().items()) {
      const auto is = [&](const auto& names) { return std::ranges::find(names, name) != std::end(names); };
      if (value.is_null() || is(kOfAll) || is(known)) continue;
      config_.refuse("has " + value.dump() + " for \"" + name + "\", which positions of type \"" + type() +
                     "\" do not read");
    }
  }

 private:
  const ConfigFile& config_;
  std::optional<ConfigFile> rope_;
};

/// Peng et al. 2023, section 3.4.
double yarn_amplitude(const Settings& settings, double factor) {
  if (settings.has("attention_factor")) return settings.number("attention_factor", 1);
  const auto grown = [&](double by) { return factor <= 1 ? 1 : 0.1 * by * std::log(factor) + 1; };
  const double by = settings.number("mscale", 0), all = settings.number("mscale_all_dim", 0);
  return by != 0 && all != 0 ? grown(by) / grown(all) : grown(1);
}

double long_amplitude(const Settings& settings, double factor) {
  if (settings.has("attention_factor")) return settings.number("attention_factor", 1);
  if (factor <= 1) return 1;
  return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(settings.trained_seq())));
}

void describe_scaling(const ConfigFile& config, const Settings& settings, zoo::RotaryConfig& rotary) {
  const std::string type = settings.type();
  if (type == "default") {
    settings.expect_only({});
  } else if (type == "linear") {
    settings.expect_only({"factor"});
    rotary.scaling = zoo::LinearScaling{settings.needed("factor")};
  } else if (type == "dynamic") {
    settings.expect_only({"factor"});
    rotary.scaling = zoo::DynamicScaling{settings.needed("factor"), config.count("max_position_embeddings")};
  } else if (type == "llama3") {
    settings.expect_only({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    rotary.scaling = zoo::Llama3Scaling{.factor = settings.needed("factor"),
                                        .low_frequency = settings.needed("low_freq_factor"),
                                        .high_frequency = settings.needed("high_freq_factor"),
                                        .trained_seq = settings.trained_seq()};
  } else if (type == "yarn") {
    settings.expect_only({"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor",
                          "mscale", "mscale_all_dim", "truncate"});
    const zoo::YarnScaling usual;
    rotary.scaling = zoo::YarnScaling{.factor = settings.factor(),
                                      .trained_seq = settings.trained_seq(),
                                      .fast = settings.number("beta_fast", usual.fast),
                                      .slow = settings.number("beta_slow", usual.slow),
                                      .truncate = settings.flag("truncate", usual.truncate)};
    rotary.amplitude = yarn_amplitude(settings, settings.factor());
  } else if (type == "longrope" || type == "su") {
    settings.expect_only(
        {"factor", "original_max_position_embeddings", "short_factor", "long_factor", "attention_factor"});
    rotary.scaling = zoo::LongScaling{.short_factors = settings.numbers("short_factor"),
                                      .long_factors = settings.numbers("long_factor"),
                                      .trained_seq = settings.trained_seq()};
    rotary.amplitude = long_amplitude(settings, settings.factor());
  } else {
    config.refuse("has positions of type \"" + type +
                  "\"; there are default, linear, dynamic, llama3, yarn and longrope");
  }
}

std::optional<ConfigFile> find_object(const ConfigFile& config, const std::string& name) {
  return config.has(name) ? std::optional(config.object(name)) : std::nullopt;
}

zoo::RotaryConfig describe_settings(const ConfigFile& config, const Settings& settings, int64_t head_width,
                                    double usual_base) {
  const double share = settings.number_in_either("partial_rotary_factor", 1);
  if (!(share > 0 && share <= 1)) config.refuse("has a \"partial_rotary_factor\" that is not above 0 and up to 1");
  zoo::RotaryConfig rotary = {.width = static_cast<int64_t>(static_cast<double>(head_width) * share),
                              .base = settings.number("rope_theta", usual_base)};
  describe_scaling(config, settings, rotary);
  return rotary;
}

}  // namespace

zoo::RotaryConfig describe_rotary(const ConfigFile& config, int64_t head_width) {
  auto rope = find_object(config, "rope_scaling");
  if (!rope) rope = find_object(config, "rope_parameters");
  return describe_settings(config, Settings(config, std::move(rope)), head_width,
                           config.number("rope_theta", kUsualBase));
}

TwoRotaries describe_two_rotaries(const ConfigFile& config, int64_t head_width) {
  constexpr double kUsualLongBase = 1e6;
  const auto both = find_object(config, "rope_parameters");
  const auto of = [&](const char* name) { return both ? find_object(*both, name) : std::nullopt; };
  auto whole = of("full_attention");
  if (auto older = find_object(config, "rope_scaling")) {
    if (!older->has("rope_type") && older->has("type")) {
      config.refuse(
          "has a \"type\" in \"rope_scaling\", which some versions of transformers do not read here; call it " +
          std::string("\"rope_type\""));
    }
    whole = std::move(older);
  }
  if (both) {
    for (const auto& [name, value] : both->json().items()) {
      if (name == "full_attention" || name == "sliding_attention" || value.is_null()) continue;
      config.refuse("has " + value.dump() + " for \"" + name + "\" in \"rope_parameters\", and not for one of " +
                    "\"full_attention\" and \"sliding_attention\"");
    }
  }
  return {describe_settings(config, Settings(config, std::move(whole)), head_width,
                            config.number("rope_theta", kUsualLongBase)),
          describe_settings(config, Settings(config, of("sliding_attention")), head_width,
                            config.number("rope_local_base_freq", kUsualBase))};
}

}  // namespace remat::pretrained
