"""The HTTP header ``Warning``: a warning repeats what a user submitted and must not split it."""

from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared.formats import warning_header

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=200)


@given(st.lists(PRINTABLE, max_size=warning_header.MAX_WARNINGS))
def test_what_is_encoded_is_decoded_again(warnings: list[str]) -> None:
    assert warning_header.decode(warning_header.encode(warnings)) == warnings


@given(st.lists(st.text(), max_size=20))
def test_any_text_is_a_header_of_one_line_and_bounded_length(warnings: list[str]) -> None:
    value = warning_header.encode(warnings)
    assert value.isascii()
    assert value == "" or value.isprintable()
    assert len(warning_header.decode(value)) == min(len(warnings), warning_header.MAX_WARNINGS)


def test_other_characters_are_escaped() -> None:
    value = warning_header.encode(['a "b"\r\nX-Evil: 1 é'])
    assert value == '299 - "a \\"b\\"\\\\r\\\\nX-Evil: 1 \\\\xe9"'
    assert warning_header.decode(value) == ['a "b"\\r\\nX-Evil: 1 \\xe9']


def test_what_is_no_warning_is_left_out() -> None:
    assert warning_header.decode('garbage, 299 - "kept", 299 -') == ["kept"]
