#include "cli/training_checkpoint.h"

#include <filesystem>

#include <remat/error.h>

namespace remat::cli {

nlohmann::json about_checkpoint(const TrainSettings& settings, int64_t step) {
  return {{"settings", decisive(settings)}, {"step", step}};
}

nlohmann::json about_checkpoint(const TrainSettings& settings, const TrainingData& data, const std::string& model,
                                int64_t step) {
  auto json = about_checkpoint(settings, step);
  if (!model.empty()) json["hf"] = {{"xxh3", model}};
  json["text"] = {{"bytes", data.bytes()}, {"xxh3", data.fingerprint()}};
  if (!data.labels().empty()) json["labels"] = data.labels().names;
  return json;
}

void check_continues(const nlohmann::json& theirs, const TrainSettings& settings) {
  auto their_settings = theirs.at("settings"), our_settings = decisive(settings);
  // Where the model's directory is told by its contents, it may have another name now.
  if (theirs.contains("hf") && our_settings.contains("hf")) our_settings["hf"] = their_settings.at("hf");
  const auto different = differences(their_settings, our_settings);
  if (different.empty()) return;
  throw Error("[checkpoint] '" + settings.checkpoint + "' is of another training: " + different +
              "; give the same options, or start anew without --resume");
}

void check_continues(const nlohmann::json& theirs, const TrainSettings& settings, const TrainingData& data,
                     const std::string& model) {
  check_continues(theirs, settings);
  const auto ours = about_checkpoint(settings, data, model, 0);
  if (theirs.contains("hf") && theirs.at("hf") != ours.at("hf")) {
    throw Error("[checkpoint] '" + settings.checkpoint + "' was trained from another model, that of " +
                theirs.at("settings").at("hf").dump() + " then; the files of '" + settings.model.directory +
                "' differ from those; give the directory as it was, or start anew without --resume");
  }
  if (theirs.at("text") != ours.at("text")) {
    throw Error("[checkpoint] '" + settings.checkpoint + "' was trained on another text (" +
                theirs.at("text").at("bytes").dump() + " bytes, '" + settings.data + "' has " +
                std::to_string(data.bytes()) + " or others); give the same --data");
  }
  if (const auto labels = ours.find("labels"); labels != ours.end() && theirs.value("labels", *labels) != *labels) {
    throw Error("[checkpoint] '" + settings.checkpoint + "' tells the labels " + theirs.at("labels").dump() +
                " apart, and these are " + labels->dump() +
                "; give the same labels in the same order, or start anew "
                "without --resume");
  }
}

std::string unused_checkpoint_path(std::optional<CheckpointLock>& lock) {
  for (int i = 1;; ++i) {
    std::string path = "remat-interrupted";
    if (i > 1) path.append("-").append(std::to_string(i));
    path += ".ckpt";
    try {
      lock.emplace(path);
    } catch (const Error&) {
      continue;
    }
    std::error_code unknown;  // it cannot be told: then it is written, and that says why it cannot
    if (!std::filesystem::exists(path, unknown)) return path;
  }
}

std::string how_to_resume(const TrainSettings& settings, const std::string& path) {
  auto command = settings.command_line;
  if (settings.checkpoint.empty()) command += " --checkpoint " + path;
  if (!settings.resume) command += " --resume";
  return command;
}

}  // namespace remat::cli
