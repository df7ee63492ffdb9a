/** The properties of every view of a run. All views share one selection, range and filter (router.ts). */

import type { ComponentType } from "preact";
import type { RunModel } from "../model";

export interface ViewProps {
  run: RunModel;
}
export type ViewComponent = ComponentType<ViewProps>;
