/** What every view of a run is given. All views show one selection, one range and one filter (state.ts). */

import type { ComponentType } from "preact";
import type { RunModel } from "../model";

export interface ViewProps {
  run: RunModel;
}
export type ViewComponent = ComponentType<ViewProps>;
