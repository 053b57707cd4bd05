#include "operators/collectives.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

namespace remat {
namespace {

std::vector<int> written(const std::string& schema) {
  const auto positions = written_by_collective(torch::jit::parseSchema(schema));
  return {positions.begin(), positions.end()};
}

TEST(Collectives, AreToldByTheirNamespace) {
  EXPECT_TRUE(is_collective("c10d::allreduce_"));
  EXPECT_TRUE(is_collective("_c10d_functional::wait_tensor"));
  EXPECT_TRUE(is_collective("fsdp::all_gather_copy_in"));
  EXPECT_FALSE(is_collective("aten::add"));
  EXPECT_FALSE(is_collective("mylib::c10d"));
}

TEST(Collectives, OfC10dWriteToAllThatIsNotAnInput) {
  EXPECT_EQ(written("c10d::allreduce_(Tensor[] tensors, Tensor? sparse_indices, bool async_op=True) -> Tensor[]"),
            (std::vector{0, 1}));
  EXPECT_EQ(written("c10d::allgather_(Tensor[][] output_tensors, Tensor[] input_tensors, int timeout) -> Tensor[][]"),
            (std::vector{0}));
  EXPECT_EQ(written("c10d::send(Tensor[] tensors, int dst, int tag) -> int"), (std::vector<int>{}));
  EXPECT_EQ(written("c10d::recv_(Tensor[] tensors, int src, int tag) -> int"), (std::vector{0}));
}

TEST(Collectives, ThatAreFunctionalWriteAsDeclaredAndUntilTheyHaveBeenWaitedFor) {
  EXPECT_EQ(written("_c10d_functional::all_reduce(Tensor input, str op, str group) -> Tensor"), (std::vector<int>{}));
  EXPECT_EQ(written("_c10d_functional::all_reduce_(Tensor(a!) input, str op, str group) -> Tensor(a!)"),
            (std::vector{0}));
  EXPECT_EQ(written("_c10d_functional::wait_tensor(Tensor tensor) -> Tensor"), (std::vector{0}));
  EXPECT_EQ(written("_c10d_functional::wait_tensors(Tensor[] tensors) -> Tensor[]"), (std::vector{0}));
}

}  // namespace
}  // namespace remat
