#include "support/compare.h"

namespace remat::test {

void expect_exact(const Program& program) {
  const Outcome plain = run_seeded(program);
  {
    PolicyScope scope(Policy::drop_all());
    expect_same_bits(plain, run_seeded(program), "drop all, no session");
  }
  {
    Session session;
    auto step = session.step();
    expect_same_bits(plain, run_seeded(program), "session without pressure");
  }
  {
    Session session({.verify = true});
    auto step = session.step();
    PolicyScope scope(Policy::drop_all());
    expect_same_bits(plain, run_seeded(program), "drop all, verified");
  }
}

}  // namespace remat::test
