/** A small plot in a line: bars, or two lines. Made for a glance; the numbers are in its label and in each bar's title. */

interface Series {
  values: (number | null)[];
  /** A second line above the first, e.g. p95 over p50. */
  upper?: (number | null)[];
}

interface Props extends Series {
  title: string;
  total: string;
  /** One for each value, e.g. its day. */
  at: string[];
  format: (value: number) => string;
  mood?: "accent" | "bad";
}

const WIDE = 200;
const HIGH = 36;

export function Spark({ title, total, values, upper, at, format, mood = "accent" }: Props) {
  const most = Math.max(
    ...values.map((value) => value ?? 0),
    ...(upper ?? []).map((value) => value ?? 0),
    0,
  );
  const peak = values.reduce<number>(
    (best, value, place) => ((value ?? 0) > (values[best] ?? 0) ? place : best),
    0,
  );
  const peakLabel = most > 0 ? `, most ${format(values[peak] ?? 0)} on ${at[peak] ?? ""}` : "";
  return (
    <figure class="spark">
      <figcaption class="rowline">
        <span class="quiet grow cut">{title}</span>
        <strong>{total}</strong>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDE} ${HIGH}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${total}${peakLabel}`}
      >
        <line x1="0" x2={WIDE} y1={HIGH - 0.5} y2={HIGH - 0.5} class="spark-floor" />
        {upper ? (
          <Lines values={values} upper={upper} most={most} />
        ) : (
          <Bars values={values} most={most} at={at} format={format} mood={mood} />
        )}
      </svg>
      {at.length > 1 && (
        <div class="rowline quiet spark-axis">
          <span class="grow">{at[0]}</span>
          <span>{at.at(-1)}</span>
        </div>
      )}
    </figure>
  );
}

function Bars({
  values,
  most,
  at,
  format,
  mood,
}: {
  values: (number | null)[];
  most: number;
  at: string[];
  format: (value: number) => string;
  mood: string;
}) {
  const step = WIDE / Math.max(values.length, 1);
  return (
    <>
      {values.map((value, place) => {
        const high = most > 0 && value ? Math.max(1.5, (value / most) * (HIGH - 2)) : 0;
        return (
          <rect
            key={place}
            class={`spark-${mood}`}
            x={place * step + step * 0.12}
            width={step * 0.76}
            y={HIGH - high}
            height={high}
          >
            <title>{`${at[place]}: ${format(value ?? 0)}`}</title>
          </rect>
        );
      })}
    </>
  );
}

/** Gaps where nothing was measured; a lone value is a dot's width. */
function path(values: (number | null)[], most: number): string {
  const step = WIDE / Math.max(values.length, 1);
  let drawn = "";
  let open = false;
  values.forEach((value, place) => {
    if (value === null || most <= 0) {
      open = false;
      return;
    }
    const y = (HIGH - 1 - (value / most) * (HIGH - 3)).toFixed(1);
    drawn += open
      ? `L${((place + 0.5) * step).toFixed(1)} ${y}`
      : `M${(place * step + step * 0.2).toFixed(1)} ${y}L${((place + 0.8) * step).toFixed(1)} ${y}`;
    open = true;
  });
  return drawn;
}

function Lines({
  values,
  upper,
  most,
}: {
  values: (number | null)[];
  upper: (number | null)[];
  most: number;
}) {
  return (
    <>
      <path class="spark-upper" d={path(upper, most)} vector-effect="non-scaling-stroke" />
      <path class="spark-line" d={path(values, most)} vector-effect="non-scaling-stroke" />
    </>
  );
}
