#include "cli/trainer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <remat/memory.h>
#include <remat/session.h>

#include "cli/checkpoint_file.h"
#include "cli/data_parallel.h"
#include "cli/device.h"
#include "cli/head_loss.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/parameter_updates.h"
#include "cli/planning.h"
#include "cli/rank_agreement.h"
#include "cli/rank_parts.h"
#include "cli/train_model.h"
#include "zoo/model.h"

namespace remat::cli {
namespace {

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
  RankGroup* ranks;              ///< null: this process is alone
  const TrainingData* held_out;  ///< null: none
  std::shared_ptr<zoo::Model> model;
  std::unique_ptr<DataParallel> parallel;  ///< null too
  std::optional<ParameterUpdates> updates;
  std::optional<Session> session;
  HeadLoss loss;
  int64_t steps_done = 0;
  bool fingerprints;

  Impl(const TrainingTask& task, RankGroup* group)
      : settings(task.settings),
        data(task.data),
        ranks(group),
        held_out(task.held_out),
        loss(task.budget ? task.settings.head : kHeadWhole, group == nullptr && HeadLoss::may_compare(task.budget)),
        fingerprints(task.fingerprints) {}

  int rank() const { return ranks == nullptr ? 0 : ranks->rank(); }
  int size() const { return ranks == nullptr ? 1 : ranks->size(); }
  int stop_signal() const { return ranks == nullptr ? interrupted() : ranks->stop_signal(); }

  /// What fails on one rank, before it takes part in a collective, fails on all.
  void together(const std::string& doing, const std::function<void()>& work) const {
    ranks == nullptr ? work() : ranks->together(doing, work);
  }

  /// Does `work`, in which ranks wait for each other.
  template <class F>
  auto with_all(const F& work) {
    if (ranks == nullptr) return work();
    ranks->set_apart(true);
    auto result = work();
    ranks->set_apart(false);
    return result;
  }

  // Of several ranks each has its rows.
  int64_t rows() const { return settings.batch / size(); }

  Batch read_batch(int64_t step) const { return data.training_batch(step, rank() * rows(), rows()); }

  std::optional<Evaluation> evaluate() {
    const torch::NoGradGuard no_grad;
    const Autocast autocast(settings.precision == "bf16");
    if (parallel) parallel->broadcast_buffers();
    const EvaluationMode evaluation(*model);
    double sum = 0, right = 0, count = 0;
    const int64_t batches = held_out->evaluation_batches();
    // All ranks make as many passes, since shards are gathered in each: one that has no other repeats the last.
    for (int64_t first = 0; first < batches; first += size()) {
      const bool own = first + rank() < batches;
      Batch batch;
      together("read its examples", [&] { batch = held_out->evaluation_batch(own ? first + rank() : batches - 1); });
      if (stop_signal() != 0) return std::nullopt;
      const auto parts = micro_batches(batch);
      const size_t passes = ranks == nullptr ? parts.size() : ranks->most(parts.size());
      for (size_t pass = 0; pass < passes; ++pass) {
        const Batch& part = parts[std::min(pass, parts.size() - 1)];
        at::Tensor labels;
        const auto run = [&] {
          // By a copy, so that loss.choice() stays the step's.
          if (held_out->labels().empty()) return HeadLoss(loss)(*model, part.input.contiguous(), part.target);
          const at::Tensor logits = model->forward(part.input.contiguous());
          labels = logits.argmax(-1);
          return at::cross_entropy_loss(logits, part.target);
        };
        const at::Tensor value = parallel ? parallel->run(run) : run();
        if (!own || pass >= parts.size()) continue;
        sum += value.item<double>() * predictions(part);
        count += predictions(part);
        if (labels.defined()) right += (labels == part.target).sum().item<double>();
      }
    }
    const std::vector<double> own_sums = {sum, right, count},
                              sums = ranks == nullptr ? own_sums : ranks->sums(own_sums);
    Evaluation result{.loss = sums[0] / sums[2], .accuracy = std::nullopt};
    if (!held_out->labels().empty()) result.accuracy = sums[1] / sums[2];
    return result;
  }

  static double predictions(const Batch& batch) { return (batch.target != kNoTarget).sum().item<double>(); }

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
    updates->begin_in_backward(/*accumulate=*/(rows() + each - 1) / each, std::move(average));
  }

  // Forward and backward: gradients are there afterwards, but where updates come in backward. Each micro-batch is a
  // step of the session, and counts by its share of the predictions, since the loss is a mean over them.
  float learn(const Batch& batch, StepResult& result) {
    const auto parts = micro_batches(batch);
    float sum = 0;
    for (const Batch& part : parts) {
      sum += learn_from(part, predictions(part) / predictions(batch) * batch.weight, &part == &parts.back(), result);
    }
    return sum;
  }

  float learn_from(const Batch& part, double share, bool last, StepResult& result) {
    const bool holds = session && session->budget_bytes();
    std::optional<Step> step;
    if (session) step.emplace(session->step());
    at::Tensor mean;
    {
      const Autocast autocast(settings.precision == "bf16");
      const auto pass = [&] { return loss(*model, part.input.contiguous(), part.target); };
      mean = parallel ? parallel->run(pass) : pass();
      if (share != 1) mean = mean * share;
    }
    mean.backward();
    if (parallel && last && !updates->are_in_backward()) parallel->average_gradients();
    const auto value = mean.item<float>();
    mean.reset();
    result.head = loss.choice();
    if (!step) return value;
    const StepReport& report = step->end();
    loss.note(report, *session);
    if (!result.report || report.peak_bytes >= result.report->peak_bytes) result.report = report;
    if (holds) result.budget_bytes = result.report->budget_bytes;
    return value;
  }

  // What the optimizer updates: what is not frozen.
  NamedTensors leaves() const { return parallel ? parallel->leaves() : trained_parameters(*model); }

  // Of all parameters, by the gradients that are there; frees those.
  void update() {
    if (settings.clip > 0) parallel ? parallel->clip_gradients(settings.clip) : updates->clip(settings.clip);
    updates->step();
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

  StepResult run_step() {
    StepResult result;
    result.step = steps_done + 1;
    const auto start = std::chrono::steady_clock::now();
    const auto generator = default_generator().get_state();
    const auto buffers = copy_buffers();
    memory::reset_peak();
    result.baseline_bytes = memory::current();
    updates->set_learning_rate(learning_rate(settings, result.step));
    try {
      Batch batch;
      together("read its examples", [&] { batch = read_batch(result.step); });
      result.loss = learn(batch, result);
    } catch (...) {
      // As if the step had never begun: it can be tried again, or the state saved. But not between steps.
      if (parallel) parallel->reset();
      updates->give_up_step();
      default_generator().set_state(generator);
      restore_buffers(buffers);
      throw;
    }
    const double learned = seconds_since(start);
    const int64_t learned_peak = memory::peak();
    if (fingerprints && !updates->are_in_backward()) {
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

Trainer::Trainer(const TrainingTask& task, RankGroup* ranks) : impl_(std::make_unique<Impl>(task, ranks)) {
  const TrainSettings& settings = task.settings;
  const data::Labels& labels = task.data.labels();
  memory::start_accounting();  // before the first tensor: parameters count
  torch::manual_seed(settings.seed);
  SessionOptions options{.planner = settings.planner};
  impl_->together("begin", [&] {
    check_model_fits(settings, task.budget.value_or(Budget()), memory::limit(), settings.shard ? impl_->size() : 1,
                     labels);
    impl_->model = make_model(settings.model, labels);
    if (task.budget && !settings.plan.empty()) options.plan = read_plan(settings.plan);
  });
  impl_->model->train();
  if (ranks != nullptr) {
    const std::string held_out = task.held_out == nullptr ? "" : task.held_out->fingerprint();
    check_same_training(*ranks, settings, task.data.fingerprint(), held_out);
    impl_->parallel = DataParallel::make(*impl_->model, *ranks, settings.shard);
    torch::manual_seed(settings.seed + static_cast<uint64_t>(ranks->rank()));  // each drops others out
  }
  std::vector<at::Tensor> leaves;
  for (const auto& [name, leaf] : impl_->leaves()) leaves.push_back(leaf);
  impl_->together("begin", [&] { impl_->updates.emplace(std::move(leaves), settings); });
  if (settings.optimizer_in_backward) impl_->update_in_backward();
  if (task.budget) {
    options.budget = *task.budget;
    if (ranks != nullptr) options.ranks = ranks->session_ranks();
    impl_->together("begin", [&] {
      options.disk = disk_of(settings.disk);
      impl_->session.emplace(std::move(options));
    });
  }
  if (task.checkpoint != nullptr) load(payload_of(*task.checkpoint));
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;

StepResult Trainer::step() {
  return impl_->with_all([&] {
    try {
      auto result = impl_->run_step();
      return impl_->ranks == nullptr ? result : joined_result(*impl_->ranks, std::move(result));
    } catch (const BudgetError&) {  // of all ranks: their sessions agree
      if (impl_->ranks == nullptr) throw;
      throw_largest_refusal(*impl_->ranks, /*sound=*/!impl_->updates->is_between_steps());
    }
  });
}

int64_t Trainer::steps_done() const { return impl_->steps_done; }
ParameterCount Trainer::parameter_count() const {
  return {.all = impl_->model->parameter_count(), .trained = impl_->model->trained_parameter_count()};
}
int64_t Trainer::current_bytes() const { return memory::current(); }

bool Trainer::is_between_steps() const {
  return impl_->updates->is_between_steps() || (impl_->ranks != nullptr && impl_->ranks->is_apart());
}
int Trainer::stop_signal() const { return impl_->stop_signal(); }
std::optional<PagingReport> Trainer::paging() const { return impl_->updates->paging(); }
std::optional<PagingReport> Trainer::gradient_paging() const { return impl_->updates->gradient_paging(); }

std::optional<Evaluation> Trainer::evaluate() {
  return impl_->with_all([&] { return impl_->evaluate(); });
}

void Trainer::write(Output output, const std::string& path, const nlohmann::json& about) {
  const bool writes = impl_->rank() == 0;
  const auto& model = impl_->settings.model;
  const auto& labels = impl_->data.labels();
  switch (output) {
    case Output::kCheckpoint:
      impl_->with_all([&] {
        std::optional<CheckpointWriter> file;
        impl_->together("save its state", [&] {
          save([&](const void* bytes, size_t size) {
            if (!file) file.emplace(path, about);
            file->append(bytes, size);
          });
        });
        impl_->together("save the training", [&] {
          if (file) file->commit();
        });
        return true;
      });
      return;
    case Output::kModel:
    case Output::kAdapter: {
      const auto save = [&] {
        if (writes) (output == Output::kModel ? save_model : save_adapter)(model, labels, *impl_->model, path);
      };
      if (!impl_->parallel) return save();
      impl_->with_all([&] {
        impl_->parallel->with_whole_model([&] { impl_->together("save the model", save); });
        return true;
      });
      return;
    }
    case Output::kRun:
      if (writes) write_output(path, to_json(last_step()), "save-run");
      return;
    case Output::kPlan:
      if (writes) write_output(path, plan(), "save-plan");
      return;
  }
}

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
  if (parallel == nullptr) return save_state(*impl_->model, impl_->updates->optimizer(), impl_->steps_done, write);
  const auto save_own = [&](const WriteBytes& own) {
    parallel->save_own(impl_->updates->optimizer(), impl_->steps_done, own);
  };
  write_parts(*impl_->ranks, save_own, write);
}

void Trainer::load(const StatePart& all) {
  DataParallel* const parallel = impl_->parallel.get();
  impl_->steps_done = parallel == nullptr
                          ? load_state(*impl_->model, impl_->updates->optimizer(), all)
                          : parallel->load_own(impl_->updates->optimizer(), find_parts(all, impl_->size()));
  check_finite(impl_->leaves(), impl_->settings.checkpoint);
}

}  // namespace remat::cli
