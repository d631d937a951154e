// Ablation: remove heads and layers of a model, and see how its predictions change in the whole text.
import type { View } from "../view";
import "./ablation/ablation.css";
import { drawing, table } from "./ablation/export";
import { HeadGrid } from "./ablation/grid";
import { Positions } from "./ablation/positions";
import type { AblationPayload } from "./ablation/selection";

function Show({ payload }: { payload: AblationPayload }) {
  return (
    <div class="ablation">
      <HeadGrid payload={payload} />
      <Positions payload={payload} />
    </div>
  );
}

export const ablation: View<AblationPayload> = {
  name: "ablation",
  title: "Ablation",
  about: "Remove heads or whole layers of a model and see how its predictions change in the whole text; or which single head matters most.",
  model: true,
  kinds: ["reader", "writer", "tuned"],
  fields: [
    { name: "text", label: "Text; _ is a blank", lines: 2, start: "The animal did not cross the street because it was too tired." },
    { name: "text_b", label: "Second text, for fine-tuned models that read two", start: "", optional: true },
    { name: "heads", label: "Heads to remove, such as 3.1,4.*", start: "", optional: true },
    { name: "layers", label: "Layers to skip, such as 2,3", start: "", optional: true },
    { name: "at", label: "Predict", start: "", hidden: true },
  ],
  Show,
  drawing,
  table,
};
