"""A mixed-integer program, and HiGHS to solve it (pip install highspy==1.15.*)."""

import math

try:
    import highspy
except ImportError:  # then programs can be written down, not solved
    highspy = None


class Program:
    """A mixed-integer program as it is written down: columns between 0 and 1, rows of (column, factor)."""

    def __init__(self):
        self.costs, self.fixed, self.rows = [], {}, []

    def column(self, cost=0.0):
        self.costs.append(cost)
        return len(self.costs) - 1

    def at_most(self, terms, bound):
        """The sum of factor * column is at most `bound`."""
        self.rows.append((bound, terms))

    def violation(self, point):
        """By how much the worst row is passed."""
        return max((sum(factor * point[c] for c, factor in terms) - bound for bound, terms in self.rows), default=0.0)

    def cost(self, point):
        return sum(cost * value for cost, value in zip(self.costs, point))

    def solve(self, seconds, start=None, threads=1):
        """The proven bound, the best solution as a list or None, whether it is optimal. `start`: a solution."""
        solver = highspy.Highs()
        for option, value in (("output_flag", False), ("time_limit", float(seconds)), ("threads", threads),
                              ("mip_rel_gap", 1e-4)):
            solver.setOptionValue(option, value)
        count = len(self.costs)
        for c in range(count):
            solver.addVar(self.fixed.get(c, 0.0), self.fixed.get(c, 1.0))
        solver.changeColsCost(count, list(range(count)), self.costs)
        solver.changeColsIntegrality(count, list(range(count)), [highspy.HighsVarType.kInteger] * count)
        for bound, terms in self.rows:
            merged = {}
            for column, factor in terms:
                merged[column] = merged.get(column, 0.0) + factor
            solver.addRow(-highspy.kHighsInf, bound, len(merged), list(merged), list(merged.values()))
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = start
            solver.setSolution(solution)
        solver.run()
        status, info = solver.getModelStatus(), solver.getInfo()
        if status == highspy.HighsModelStatus.kInfeasible:
            return math.inf, None, True
        solution = list(solver.getSolution().col_value) if info.primal_solution_status == 2 else None
        return info.mip_dual_bound, solution, status == highspy.HighsModelStatus.kOptimal
