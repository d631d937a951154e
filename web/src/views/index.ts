// Every view, in the order of the studio's menu. A new one is imported and listed here.
import type { View } from "../view";
import { ablation } from "./ablation";
import { activations } from "./activations";
import { attention } from "./attention";
import { clusters } from "./clusters";
import { compare } from "./compare";
import { decoding } from "./decoding";
import { evaluation } from "./evaluation";
import { faithfulness } from "./faithfulness";
import { features } from "./features";
import { figure } from "./figure";
import { fill } from "./fill";
import { generation } from "./generation";
import { heads } from "./heads";
import { layers } from "./layers";
import { lens } from "./lens";
import { lesson } from "./lesson";
import { longAttention } from "./long_attention";
import { map } from "./map";
import { logitAttribution, patch } from "./patching";
import { search } from "./search";
import { senses } from "./senses";
import { similarity } from "./similarity";
import { story } from "./story";
import { tasks } from "./tasks";
import { tokenize } from "./tokenize";
import { translation } from "./translation";

export const views = [
  attention,
  longAttention,
  lens,
  logitAttribution,
  patch,
  tokenize,
  fill,
  compare,
  heads,
  activations,
  generation,
  similarity,
  search,
  clusters,
  senses,
  map,
  features,
  layers,
  tasks,
  evaluation,
  translation,
  figure,
  ablation,
  faithfulness,
  decoding,
  lesson,
  story,
] as unknown as readonly View[];
