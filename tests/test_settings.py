"""Settings: a variable beats config.toml beats the default; what makes no sense is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.errors import SettingError
from vestige.home import Home
from vestige.settings import ModelPrice, Settings, parse_duration, parse_size, read_settings


def write_config(home: Home, text: str | bytes) -> None:
    home.make()
    home.config.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_without_any_the_defaults_are_in_force(home: Home) -> None:
    """No home is needed to ask."""
    assert read_settings(home, {}) == Settings()
    assert not home.root.exists()


def test_a_variable_wins_over_the_file_over_the_default(home: Home) -> None:
    """Each setting on its own."""
    write_config(home, 'level = "warn"\nsample = 0.5\nlast_words = false\nretention_age = "2w"\n')

    settings = read_settings(
        home, {"VESTIGE_LEVEL": "ERROR", "VESTIGE_RETENTION_BODY_BYTES": "1GB"}
    )

    assert settings == Settings(
        level="error",
        level_is_set=True,
        sample=0.5,
        crash_hooks=False,
        retention_age_s=14 * 86400,
        retention_body_bytes=10**9,
    )


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("VESTIGE_LEVEL", "loud", "expected one of debug, info, warn, error"),
        ("VESTIGE_SAMPLE", "1.5", "expected a number from 0 to 1"),
        ("VESTIGE_SAMPLE", "nan", "expected a number from 0 to 1"),
        ("VESTIGE_FSYNC", "often", "expected one of none, periodic, record"),
        ("VESTIGE_DISABLED", "maybe", "expected 1 or 0"),
        ("VESTIGE_RETENTION_AGE", "soon", "expected a duration such as"),
        ("VESTIGE_RETENTION_BODY_BYTES", "-1", "expected a size such as"),
    ],
)
def test_a_value_that_makes_no_sense_is_told_with_what_was_expected(
    home: Home, variable: str, value: str, expected: str
) -> None:
    """Where, what, expected: in one line."""
    with pytest.raises(SettingError) as caught:
        read_settings(home, {variable: value})

    message = str(caught.value)
    assert message.startswith(f"{variable}: {value!r} is not valid")
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("level = ", "not valid TOML"),
        (b"\xff\xfe", "cannot be read"),
        ('level = "loud"', "level: 'loud' is not valid"),
        ('levle = "info"', "levle: no such setting (nearest: level)"),
    ],
)
def test_a_config_that_makes_no_sense_is_told_with_its_path(
    home: Home, config: str | bytes, message: str
) -> None:
    """Never a raw decode error."""
    write_config(home, config)

    with pytest.raises(SettingError) as caught:
        read_settings(home, {})

    assert str(caught.value).startswith(str(home.config))
    assert message in str(caught.value)


def test_an_empty_variable_is_none(home: Home) -> None:
    """As shells and compose files leave them."""
    assert read_settings(home, {"VESTIGE_LEVEL": "", "VESTIGE_DISABLED": ""}) == Settings()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("12h", 43_200),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1.5h", 5_400),
        ("30", 30),
        (" 7 D ", 604_800),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """As people write them."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("256MB", 256_000_000),
        ("1.5 GB", 1_500_000_000),
        ("64KiB", 65_536),
        ("1gib", 2**30),
        ("12", 12),
        ("12b", 12),
    ],
)
def test_sizes_are_read(text: str, count: int) -> None:
    """Powers of ten, or of two where it says so."""
    assert parse_size(text) == count


@pytest.mark.parametrize(
    "text", ["9" * 400, "1" + "0" * 15 + "TB", "9" * 15 + "TiB", "1." + "9" * 400]
)
def test_a_size_beyond_all_numbers_is_refused_in_words(text: str) -> None:
    """Neither an overflow, nor a number that the store could not compare with."""
    with pytest.raises(ValueError, match="expected a size"):
        parse_size(text)


@given(st.text(max_size=12))
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    """Nothing else comes out."""
    for parse in (parse_duration, parse_size):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert "expected a" in str(error)


def test_patterns_are_a_list_in_either_place(home: Home) -> None:
    """Commas in a variable, a list or commas in the file."""
    home.root.mkdir(parents=True)
    home.config.write_text('wire_hosts = ["*.a.com", "!b.a.com"]\nwire_paths = "/v1/*, !/v1/x"\n')
    settings = read_settings(home, {"VESTIGE_WIRE_HTTP": "1"})

    assert settings.wire_hosts == ("*.a.com", "!b.a.com")
    assert settings.wire_paths == ("/v1/*", "!/v1/x")
    assert (settings.wire, settings.wire_http) == (True, True)
    assert read_settings(home, {"VESTIGE_WIRE_HOSTS": "c.com"}).wire_hosts == ("c.com",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prices = 3", 'prices: not a table of models (expected [prices."my-model"])'),
        ("[prices]\ninput = 1.0", 'prices: not a table of models (expected [prices."my-model"])'),
        ("[prices.m]\ninput = 1", 'prices."m": output is missing (expected input and output)'),
        ("[prices.m]\noutput = 1", 'prices."m": input is missing (expected input and output)'),
        ("[prices.m]\ninput = '1'\noutput = 1", "input = '1' is not a price (expected dollars"),
        ("[prices.m]\ninput = true\noutput = 1", "input = 'True' is not a price (expected dollars"),
        ("[prices.m]\ninput = -1\noutput = 1", "input = '-1' is not a price (expected dollars"),
        ("[prices.m]\ninput = nan\noutput = 1", "input = 'nan' is not a price (expected dollars"),
        ("[prices.m]\ninput = 2e6\noutput = 1", "from 0 to 1000000)"),
        (
            "[prices.m]\ninptu = 1\noutput = 1",
            "'inptu' is not known (expected input, output, cache_",
        ),
        ("\n".join(f"[prices.m{n}]" for n in range(1_001)), "1001 models (expected at most 1000)"),
    ],
)
def test_a_price_that_makes_no_sense_is_told_with_its_place(
    home: Home, text: str, message: str
) -> None:
    """In one line, with the file, the model and what was expected."""
    write_config(home, text)

    with pytest.raises(SettingError) as caught:
        read_settings(home, {})

    assert str(home.config) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_own_prices_are_read_beside_the_other_settings(home: Home) -> None:
    """Names with dots and slashes are quoted, as TOML wants it."""
    write_config(home, 'level = "info"\n[prices."org/m-1.5"]\ninput = 1.5\noutput = 6\n')

    settings = read_settings(home, {})

    assert settings.level == "info"
    assert settings.prices == {"org/m-1.5": ModelPrice(1.5, 6.0)}


def test_the_old_name_of_the_crash_hooks_setting_still_works(home: Home) -> None:
    assert read_settings(home, {"VESTIGE_LAST_WORDS": "0"}).crash_hooks is False
    assert read_settings(home, {"VESTIGE_CRASH_HOOKS": "0"}).crash_hooks is False
    both = {"VESTIGE_LAST_WORDS": "0", "VESTIGE_CRASH_HOOKS": "1"}
    assert read_settings(home, both).crash_hooks is True
    home.config.parent.mkdir(parents=True, exist_ok=True)
    home.config.write_text("last_words = false\n")
    assert read_settings(home, {}).crash_hooks is False
