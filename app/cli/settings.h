// cli/settings.h -- what the user asked for, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <remat/disk.h>

#include "data/labelled_text.h"

namespace remat::cli {

// The most that a training may ask for: far beyond what trains on one machine, and small enough that every product of
// them is a number.
constexpr int64_t kMostLayers = 100'000;
constexpr int64_t kMostWidth = 65'536;  // and heads
constexpr int64_t kMostSeq = 1 << 20;
constexpr int64_t kMostBatch = 1 << 20;
constexpr int64_t kMostRanks = 1024;

constexpr int64_t kMostImageSize = 4096;

constexpr double kUsualDropout = 0.1;

constexpr int64_t kPictureSide = 32;      // of CIFAR's pictures
constexpr int64_t kUsualImageSize = 224;  // where pictures are in folders

// Tasks.
constexpr const char* kNextToken = "next-token";
constexpr const char* kClassify = "classify";
constexpr const char* kMaskedTokens = "mlm";
constexpr const char* kReinforce = "rl";

// Of --head: how the loss of a language model is made, with the same bits. See cli/head_loss.h.
constexpr const char* kHeadAuto = "auto";    // in tiles where logits are larger than 16 MiB
constexpr const char* kHeadTiles = "tiles";  // wherever there are tiles with the bits of the whole
constexpr const char* kHeadWhole = "whole";  // as without remat

/// Low-rank factors that are trained in place of the model's weights.
struct LoraSettings {
  int64_t rank = 0;                            ///< 0: none, all weights are trained
  std::optional<double> alpha = std::nullopt;  ///< their product counts alpha / rank times; nothing: once
  std::string targets = {};  ///< patterns of layers with a comma between; empty: attention's queries and values
};

struct ModelSettings {
  std::string task = kNextToken;  ///< or one of the others above
  /// "gpt" or "mlp"; to classify pictures "resnet18", "resnet20", "resnet50", "resnet56", "efficientnet" or "vit"; to
  /// play "dqn".
  std::string kind = "gpt";
  std::string directory = {};  ///< of Hugging Face's form: the model, its weights and its tokenizer; empty: none
  int64_t layers = 8;
  int64_t width = 512;
  int64_t heads = 8;  ///< gpt and vit only
  int64_t seq = 128;  ///< bytes of context: the sequence of the GPT, the window of the MLP
  /// Pixels on each side of what a model for pictures sees, but one of a directory; 0: kPictureSide, and smaller
  /// pictures get a black frame.
  int64_t image_size = 0;
  std::optional<double> dropout =
      std::nullopt;  ///< nothing: kUsualDropout, or what the directory says; gpt, vit and directories only
  LoraSettings lora = {};
  std::string page_weights = {};  ///< a directory for a file with the weights that factors stand beside; empty: memory
};

struct TrainSettings {
  ModelSettings model;
  std::string game = "cart-pole";  ///< to learn, of zoo::list_games(); kReinforce only
  std::string data;
  data::Columns columns;  ///< of the data, where it is classified
  std::string held_out;   ///< a file to be judged by before and after; empty: none
  std::string budget = "device";
  std::string planner = "auto";  ///< or "online", or another of list_planners()
  std::string disk;              ///< that values may move to, "100GiB:/scratch"; empty: none
  std::string page_optimizer;    ///< where the optimizer's state is, "/scratch" or "20GiB:/scratch"; empty: in memory
  std::string page_gradients;    ///< where gradients wait for the update, in the same form; empty: in memory
  bool plain = false;            ///< without remat
  std::string plan;              ///< a file with a plan to follow; empty: none
  std::string save_plan;         ///< where to write the plan that the last step followed; empty: nowhere
  std::string save_run;          ///< where to write the last step for `remat report`; empty: nowhere

  int64_t ranks = 1;   ///< processes
  bool shard = false;  ///< each holds its part of parameters, gradients and optimizer state

  int64_t steps = 100;
  int64_t batch = 8;                   ///< of all processes together
  int64_t accumulate = 1;              ///< micro-batches that it is split into, whose gradients are added up
  bool optimizer_in_backward = false;  ///< each parameter is updated as soon as its gradient is complete
  std::string precision = "float32";   ///< or "bf16": forward passes run under autocast
  std::string head = kHeadAuto;        ///< or another of those above
  double lr = 1e-3;                    ///< the highest
  int64_t warmup = 0;                  ///< steps in which the learning rate rises to it
  std::string schedule = "constant";   ///< what follows; or "cosine": falls to almost 0
  double weight_decay = 0.01;
  double clip = 0;  ///< the largest norm of all gradients together; 0: any
  uint64_t seed = 0;

  std::string checkpoint;        ///< empty: none
  int64_t checkpoint_every = 0;  ///< steps; 0: only at the end
  bool resume = false;
  std::string save_model;    ///< a directory for the trained model; empty: none
  std::string save_adapter;  ///< a directory for LoRA's factors; empty: none
  std::string json;          ///< empty: none

  std::string command_line;  ///< as typed, to say how to resume
};

struct RecordSettings {
  std::string model;     ///< a task of the zoo
  std::string out;       ///< the file for the graph
  std::string save_run;  ///< where to write the step with its layers for `remat report`; empty: nowhere
  std::string budget = "device";
  std::string head = kHeadWhole;  ///< or another of those above
  int64_t steps = 3;
  int64_t batch = 0;  ///< 0: the task's usual one
};

struct FitSettings {
  std::string model;  ///< a task of the zoo
  std::string along = "batch";
  std::string budget = "device";                        ///< a share is of plain's activation peak at the usual size
  std::string head = kHeadWhole;                        ///< or another of those above
  int64_t batch = 0, length = 0, depth = 0, width = 0;  ///< 0: the task's usual one
  int64_t most = 0;                                     ///< the largest size to consider; 0: 256 times the usual
  int64_t effective = 0;                                ///< 0: none
  double most_loss = 15;                                ///< in percent
  bool predict = false;
  std::string disk;  ///< that values may move to, "100GiB:/scratch"; empty: none
  std::string json;  ///< empty: none
};

/// What was asked for as "1,2,4", as typed; sweep_lists() reads it.
struct SweepSettings {
  std::string model;  ///< a task of the zoo
  std::string budgets = "90%,80%,70%,60%,50%,40%,30%,20%,10%";
  std::string planners = "all";
  std::string checkpoints;                              ///< empty: 1,2,4, ... as many as there are places for
  std::string depths;                                   ///< empty: none
  std::string head = kHeadWhole;                        ///< or another of those above
  int64_t batch = 0, length = 0, depth = 0, width = 0;  ///< 0: the task's usual one
  bool measure = false;
  int64_t rounds = 5;  ///< pairs of steps, plain and planned, for each measurement
  std::string disk;    ///< that values may move to, "100GiB:/scratch"; empty: none
  std::string out;     ///< a directory; empty: none
};

struct PlanSettings {
  std::string graph;   ///< the file to read
  std::string budget;  ///< empty: not given
  std::string planner = "auto";
  bool pack = true;
  bool refine = false;
  bool all = false;   ///< every planner
  std::string out;    ///< files to write; empty: none
  std::string curve;  ///< its extension decides the format
  std::string json;
};

struct ReportSettings {
  std::string run;               ///< the file to read: a run or a graph
  std::string budget;            ///< empty: not given
  std::string plan;              ///< a file with another plan; empty: none
  std::string html, svg, trace;  ///< files to write; empty: none
  bool layers = false;           ///< whether to print what became of each layer's values
};

/// The settings that decide the loss of every step: two runs that agree here and in their text give the same bits,
/// whatever their budgets.
nlohmann::json decisive(const TrainSettings& settings);

/// That of step `step`, from 1.
double learning_rate(const TrainSettings& settings, int64_t step);

/// "40%", "1500MB", as typed; "device limit".
std::string budget_text(const std::string& budget);

/// "gpt: 8 layers of width 512", or the directory that the model is read from.
std::string model_text(const ModelSettings& settings);

/// Has the model the layers and the width that are asked for? Convolutional networks and those that play have their
/// own.
inline bool has_layers(const ModelSettings& settings) {
  return !settings.kind.starts_with("resnet") && settings.kind != "efficientnet" && settings.kind != "dqn";
}

/// Pixels on each side of what a model for pictures sees, but one of a directory.
inline int64_t picture_side(const ModelSettings& settings) {
  return settings.image_size == 0 ? kPictureSide : settings.image_size;
}

/// Those of a patch of a "vit".
inline int64_t patch_side(const ModelSettings& settings) { return picture_side(settings) < 64 ? 4 : 16; }

/// Are pictures to be classified, not texts, and not by a model of a directory?
inline bool learns_pictures(const TrainSettings& settings) {
  return settings.model.task == kClassify && settings.model.directory.empty();
}

/// Does the model predict the token after every position, or the one after its window?
inline bool predicts_every_token(const ModelSettings& settings) {
  return !settings.directory.empty() || settings.kind == "gpt";
}

/// Whether the examples in the file at `path` are conversations, of which answers are learned, not one text.
bool learns_conversations(const ModelSettings& settings, const std::string& path);

/// What one step trains on: tokens, the examples of a classification, whose lengths differ, conversations, or
/// transitions of a game.
int64_t items_per_step(const TrainSettings& settings);
/// "tokens", "examples", "transitions".
std::string item_name(const TrainSettings& settings);

/// Of TrainSettings::page_optimizer and page_gradients. Throws Error for bytes that are none.
Disk place_of_state(const std::string& text);

/// Of --disk: nothing where `text` is empty.
inline std::optional<Disk> disk_of(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(Disk::parse(text));
}

/// "layers 4 (here 8), clip left out (here 1.0)": how `theirs` differs from `ours`, empty where it does not.
std::string differences(const nlohmann::json& theirs, const nlohmann::json& ours);

}  // namespace remat::cli
