#include "cli/settings.h"

#include <remat/budget.h>

namespace remat::cli {

nlohmann::json decisive(const TrainSettings& settings) {
  const auto& model = settings.model;
  nlohmann::json json = {{"model", model.kind},  {"layers", model.layers},  {"width", model.width},
                         {"seq", model.seq},     {"batch", settings.batch}, {"lr", settings.lr},
                         {"seed", settings.seed}};
  if (model.kind == "gpt") {
    json["heads"] = model.heads;
    json["dropout"] = model.dropout;
  }
  return json;
}

std::string budget_text(const std::string& budget) {
  const auto parsed = Budget::parse(budget);
  return parsed.kind() == Budget::Kind::kDeviceLimit ? parsed.to_string() : budget;
}

int64_t tokens_per_step(const TrainSettings& settings) {
  return settings.batch * (settings.model.kind == "gpt" ? settings.model.seq : 1);
}

std::string differences(const nlohmann::json& theirs, const nlohmann::json& ours) {
  std::string text;
  const auto add = [&](const std::string& name, const nlohmann::json& their, const nlohmann::json& our) {
    text += (text.empty() ? "" : ", ") + name + " " + their.dump() + " (here " + our.dump() + ")";
  };
  for (const auto& [name, their] : theirs.items()) {
    if (!ours.contains(name)) {
      add(name, their, nullptr);
    } else if (ours.at(name) != their) {
      add(name, their, ours.at(name));
    }
  }
  for (const auto& [name, our] : ours.items()) {
    if (!theirs.contains(name)) add(name, nullptr, our);
  }
  return text;
}

}  // namespace remat::cli
