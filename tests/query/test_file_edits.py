"""Edited files: the difference is shown, from whichever form the tool call has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agent_logs import DATA, find_session, imported, of_type
from vestige.query.debugger import Debugger
from vestige.query.trajectory.file_edits import find_edits

PATCH = """*** Begin Patch
*** Update File: a.py
@@
 x = 1
-y = 2
+y = 3
*** Add File: b.py
+z = 4
*** Delete File: c.py
*** End Patch"""
RECORDED = "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x\n+-- y\n--- /dev/null\n+++ b.py\n@@ -0,0 +1 @@\n+z"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Edit", {"file_path": "a.py", "old_string": "x\ny", "new_string": "x\nz"}),
        ("edit", {"filePath": "a.py", "oldString": "x\ny", "newString": "x\nz"}),
        ("str_replace_editor", {"path": "a.py", "old_str": "x\ny", "new_str": "x\nz"}),
        ("MultiEdit", {"file_path": "a.py", "edits": [{"old_string": "y", "new_string": "z"}]}),
    ],
)
def test_an_old_and_a_new_text_are_compared(tool: str, arguments: dict[str, object]) -> None:
    (edit,) = find_edits(tool, json.dumps(arguments))
    assert (edit.path, edit.kind, edit.added, edit.removed) == ("a.py", "edited", 1, 1)
    assert "-y\n+z" in edit.diff


def test_a_written_file_is_all_new() -> None:
    (edit,) = find_edits("Write", json.dumps({"file_path": "a.py", "content": "x\ny\n"}))
    assert (edit.kind, edit.diff) == ("written", "+x\n+y")
    assert find_edits("send_mail", json.dumps({"path": "a.py", "content": "x"})) == []
    assert find_edits("Bash", json.dumps({"command": "ls"})) == []


def test_a_patch_and_a_recorded_difference_name_each_file() -> None:
    kinds = [(edit.path, edit.kind) for edit in find_edits("apply_patch", PATCH)]
    assert kinds == [("a.py", "edited"), ("b.py", "created"), ("c.py", "deleted")]
    first, second = find_edits("apply_patch", PATCH, RECORDED)
    assert (first.path, first.kind, first.added, first.removed) == ("a.py", "edited", 1, 1)
    assert (second.path, second.kind, second.diff) == ("b.py", "created", "@@ -0,0 +1 @@\n+z")


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_accepted(arguments: str, diff: str) -> None:
    for edit in find_edits("Edit", arguments, diff):
        assert isinstance(edit.data()["added"], int)
    find_edits("apply_patch", "*** Begin Patch\n" + arguments, diff)


def test_the_span_and_the_transcript_show_the_difference(tmp_path: Path) -> None:
    with imported(tmp_path, DATA / "claude_code") as store:
        run = find_session(store)
        span = next(each for each in of_type(run, "tool") if each.name == "Edit")
        debugger = Debugger(store)
        answer = debugger.span(span.id)
        assert "+def subtract(a, b):" in answer.text(4_000)
        assert answer.data()["edits"][0]["added"] == 4
        transcript = debugger.transcript(run.info.id)
        assert "> Edit: /home/dev/calc/calc.py (+4 -0)" in transcript.text(20_000)
        edits = [item["edits"] for item in transcript.data()["items"] if item.get("edits")]
        assert [edit["path"] for (edit,) in edits] == [
            "/home/dev/calc/calc.py",
            "/home/dev/calc/test_calc.py",
        ]
