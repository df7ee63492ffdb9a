/** The state of a run. */

import { useAnswer } from "../answers";
import { Code } from "../parts/code";
import { Failed, Loading } from "../parts/state";
import type { ViewProps } from "./view";

export default function State({ run }: ViewProps) {
  const { data, error, again } = useAnswer<unknown>("state", { id: run.run.short_id });
  if (error) return <Failed error={error} again={again} />;
  if (!data) return <Loading />;
  return <Code text={JSON.stringify(data, null, 2)} label="State" class="grow" />;
}
