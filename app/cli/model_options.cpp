#include "cli/model_options.h"

#include <vector>

#include "cli/recording.h"
#include "cli/settings.h"
#include "cli/wrong_usage.h"

namespace remat::cli {

void add_model(OptionAdder& add, std::string& model, const std::string& text) {
  std::vector<std::string> names;
  std::string help = text;
  for (const RecordableModel& one : recordable_models()) {
    names.push_back(one.name);
    help += "\n" + one.name + ": " + one.description;
  }
  add.word("MODEL", model, help)->check(one_of(names));
}

void check_head(const std::string& model, const std::string& head) {
  if (head != kHeadTiles) return;
  std::string with_head;
  for (const RecordableModel& one : recordable_models()) {
    if (!one.ends_in_head) continue;
    if (one.name == model) return;
    with_head += (with_head.empty() ? "" : ", ") + one.name;
  }
  throw UsageError("[options] --head tiles is for models that predict words (" + with_head + "), and " + model +
                   " is none; leave it out");
}

void add_size(CLI::App& app, const std::string& name, int64_t& value, const std::string& text) {
  app.add_option(name, value, text)->transform(range(int64_t{1}, kMostBatch))->type_name("N")->group("Sizes");
}

}  // namespace remat::cli
