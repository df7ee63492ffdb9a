/** Two runs beside each other. */

import { useAnswer } from "../answers";
import { Code } from "../parts/code";
import { Empty, Failed, Loading } from "../parts/state";
import { route } from "../state";

export function Compare() {
  const a = route.value.params.get("a");
  const b = route.value.params.get("b");
  const { data, error, loading } = useAnswer<unknown>("diff", a && b ? { a, b } : null);
  if (!a || !b) return <Empty>Choose two runs on the list of runs.</Empty>;
  if (error) return <Failed error={error} />;
  if (loading || !data) return <Loading what="both runs" />;
  return <Code text={JSON.stringify(data, null, 2)} label="What differs" class="grow" />;
}
