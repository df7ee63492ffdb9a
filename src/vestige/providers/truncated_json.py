"""Close JSON that was cut off, so that what was complete in it can be read."""

from __future__ import annotations

_CLOSING = {"{": "}", "[": "]"}


def close_json(text: str) -> str:
    """Return the JSON up to its last complete value, with all brackets closed.

    A text that does not start as an object or array is returned as it is, and so is one in which
    no value is complete.
    """
    open_brackets: list[str] = []
    complete, closing = 0, ""
    position, size = 0, len(text)
    while position < size:
        character = text[position]
        if character == '"':
            position = _skip_string(text, position)
        elif character in "{[":
            open_brackets.append(character)
        elif character in "}],":
            if not open_brackets:
                return text
            if character == ",":
                complete = position
            elif character != _CLOSING[open_brackets.pop()]:
                return text
            else:
                complete = position + 1
            closing = "".join(_CLOSING[each] for each in reversed(open_brackets))
            if not open_brackets:
                return text[:complete]
        elif not open_brackets:
            return text
        position += 1
    return text[:complete] + closing if complete else text


def _skip_string(text: str, start: int) -> int:
    """Return the position of the quote that ends a string, or the end of the text."""
    position = start + 1
    while True:
        quote = text.find('"', position)
        if quote < 0:
            return len(text)
        escape = text.find("\\", position, quote)
        if escape < 0:
            return quote
        position = escape + 2
