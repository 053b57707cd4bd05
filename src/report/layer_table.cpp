// The step as a table for terminals: its layers as a tree, equal ones folded into one row.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/run.h>
#include <remat/timeline.h>

#include <remat/support/number_text.h>
#include <remat/support/table_text.h>
#include "plan/candidates.h"
#include "report/costs.h"

namespace remat {
namespace {

/// Bytes of saved values, by what became of them, and what it took to bring them back.
struct Sums {
  int64_t saved = 0, kept = 0, packed = 0, held = 0, moved = 0, recomputed = 0, replays = 0;
  double seconds = 0;

  Sums& operator+=(const Sums& other) {
    for (const auto field :
         {&Sums::saved, &Sums::kept, &Sums::packed, &Sums::held, &Sums::moved, &Sums::recomputed, &Sums::replays}) {
      this->*field += other.*field;
    }
    seconds += other.seconds;
    return *this;
  }
};

struct ByteColumn {
  const char* name;
  int64_t Sums::*bytes;
  bool always;  ///< shown also where all of it is 0
};

constexpr std::array<ByteColumn, 6> kByteColumns = {{{"saved in plain", &Sums::saved, true},
                                                     {"kept", &Sums::kept, true},
                                                     {"packed", &Sums::packed, false},
                                                     {"held packed in", &Sums::held, false},
                                                     {"moved", &Sums::moved, false},
                                                     {"recomputed", &Sums::recomputed, true}}};

/// A layer, or several equal ones: then with the sums of all.
struct Layer {
  std::string name = {};  ///< a component of the path
  Sums sums = {};         ///< with those of the layers inside
  bool direct = false;    ///< whether a value is in no layer inside
  bool is_list = false;   ///< see is_list()
  int64_t count = 1;
  std::vector<Layer> inside = {};
  /// Of those that are in no layer inside: what made each, and its bytes.
  std::vector<std::pair<std::string_view, int64_t>> own = {};
};

/// "block12" is "block" and 12; nothing where there is no number at the end, or one that begins with a zero.
std::optional<std::pair<std::string, int64_t>> numbered(const std::string& name) {
  const size_t stem = name.find_last_not_of("0123456789") + 1;
  int64_t number = 0;
  const char* const end = name.data() + name.size();
  if (std::from_chars(name.data() + stem, end, number).ec != std::errc()) return std::nullopt;
  if (std::to_string(number).size() != name.size() - stem) return std::nullopt;
  return std::pair(name.substr(0, stem), number);
}

/// "0-2,5": numbers in ascending order. Long lists are cut in the middle.
std::string ranges_text(const std::vector<int64_t>& numbers) {
  std::vector<std::string> ranges;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    ranges.push_back(std::to_string(numbers[begin]));
    if (end - begin > 1) ranges.back() += '-' + std::to_string(numbers[end - 1]);
    begin = end;
  }
  constexpr size_t kShown = 6;
  if (ranges.size() > kShown) {
    ranges[kShown - 2] = "..";
    ranges.erase(ranges.begin() + kShown - 1, ranges.end() - 1);
  }
  std::string text;
  for (const std::string& range : ranges) text += (text.empty() ? "" : ",") + range;
  return text;
}

/// Whether the same operators save as many bytes in plain, in the same order, and so in the layers inside. A plan may
/// treat them differently.
bool equal(const Layer& a, const Layer& b) {
  return a.own == b.own && std::ranges::equal(a.inside, b.inside, [](const Layer& x, const Layer& y) {
           return x.name == y.name && x.count == y.count && equal(x, y);
         });
}

void add(Layer& to, const Layer& other) {
  to.sums += other.sums;
  for (size_t i = 0; i < to.inside.size(); ++i) add(to.inside[i], other.inside[i]);
}

/// One row for the layers among `siblings` that are equal and whose names are so but for the number at their end.
std::vector<Layer> without_copies(std::vector<Layer> siblings) {
  struct Group {
    Layer one, all;
    std::string stem;
    std::vector<int64_t> numbers;  ///< none where the name has no number
  };
  std::vector<Group> groups;
  for (Layer& layer : siblings) {
    const auto name = numbered(layer.name);
    const auto same = std::ranges::find_if(groups, [&](const Group& group) {
      return name && !group.numbers.empty() && group.stem == name->first && equal(group.one, layer);
    });
    if (same == groups.end()) {
      groups.push_back({.one = layer, .all = layer, .stem = name ? name->first : "", .numbers = {}});
      if (name) groups.back().numbers.push_back(name->second);
    } else {
      add(same->all, layer);
      same->numbers.push_back(name->second);
    }
  }
  std::vector<Layer> folded;
  for (Group& group : groups) {
    if (group.numbers.size() > 1) {
      std::ranges::sort(group.numbers);
      group.all.name = group.stem + ranges_text(group.numbers);
      group.all.count = static_cast<int64_t>(group.numbers.size());
    }
    folded.push_back(std::move(group.all));
  }
  return folded;
}

/// Whether it has only numbered layers, as "blocks" with "blocks.0", "blocks.1".
bool is_list(const Layer& layer) {
  return !layer.direct && std::ranges::all_of(layer.inside, [](const Layer& inside) {
    const auto name = numbered(inside.name);
    return name && name->first.empty();
  });
}

/// Equal layers in one row, at every depth. A list's row, and that of a layer with one layer inside and nothing else,
/// gives way to what is inside: "blocks.0-11".
std::vector<Layer> folded(std::vector<Layer> layers) {
  for (Layer& layer : layers) {
    layer.is_list = is_list(layer);
    layer.inside = folded(std::move(layer.inside));
  }
  std::vector<Layer> rows;
  for (Layer& layer : without_copies(std::move(layers))) {
    const auto name = numbered(layer.name);
    const bool only_a_number = name && name->first.empty();
    const bool shown =
        layer.count > 1 || only_a_number || (!layer.is_list && (layer.direct || layer.inside.size() != 1));
    if (shown) {
      rows.push_back(std::move(layer));
      continue;
    }
    for (Layer& inside : layer.inside) {
      inside.name = layer.name + '.' + inside.name;
      rows.push_back(std::move(inside));
    }
  }
  return rows;
}

Layer tree_of(const Run& run) {
  const Graph& graph = run.graph;
  const std::vector<Action> actions = run.plan ? run.plan->actions : std::vector(graph.values.size(), Action::kKeep);
  const PlanCosts costs = plan_costs(graph, make_timeline(graph, actions, run.plan ? run.plan->budget_bytes : 0));
  const std::vector<bool> saved = planners::saved_values(graph);
  Layer root;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue& value = graph.values[v];
    if (value.producer < 0 || (!saved[v] && !value.dropped)) continue;
    Sums sums{.saved = value.bytes, .replays = costs.of_value[v].replays, .seconds = costs.of_value[v].seconds};
    const Fate fate = fate_of(value, actions[v]);
    (fate == Fate::kKept     ? sums.kept
     : fate == Fate::kPacked ? sums.packed
     : fate == Fate::kMoved  ? sums.moved
                             : sums.recomputed) = value.bytes;
    if (fate == Fate::kPacked) sums.held = value.packed_bytes;
    root.sums += sums;
    Layer* layer = &root;
    std::string_view path = run.layers[value.producer];
    if (path.empty()) path = "(no layer)";
    while (!path.empty()) {
      const std::string_view name = path.substr(0, path.find('.'));
      path.remove_prefix(std::min(path.size(), name.size() + 1));
      auto found = std::ranges::find(layer->inside, name, &Layer::name);
      if (found == layer->inside.end()) found = layer->inside.insert(found, Layer{.name = std::string(name)});
      layer = &*found;
      layer->sums += sums;
    }
    layer->direct = true;
    layer->own.emplace_back(graph.operators[static_cast<size_t>(value.producer)].name, value.bytes);
  }
  return root;
}

class LayerTable {
 public:
  LayerTable(const Sums& all, bool planned) : all_(all), planned_(planned) {
    std::vector<std::string> names = {"layer"};
    for (const ByteColumn& column : kByteColumns) {
      if (shows(column)) names.emplace_back(column.name);
    }
    if (planned_) names.insert(names.end(), {"run again", "planned time"});
    rows_.push_back(std::move(names));
  }

  void add(const Layer& layer, size_t depth) {
    const std::string copies = layer.count > 1 ? " x " + std::to_string(layer.count) : "";
    add(std::string(2 * depth, ' ') + layer.name + copies, layer.sums);
    for (const Layer& inside : layer.inside) add(inside, depth + 1);
  }
  void add(std::string name, const Sums& sums) {
    std::vector<std::string> cells = {std::move(name)};
    for (const ByteColumn& column : kByteColumns) {
      if (!shows(column)) continue;
      const int64_t bytes = sums.*column.bytes;
      cells.push_back(bytes > 0 ? format_bytes(bytes) : "-");
    }
    if (planned_) {
      cells.push_back(sums.replays > 0 ? std::to_string(sums.replays) : "-");
      cells.push_back(sums.seconds > 0 ? support::fixed_text(sums.seconds * 1e3, 2) + " ms" : "-");
    }
    rows_.push_back(std::move(cells));
  }
  std::string text() const { return support::table_text(rows_); }

 private:
  bool shows(const ByteColumn& column) const {
    if (!planned_) return column.bytes == &Sums::saved;
    return column.always || all_.*column.bytes > 0;
  }

  Sums all_;
  bool planned_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace

std::string to_text(const Run& run) {
  if (const std::string wrong = run.problem(); !wrong.empty())
    throw Error("[run] " + wrong + "; record the step again");
  if (run.layers.empty()) {
    throw Error(
        "[run] the step has no names of layers; in Python begin it by session.step(layers=model), where the model is "
        "wrapped with remat.session_of(model) as the session; in C++ set Run::layers, as by Session::layers()");
  }
  Layer root = tree_of(run);
  LayerTable table(root.sums, run.plan.has_value());
  for (const Layer& layer : folded(std::move(root.inside))) table.add(layer, 0);
  table.add("all", root.sums);
  const bool evicted = !run.plan && run.report && run.report->values_dropped > 0;
  return table.text() +
         (evicted ? "no plan was followed: what was evicted as memory ran short is not known by layer\n" : "");
}

}  // namespace remat
