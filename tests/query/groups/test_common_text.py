"""What several failures have in common, as the title of their group."""

from __future__ import annotations

from vestige.query.groups.common_text import common_text


def test_what_differs_is_a_mark() -> None:
    texts = [
        f"order {order} was not found ({tries} tries)" for order, tries in (("A-1", 2), ("B-7", 3))
    ]

    assert common_text(texts) == "order … was not found (… tries)"
    assert common_text([*texts, "order C-3 of Mo Li was not found (4 tries)"]) == (
        "order … was not found (… tries)"
    )


def test_values_inside_of_json_are_left_out() -> None:
    texts = [f'read failed ({{"path":"data/{name}.mp3"}}): no such file' for name in ("a1", "b2")]

    assert common_text(texts) == 'read failed ({"path":"…"}): no such file'


def test_equal_texts_and_texts_without_much_in_common() -> None:
    assert common_text(["order 7 was not found"] * 3) == "order 7 was not found"
    assert common_text(["the disk is full", "a card was refused by its issuer"]) == ""
