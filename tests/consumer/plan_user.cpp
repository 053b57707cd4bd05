// Uses what needs no torch: budgets and reports.
#include <iostream>

#include <remat/budget.h>
#include <remat/report.h>

int main() {
  remat::StepReport report;
  report.budget_bytes = remat::Budget::parse("1GiB").byte_count();
  std::cout << remat::to_text(report);
  return report.budget_bytes == int64_t{1} << 30 ? 0 : 1;
}
