// Ablation: take heads and layers out of a model, and see what it then says everywhere in the text.
import type { View } from "../view";
import { Grid } from "./ablation/grid";
import type { Ablation } from "./ablation/payload";
import { drawing, table } from "./ablation/export";
import { Places } from "./ablation/positions";
import "./ablation/ablation.css";

function Show({ payload }: { payload: Ablation }) {
  return (
    <div class="ablation">
      <Grid payload={payload} />
      <Places payload={payload} />
    </div>
  );
}

export const ablation: View<Ablation> = {
  name: "ablation",
  title: "Ablation",
  about: "Take heads or whole layers out of a model, and see how its answers change everywhere in the text; or which head, alone, matters most.",
  model: true,
  suits: ["reader", "writer", "tuned"],
  fields: [
    { name: "text", label: "Text; _ is a blank", lines: 2, start: "The animal did not cross the street because it was too tired." },
    { name: "text_b", label: "Second text, for tuned models that read two", start: "", optional: true },
    { name: "heads", label: "Heads out, such as 3.1,4.*", start: "", optional: true },
    { name: "layers", label: "Layers out, such as 2,3", start: "", optional: true },
    { name: "at", label: "Ask at", start: "", hidden: true },
  ],
  Show,
  drawing,
  table,
};
