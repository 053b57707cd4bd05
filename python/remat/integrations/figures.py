"""What the integrations put into a training loop's logs."""

from __future__ import annotations

from remat.session import Report


class Figures:
    """Gathers the reports of the steps between two entries of a log."""

    def __init__(self) -> None:
        self._last_step = 0
        self._reports: list[Report] = []

    def add(self, report: Report) -> None:
        """Adds a report, once: the same step may be told several times."""
        if report.step != self._last_step:
            self._last_step = report.step
            self._reports.append(report)

    def take(self) -> dict[str, float]:
        """The figures since the last call; empty if there was no step: of the step with the largest peak that peak, what
        it would have been and the budget (bytes, parameters and all else included; a percentage's first step may take
        what plain takes, and later ones less), and recompute time (seconds, of all steps)."""
        reports, self._reports = self._reports, []
        if not reports:
            return {}
        highest = max(reports, key=lambda report: report.peak_bytes)
        return {
            "remat/peak_bytes": highest.peak_bytes,
            "remat/plain_peak_bytes": highest.plain_peak_bytes,
            "remat/budget_bytes": highest.budget_bytes,
            "remat/recompute_seconds": sum(report.recompute_seconds for report in reports),
        }
