"""The step summary on GitHub."""

from __future__ import annotations

from pathlib import Path

from vestige.artifacts import SuiteRecorder, write_step_summary
from vestige.artifacts.github_summary import render_step_summary


def _suite(folder: Path, failing: int) -> SuiteRecorder:
    with SuiteRecorder(folder, "shop") as suite:
        with suite.case("ok") as case:
            case.passed()
        for number in range(failing):
            with suite.case(f"test_x[{number}|<b>`]") as case:
                case.failed("first\n| line | <script>")
    return suite


def test_failing_cases_are_listed_and_mean_nothing_to_markdown(tmp_path: Path) -> None:
    """Pipes, tags, newlines and backticks of names stay text in one row of a table."""
    suite = _suite(tmp_path, 2)
    summary = render_step_summary(suite.path)

    assert "2 of 3 cases failed" in summary
    assert "<script>" not in summary
    rows = [line for line in summary.splitlines() if line.startswith("| test")]
    assert len(rows) == 2
    assert rows[0].replace("\\|", "").count("|") == 4


def test_many_failures_are_cut_and_counted(tmp_path: Path) -> None:
    """GitHub refuses what is too long."""
    summary = render_step_summary(_suite(tmp_path, 60).path)

    assert summary.count("\n| test") == 50
    assert "... and 10 more." in summary


def test_it_is_appended_where_github_says_and_nowhere_else(tmp_path: Path) -> None:
    """Without the variable nothing is written; a file that cannot be written fails nothing."""
    suite = _suite(tmp_path, 1)
    target = tmp_path / "summary.md"
    target.write_text("before\n")

    assert write_step_summary(suite.path, environment={"GITHUB_STEP_SUMMARY": str(target)})
    assert not write_step_summary(suite.path, environment={})
    assert not write_step_summary(suite.path, environment={"GITHUB_STEP_SUMMARY": str(tmp_path)})
    assert target.read_text().startswith("before\n### shop: 1 of 2 cases failed")
