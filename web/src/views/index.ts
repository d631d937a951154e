// Every view, in the order of the studio's menu. A new one is imported and listed here.
import type { View } from "../view";
import { attention } from "./attention";
import { compare } from "./compare";
import { heads } from "./heads";
import { features } from "./features";
import { map } from "./map";
import { search } from "./search";
import { senses } from "./senses";
import { story } from "./story";
import { tasks } from "./tasks";

export const views = [attention, compare, heads, senses, map, features, tasks, search, story] as unknown as readonly View[];
