#include "operators/named_operators.h"

#include <sstream>

#include <gtest/gtest.h>

#include "operators/composites.h"

namespace remat {
namespace {

TEST(NamedOperators, Exist) {
  EXPECT_TRUE(operators_named("aten::mm").exist);
  EXPECT_TRUE(operators_named("aten::add.Tensor").exist);
  EXPECT_FALSE(operators_named("aten::add.Tensors").exist);
  EXPECT_FALSE(operators_named("aten::no_such").exist);
  EXPECT_FALSE(operators_named("mm").exist);
}

TEST(NamedOperators, RecordedOnesAreNotComposites) {
  for (const char* const name : {"aten::mm", "aten::add", "aten::add.Tensor", "aten::std", "aten::std.correction",
                                 "aten::where", "aten::mul.out", "aten::empty", "aten::all_gather"}) {
    EXPECT_FALSE(operators_named(name).never_recorded) << name;
  }
}

TEST(NamedOperators, CompositesNameTheirParts) {
  for (const Composite& composite : kComposites) {
    const NamedOperators named = operators_named(std::string(composite.name));
    EXPECT_TRUE(named.exist && named.never_recorded) << composite.name;
    EXPECT_NE(named.why.find(composite.parts), std::string::npos) << named.why;
    std::istringstream parts{std::string(composite.parts)};
    for (std::string part; std::getline(parts >> std::ws, part, ',');) {
      EXPECT_TRUE(operators_named(part).exist && !operators_named(part).never_recorded) << part;
    }
  }
}

TEST(NamedOperators, OverloadsAreMadeOfOthers) {
  EXPECT_EQ(operators_named("aten::std.dim").why,
            "is made of other operators, which are recorded in its place; name these: aten::std.correction");
}

TEST(NamedOperators, Views) {
  for (const char* const name : {"aten::transpose", "aten::transpose.int", "aten::view", "aten::t_"}) {
    EXPECT_TRUE(operators_named(name).never_recorded) << name;
    EXPECT_NE(operators_named(name).why.find("is a view"), std::string::npos) << operators_named(name).why;
  }
}

TEST(NamedOperators, OfOtherCompositesOneSaysHowToFindTheParts) {
  EXPECT_NE(operators_named("aten::cosine_embedding_loss").why.find("Session::graph()"), std::string::npos);
}

}  // namespace
}  // namespace remat
