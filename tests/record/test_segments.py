"""Segments: a map over a prompt's body."""

from __future__ import annotations

import json

from vestige.record.prompt_segments import (
    SEGMENTS_MAX,
    Segment,
    make_assembly,
    parse_segments,
    render_segments,
)


def test_texts_are_laid_out_one_after_the_other() -> None:
    """Without a body, ranges are bytes of the parts: é takes two."""
    assembly = make_assembly([("persona", "é" * 5), ("skill:web", "skill", "abc"), ("user", "")])

    assert assembly.ranges == "parts"
    assert [(s.contributor, s.kind, s.length, s.begin, s.end) for s in assembly.segments] == [
        ("persona", "persona", 10, 0, 10),
        ("skill:web", "skill", 3, 10, 13),
        ("user", "user", 0, 13, 13),
    ]
    assert assembly.size_bytes == 13


def test_texts_are_found_in_the_body_as_json_writes_them() -> None:
    """Quotes and line ends are escaped there: ranges cover the escaped text."""
    persona, question = 'You are "Vé".\nBe brief. 😀', "and now?"
    for ascii_only in (True, False):
        body = json.dumps(
            {"system": persona, "messages": [{"role": "user", "content": question}]},
            ensure_ascii=ascii_only,
        )

        assembly = make_assembly([("persona", persona), ("user", question)], body)

        first, second = assembly.segments
        raw = body.encode()
        assert assembly.ranges == "body"
        assert json.loads(b'"' + raw[first.begin : first.end] + b'"') == persona
        assert raw[second.begin : second.end] == b"and now?"


def test_a_part_that_the_body_does_not_have_makes_all_ranges_those_of_the_parts() -> None:
    """Half a map would point at the wrong contributor."""
    assembly = make_assembly([("a", "one"), ("b", "nowhere")], '{"x":"one"}')

    assert assembly.ranges == "parts"
    assert [(s.begin, s.end) for s in assembly.segments] == [(0, 3), (3, 10)]


def test_explicit_ranges_are_kept() -> None:
    """The caller knows its body best."""
    assembly = make_assembly(
        [{"contributor": "persona", "kind": "persona", "role": "system", "begin": 11, "end": 31}]
    )

    assert assembly.ranges == "body"
    assert assembly.segments == [
        Segment(contributor="persona", kind="persona", role="system", length=20, begin=11, end=31)
    ]


def test_segments_come_back_as_they_were_written() -> None:
    assembly = make_assembly([{"contributor": "p", "length": 7}, ("q", "text")])

    assert parse_segments(render_segments(assembly.segments)) == assembly.segments
    assert parse_segments(None) == parse_segments("no json") == parse_segments('{"a":1}') == []


def test_a_very_long_list_ends_with_one_for_its_rest() -> None:
    """Nothing is lost of the sizes."""
    assembly = make_assembly(
        [{"contributor": f"m{n}", "length": 2} for n in range(SEGMENTS_MAX + 9)]
    )

    assert len(assembly.segments) == SEGMENTS_MAX
    assert assembly.segments[-1].contributor == "10 more"
    assert assembly.size_bytes == 2 * (SEGMENTS_MAX + 9)
