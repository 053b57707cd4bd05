#include "pretrained/families.h"

namespace remat::pretrained {
namespace {

std::string name_of(Task task) {
  if (task == Task::kNextToken) return "next-token";
  return task == Task::kMaskedTokens ? "mlm" : "classify";
}

}  // namespace

void expect_task(const ConfigFile& config, const LoadOptions& options, std::initializer_list<Task> known) {
  std::string names;
  for (const Task task : known) {
    if (task == options.task) return;
    names += (names.empty() ? "" : " or ") + name_of(task);
  }
  config.refuse("describes a " + config.text("model_type") + ", which remat trains for the task " + names + ", not " +
                name_of(options.task));
}

const Family* find_family(std::string_view kind) {
  for (const auto families : {decoder_families(), encoder_families(), picture_families()}) {
    for (const Family& family : families) {
      if (family.kind == kind) return &family;
    }
  }
  return nullptr;
}

std::string list_families() {
  std::string names;
  for (const auto families : {decoder_families(), encoder_families(), picture_families()}) {
    for (const Family& family : families) names += (names.empty() ? "" : ", ") + std::string(family.kind);
  }
  return names;
}

}  // namespace remat::pretrained
