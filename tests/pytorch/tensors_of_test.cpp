// The tensors in whatever an operator is given.
#include "pytorch/tensors_of.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace remat::test {
namespace {

int64_t tensors_in(const c10::IValue& value) {
  int64_t count = 0;
  for_each_tensor(value, [&](const at::Tensor&) { ++count; });
  return count;
}

TEST(TensorsOf, Collections) {
  const at::Tensor t = at::ones({2});
  c10::Dict<std::string, at::Tensor> named;
  named.insert("a", t);
  named.insert("b", t);
  c10::Dict<at::Tensor, int64_t> numbers;
  numbers.insert(t, 1);
  c10::List<c10::Dict<std::string, at::Tensor>> dicts;
  dicts.push_back(named);
  c10::impl::GenericList anything(c10::AnyType::get());
  anything.push_back(1.5);
  anything.push_back(t);
  anything.push_back(c10::ivalue::Tuple::create({c10::IValue(t), c10::IValue(named)}));
  EXPECT_EQ(tensors_in(t), 1);
  EXPECT_EQ(tensors_in(c10::List<at::Tensor>({t, t})), 2);
  EXPECT_EQ(tensors_in(c10::List<std::optional<at::Tensor>>({std::nullopt, t})), 1);
  EXPECT_EQ(tensors_in(named), 2);
  EXPECT_EQ(tensors_in(numbers), 1);
  EXPECT_EQ(tensors_in(dicts), 2);
  EXPECT_EQ(tensors_in(anything), 4);
  EXPECT_EQ(tensors_in(c10::List<int64_t>({1, 2})) + tensors_in("text") + tensors_in(c10::IValue()), 0);
}

TEST(TensorsOf, ACollectionInItself) {
  c10::impl::GenericList list(c10::AnyType::get());
  list.push_back(at::ones({2}));
  list.push_back(list);
  EXPECT_GT(tensors_in(list), 0);
  list.clear();
}

}  // namespace
}  // namespace remat::test
