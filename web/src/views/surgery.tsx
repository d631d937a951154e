// Surgery: take heads and layers out of a model, and see what it then says everywhere in the text.
import type { View } from "../view";
import { Grid } from "./surgery/grid";
import type { Surgery } from "./surgery/payload";
import { drawing, table } from "./surgery/picture";
import { Places } from "./surgery/places";
import "./surgery/surgery.css";

function Show({ payload }: { payload: Surgery }) {
  return (
    <div class="surgery">
      <Grid payload={payload} />
      <Places payload={payload} />
    </div>
  );
}

export const surgery: View<Surgery> = {
  name: "surgery",
  title: "Surgery",
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
