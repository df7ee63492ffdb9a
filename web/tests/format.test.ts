import { describe, expect, test } from "vitest";
import { bytes, cost, duration, short, upTo, visible } from "../src/parts/format";

describe("numbers for people", () => {
  test.each([
    [0, "0"],
    [512, "512 µs"],
    [27_000, "27 ms"],
    [6_640_000, "6.64 s"],
    [187_000_000, "3 min 7 s"],
    [7_260_000_000, "2 h 1 min"],
    [999_700, "1.00 s"],
    [59_970_000, "1 min 0 s"],
  ])("%d µs is %s", (us, text) => {
    expect(duration(us)).toBe(text);
  });

  test("bytes, counts and money have one unit each", () => {
    expect([bytes(900), bytes(13_400), bytes(1_048_576)]).toEqual(["900 B", "13 kB", "1.0 MB"]);
    expect([short(950), short(8_678), short(223_000)]).toEqual(["950", "8.7k", "223k"]);
    expect([cost(0), cost(0.0000084), cost(0.0021), cost(0.766), cost(12.5)]).toEqual([
      "$0",
      "<$0.0001",
      "$0.0021",
      "$0.766",
      "$12.50",
    ]);
  });
});

test("characters that hide or turn text become visible; line breaks and tabs stay", () => {
  expect(visible("a\u202Eb\u200B\u0000\tc\n")).toBe("a⟨U+202E⟩b⟨U+200B⟩⟨U+0000⟩\tc\n");
});

test("a bound below the precision of durations is named as one", () => {
  expect([upTo(null), upTo(0.000_1), upTo(167.8)]).toEqual(["–", "< 0.1 ms", "≤ 168 ms"]);
});
