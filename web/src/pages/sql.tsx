/** SQL: read-only questions to the store. */

import { Empty } from "../parts/state";

export function Sql() {
  return <Empty>SQL</Empty>;
}
