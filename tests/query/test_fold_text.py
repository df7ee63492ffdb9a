"""Folding keeps the head, the tail and the lines that matter of a long text."""

from __future__ import annotations

from vestige.query.shorten_text import fold_text

PROMPT = "\n".join(
    [
        "You are a planner.",
        *(f"- tool_{number}: Takes a query and returns text." for number in range(30)),
        "After the last step, write the '<end_plan>' tag and stop there.",
        "Never call the same tool twice with the same arguments.",
        *(f"Example {number}: a plan of a few words." for number in range(30)),
        "Now begin!",
    ]
)


def test_a_prompt_keeps_the_lines_that_say_what_has_to_be_done() -> None:
    lines = fold_text(PROMPT, 300, keep="requirements")
    assert lines[0] == "You are a planner."
    assert lines[-1] == "Now begin!"
    assert "… After the last step, write the '<end_plan>' tag and stop there." in lines
    assert "… Never call the same tool twice with the same arguments." in lines
    assert sum(map(len, lines)) < 700


def test_an_output_keeps_its_error_line_and_not_the_words_of_a_page() -> None:
    page = [
        f"{number}. Nothing that you cannot read elsewhere, invalid or not" for number in range(80)
    ]
    page.insert(40, "ValueError: could not convert string to float: 'n/a'")
    lines = fold_text("\n".join(page), 400)
    assert "… ValueError: could not convert string to float: 'n/a'" in lines
    assert len([line for line in lines if line.startswith("… ")]) == 2


def test_indentation_is_kept_and_blank_lines_go_first() -> None:
    code = "def a():\n\n    if b:\n\n        return c\n"
    assert fold_text(code, 60) == ["def a():", "", "    if b:", "", "        return c"]
    assert fold_text(code, 36) == ["def a():", "    if b:", "        return c"]


def test_base64_and_markup_are_described() -> None:
    lines = fold_text(f"before {'QUJD' * 100} after", 1_000)
    assert lines == ["before [base64, 400B] after"]
    html = "<html><head><style>p {}</style></head>" + "<p class='x'><b>word</b></p>\n" * 30
    assert fold_text(html, 2_000)[:2] == ["[markup left out]", "word"]


def test_a_line_is_not_shortened_for_a_few_characters() -> None:
    text = "\n".join(["x" * 100] * 40)
    assert fold_text(text, 160)[0] == "x" * 100
