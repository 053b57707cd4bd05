#include "cli/model_options.h"

#include <vector>

#include "cli/recording.h"
#include "cli/settings.h"

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

void add_size(CLI::App& app, const std::string& name, int64_t& value, const std::string& text) {
  app.add_option(name, value, text)->transform(range(int64_t{1}, kMostBatch))->type_name("N")->group("Sizes");
}

}  // namespace remat::cli
