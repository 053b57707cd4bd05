#include "cli/trainer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <remat/memory.h>
#include <remat/optimizer_in_backward.h>
#include <remat/session.h>

#include "cli/checkpoint_file.h"
#include "cli/data_parallel.h"
#include "cli/device.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/planning.h"
#include "cli/rank_parts.h"
#include "cli/train_model.h"
#include "zoo/model.h"

namespace remat::cli {
namespace {

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// While it lives, operators of this thread run in bfloat16 where autocast lets them.
class Autocast {
 public:
  explicit Autocast(bool on) : before_(at::autocast::is_autocast_enabled(kDevice)) {
    at::autocast::set_autocast_enabled(kDevice, on);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(kDevice, before_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool before_;
};

/// While it lives, dropout is off, and batch normalization takes its running statistics.
class EvaluationMode {
 public:
  explicit EvaluationMode(zoo::Model& model) : model_(model) { model_.eval(); }
  ~EvaluationMode() { model_.train(); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  zoo::Model& model_;
};

}  // namespace

struct Trainer::Impl {
  TrainSettings settings;
  const TrainingData& data;
  std::optional<RankPlace> place;
  const TrainingData* held_out;  ///< null: none
  std::shared_ptr<zoo::Model> model;
  std::unique_ptr<DataParallel> parallel;  ///< null: this process is alone
  std::unique_ptr<torch::optim::AdamW> optimizer;
  std::optional<OptimizerInBackward> updates;  ///< nothing: all parameters are updated after backward
  std::optional<Session> session;
  int64_t steps_done = 0;
  bool fingerprints = false;

  Impl(TrainSettings asked, const TrainingData& examples, std::optional<RankPlace> own, const TrainingData* judged_by)
      : settings(std::move(asked)), data(examples), place(std::move(own)), held_out(judged_by) {}

  // Of several processes each has its rows.
  int64_t rows() const { return place ? settings.batch / place->size : settings.batch; }

  Batch read_batch(int64_t step) const { return data.training_batch(step, place ? place->rank * rows() : 0, rows()); }

  /// Several processes all read their examples, or none goes on: the others would wait for it. Nothing where a signal
  /// was noted and `may_stop`.
  std::optional<Batch> read_together(const std::function<Batch()>& read, bool may_stop) const {
    if (!parallel) return may_stop && interrupted() != 0 ? std::nullopt : std::optional(read());
    std::optional<Batch> batch;
    std::string problem;
    try {
      batch = read();
    } catch (const Error& error) {
      problem = error.what();
    }
    const auto counts = parallel->sums({problem.empty() ? 0.0 : 1.0, may_stop && interrupted() != 0 ? 1.0 : 0.0});
    if (!problem.empty()) throw UnreadExamples(problem);
    if (counts[0] > 0) {
      throw UnreadExamples("[ranks] another process cannot read its examples; its own message says why");
    }
    return counts[1] > 0 ? std::nullopt : batch;
  }

  std::optional<Evaluation> evaluate() {
    const torch::NoGradGuard no_grad;
    const Autocast autocast(settings.precision == "bf16");
    if (parallel) parallel->broadcast_buffers();
    const EvaluationMode evaluation(*model);
    double loss = 0, right = 0, count = 0;
    const int64_t batches = held_out->evaluation_batches();
    const int64_t rank = place ? place->rank : 0, ranks = place ? place->size : 1;
    // All processes make as many passes, since shards are gathered in each: one without a batch repeats the last.
    for (int64_t first = 0; first < batches; first += ranks) {
      const bool own = first + rank < batches;
      const auto read = [&] { return held_out->evaluation_batch(own ? first + rank : batches - 1); };
      const auto batch = read_together(read, /*may_stop=*/true);
      if (!batch) return std::nullopt;
      for (const Batch& part : micro_batches(*batch)) {
        const auto logits = parallel ? parallel->run([&] { return forward(part.input); }) : forward(part.input);
        if (!own) continue;
        loss += loss_of(logits, part.target).item<double>() * static_cast<double>(part.target.size(0));
        count += static_cast<double>(part.target.size(0));
        if (!held_out->labels().empty()) right += (logits.argmax(-1) == part.target).sum().item<double>();
      }
    }
    std::vector<double> sums = {loss, right, count};
    if (parallel) sums = parallel->sums(sums);
    Evaluation result{.loss = sums[0] / sums[2], .accuracy = std::nullopt};
    if (!held_out->labels().empty()) result.accuracy = sums[1] / sums[2];
    return result;
  }

  at::Tensor forward(const at::Tensor& input) { return model->forward(input.contiguous()); }

  static at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& target) {
    return at::cross_entropy_loss(logits.flatten(0, -2), target.reshape({-1}));
  }

  // Its examples; the last one may have fewer.
  int64_t micro_batch(int64_t rows) const { return (rows + settings.accumulate - 1) / settings.accumulate; }

  std::vector<Batch> micro_batches(const Batch& batch) const {
    const int64_t rows = batch.target.size(0), each = micro_batch(rows);
    std::vector<Batch> parts;
    for (int64_t first = 0; first < rows; first += each) {
      const int64_t count = std::min(each, rows - first);
      parts.push_back({batch.input.narrow(0, first, count), batch.target.narrow(0, first, count)});
    }
    return parts;
  }

  void update_in_backward() {
    const int64_t each = micro_batch(rows());
    std::function<void(const at::Tensor&)> average;
    if (parallel) average = [this](const at::Tensor& leaf) { parallel->average_gradient(leaf); };
    updates.emplace(*optimizer, /*accumulate=*/(rows() + each - 1) / each, std::move(average));
  }

  // Forward and backward: gradients are there afterwards, but where updates come in backward. Each micro-batch is a
  // step of the session, and counts by its share of the examples, since the loss is a mean over them.
  float learn(const Batch& batch, StepResult& result) {
    const auto parts = micro_batches(batch);
    float loss = 0;
    for (const Batch& part : parts) {
      const double share = static_cast<double>(part.target.size(0)) / static_cast<double>(batch.target.size(0));
      loss += learn_from(part, share, /*last=*/&part == &parts.back(), result);
    }
    return parallel ? parallel->mean(loss) : loss;
  }

  float learn_from(const Batch& part, double share, bool last, StepResult& result) {
    const bool holds = session && session->budget_bytes();
    std::optional<Step> step;
    if (session) step.emplace(session->step());
    at::Tensor loss;
    {
      const Autocast autocast(settings.precision == "bf16");
      const auto pass = [&] { return loss_of(forward(part.input), part.target); };
      loss = parallel ? parallel->run(pass) : pass();
      if (share != 1) loss = loss * share;
    }
    loss.backward();
    if (parallel && last && !updates) parallel->average_gradients();
    const auto value = loss.item<float>();
    loss.reset();
    if (!step) return value;
    const StepReport& report = step->end();
    if (!result.report || report.peak_bytes >= result.report->peak_bytes) result.report = report;
    if (holds) result.budget_bytes = result.report->budget_bytes;
    return value;
  }

  // What the optimizer updates: what is not frozen.
  NamedTensors leaves() const { return parallel ? parallel->leaves() : trained_parameters(*model); }

  // Of all parameters, by the gradients that are there; frees those.
  void update() {
    if (settings.clip > 0 && parallel) parallel->clip_gradients(settings.clip);
    if (settings.clip > 0 && !parallel) torch::nn::utils::clip_grad_norm_(model->parameters(), settings.clip);
    optimizer->step();
    optimizer->zero_grad(/*set_to_none=*/true);
  }

  // The running mean and variance of BatchNorm, which a forward pass changes.
  std::vector<at::Tensor> copy_buffers() const {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& buffer : model->buffers()) copies.push_back(buffer.clone());
    return copies;
  }

  void restore_buffers(const std::vector<at::Tensor>& copies) {
    const torch::NoGradGuard no_grad;
    auto buffers = model->buffers();
    for (size_t i = 0; i < copies.size(); ++i) buffers[i].copy_(copies[i]);
  }

  bool is_between_steps() const { return updates && updates->is_between_steps(); }

  StepResult run_step() {
    StepResult result;
    result.step = steps_done + 1;
    const auto start = std::chrono::steady_clock::now();
    const auto generator = default_generator().get_state();
    const auto buffers = copy_buffers();
    memory::reset_peak();
    result.baseline_bytes = memory::current();
    for (auto& group : optimizer->param_groups()) group.options().set_lr(learning_rate(settings, result.step));
    try {
      const auto read = [&] { return read_batch(result.step); };
      result.loss = learn(*read_together(read, /*may_stop=*/false), result);
    } catch (...) {
      // As if the step had never begun: it can be tried again, or the state saved. But not where is_between_steps().
      if (parallel) parallel->reset();
      if (updates && !is_between_steps()) updates->reset();
      optimizer->zero_grad(/*set_to_none=*/true);
      default_generator().set_state(generator);
      restore_buffers(buffers);
      throw;
    }
    const double learned = seconds_since(start);
    const int64_t learned_peak = memory::peak();
    if (fingerprints && !updates) {
      for (const auto& [name, leaf] : leaves()) result.gradients.push_back(fingerprint(name, leaf.grad()));
    }
    const auto update_start = std::chrono::steady_clock::now();
    memory::reset_peak();
    update();
    ++steps_done;
    result.seconds = learned + seconds_since(update_start);
    result.peak_bytes = std::max(learned_peak, memory::peak());
    if (result.report) result.peak_bytes = std::max(result.peak_bytes, result.report->peak_bytes);
    if (fingerprints) {
      for (const auto& [name, leaf] : leaves()) result.parameters.push_back(fingerprint(name, leaf));
      for (const auto& item : model->named_buffers())
        result.parameters.push_back(fingerprint(item.key(), item.value()));
    }
    return result;
  }
};

Trainer::Trainer(const TrainSettings& settings, const TrainingData& data, std::optional<Budget> budget,
                 const std::optional<RankPlace>& place, const TrainingData* held_out)
    : impl_(std::make_unique<Impl>(settings, data, place, held_out)) {
  memory::start_accounting();  // before the first tensor: parameters count
  torch::manual_seed(settings.seed);
  const int64_t shards = place && settings.shard ? place->size : 1;
  check_model_fits(settings.model, budget.value_or(Budget()), memory::limit(), shards, data.labels());
  impl_->model = make_model(settings.model, data.labels());
  impl_->model->train();
  if (place) {
    auto same = decisive(settings);
    same.update({{"steps", settings.steps},
                 {"plain", settings.plain},
                 {"budget", settings.budget},
                 {"planner", settings.planner},
                 {"optimizer-in-backward", settings.optimizer_in_backward},
                 {"eval", held_out == nullptr ? "" : held_out->fingerprint()},
                 {"resume", settings.resume},
                 {"data", data.fingerprint()}});
    impl_->parallel = DataParallel::join(*impl_->model, *place, settings.shard, same);
    torch::manual_seed(settings.seed + static_cast<uint64_t>(place->rank));  // each drops others out
  }
  std::vector<at::Tensor> leaves;
  for (const auto& [name, leaf] : impl_->leaves()) leaves.push_back(leaf);
  impl_->optimizer = std::make_unique<torch::optim::AdamW>(
      leaves, torch::optim::AdamWOptions(settings.lr).weight_decay(settings.weight_decay));
  if (settings.optimizer_in_backward) impl_->update_in_backward();
  if (budget) {
    SessionOptions options{.budget = *budget, .planner = settings.planner};
    if (impl_->parallel) options.ranks = impl_->parallel->ranks();
    if (!settings.disk.empty()) options.disk = Disk::parse(settings.disk);
    if (!settings.plan.empty()) options.plan = read_plan(settings.plan);
    impl_->session.emplace(std::move(options));
  }
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;

StepResult Trainer::step() { return impl_->run_step(); }

void Trainer::record_fingerprints() { impl_->fingerprints = true; }
int64_t Trainer::steps_done() const { return impl_->steps_done; }
ParameterCount Trainer::parameter_count() const {
  return {.all = impl_->model->parameter_count(), .trained = impl_->model->trained_parameter_count()};
}
int64_t Trainer::current_bytes() const { return memory::current(); }

bool Trainer::is_between_steps() const { return impl_->is_between_steps(); }

std::optional<Evaluation> Trainer::evaluate() { return impl_->evaluate(); }

void Trainer::write(Output output, const std::string& path, const nlohmann::json& about) {
  const bool writes = !impl_->place || impl_->place->rank == 0;
  const auto& model = impl_->settings.model;
  const auto& labels = impl_->data.labels();
  switch (output) {
    case Output::kCheckpoint: {
      std::optional<CheckpointWriter> file;
      save([&](const void* bytes, size_t size) {
        if (!file) file.emplace(path, about);
        file->append(bytes, size);
      });
      if (file) file->commit();
      return;
    }
    case Output::kModel:
    case Output::kAdapter: {
      const auto save = [&] {
        if (!writes) return;
        (output == Output::kModel ? save_model : save_adapter)(model, labels, *impl_->model, path);
      };
      return impl_->parallel ? impl_->parallel->with_whole_model(save) : save();
    }
    case Output::kRun:
      if (writes) write_output(path, to_json(last_step()), "save-run");
      return;
    case Output::kPlan:
      if (writes) write_output(path, plan(), "save-plan");
      return;
  }
}

DataParallel* Trainer::parallel() const { return impl_->parallel.get(); }

std::string Trainer::plan() const {
  try {
    if (impl_->session) return to_json(impl_->session->plan());
  } catch (const Error&) {  // none was followed: said below
  }
  throw Error(
      "[save-plan] no step has followed a plan to its end: the first is recorded, and where the budget has no plan "
      "none is followed; give more --steps, a larger --budget or another --planner");
}

Run Trainer::last_step() const {
  const auto& session = impl_->session;
  if (!session || impl_->steps_done == 0) throw Error("[save-run] no step has run; give more --steps");
  Run run;
  run.name = model_text(impl_->settings.model) + ", budget " + budget_text(impl_->settings.budget);
  run.graph = session->graph();
  run.layers = session->layers(impl_->model->named_parameters().pairs());
  run.report = session->report();
  if (!run.report->completed || run.report->planned_peak_bytes == 0) return run;
  run.plan = session->plan();
  if (!run.plan->is_valid(run.graph)) run.plan.reset();  // that of a step of other sizes
  return run;
}

void Trainer::save(const WriteBytes& write) const {
  DataParallel* const parallel = impl_->parallel.get();
  if (parallel == nullptr) return save_state(*impl_->model, *impl_->optimizer, impl_->steps_done, write);
  const auto save_own = [&](const WriteBytes& own) { parallel->save_own(*impl_->optimizer, impl_->steps_done, own); };
  write_parts(*parallel, save_own, write);
}

void Trainer::load(const StatePart& all) {
  DataParallel* const parallel = impl_->parallel.get();
  impl_->steps_done = parallel == nullptr ? load_state(*impl_->model, *impl_->optimizer, all)
                                          : parallel->load_own(*impl_->optimizer, find_parts(all, parallel->size()));
  check_finite(impl_->leaves(), impl_->settings.checkpoint);
}

}  // namespace remat::cli
