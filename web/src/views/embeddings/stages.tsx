// Each stage of the walk with its numbers. Knows the walk; which stage is shown is the view's choice.
import type { ComponentChildren } from "preact";
import { Canvas } from "../../canvas";
import { canvasPainter } from "../../painter";
import { colors } from "../../theme";
import { BOX, drawTensor } from "./tensor";
import { by, STAGES, type Outcome, type Walk } from "./walk";

const COLUMNS = 40; // of a wide matrix; the rest is counted

export function Stage({ walk, number }: { walk: Walk; number: number }) {
  const [count, longest] = walk.matrix;
  const cls = walk.pooling === "cls";
  const bodies: readonly (() => ComponentChildren)[] = [
    () => <Sentences walk={walk} />,
    () => (
      <>
        <p>The tokenizer cuts each text into pieces that it knows, and adds its own signs.</p>
        <Rows rows={walk.tokens} kind="token" />
      </>
    ),
    () => (
      <>
        <p>Every piece is a number in the vocabulary; texts have as many as they have pieces.</p>
        <Rows rows={walk.ids} kind="number" />
      </>
    ),
    () => (
      <>
        <p>
          All rows get the length of the longest text: {by([count, longest])}, of which {walk.padding.toFixed(0)}% is padding.
        </p>
        <Rows rows={walk.padded} kind="number" pad={walk.mask} />
      </>
    ),
    () => (
      <>
        <p>
          The mask, {by([count, longest])}, says what is a token (1) and what is padding (0) and must not be attended to. The slides leave it out; on average the cosine of a
          text’s vectors with and without it is {(walk.similarity / 100).toFixed(3)} here.
        </p>
        <Rows rows={walk.mask} kind="number" pad={walk.mask} />
      </>
    ),
    () => (
      <>
        <p>
          {walk.model.name} gives {by(walk.hidden)} numbers: texts × tokens × width (layer {walk.layer}).
        </p>
        <Box walk={walk} slice={null} />
      </>
    ),
    () => (
      <>
        <p>
          {cls ? "Only each text’s first token is kept, the slice " : "Each text’s tokens are averaged, "}
          {cls && <code>[:, 0, :]</code>}
          {cls && ", "}which leaves {by(walk.slice)}.
        </p>
        <Box walk={walk} slice={walk.pooling} />
        <Features walk={walk} />
      </>
    ),
    () => (
      <p>
        Logistic regression learns the label from the {walk.slice[1].toLocaleString("en")} numbers of a text. It sees {walk.masked.train.toLocaleString("en")} texts with
        their labels; the other {walk.masked.test.toLocaleString("en")} are kept for the score. The model itself is not changed.
      </p>
    ),
    () => <Score masked={walk.masked} unmasked={walk.unmasked} />,
  ];
  return (
    <section aria-labelledby={`stage-${number}`}>
      <h2 id={`stage-${number}`}>
        {number + 1}. {STAGES[number]}
      </h2>
      {bodies[number]!()}
    </section>
  );
}

function Sentences({ walk }: { walk: Walk }) {
  const counts = Object.entries(walk.counts).map(([label, count]) => `${label}: ${count.toLocaleString("en")}`);
  return (
    <>
      <p>
        {walk.matrix[0].toLocaleString("en")} texts with labels ({counts.join(", ")}); the first {walk.texts.length}:
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">Text</th>
            <th scope="col">Label</th>
          </tr>
        </thead>
        <tbody>
          {walk.texts.map((text, number) => (
            <tr key={number}>
              <td dir="auto">{text}</td>
              <td>{walk.labels[number]}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

interface RowsProps {
  readonly rows: readonly (readonly (string | number)[])[];
  readonly kind: "token" | "number";
  readonly pad?: readonly (readonly number[])[];
}

function Rows({ rows, kind, pad }: RowsProps) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="The first texts">
      <table>
        <tbody>
          {rows.map((row, number) => (
            <tr key={number}>
              <th scope="row">{number + 1}</th>
              {row.slice(0, COLUMNS).map((value, column) => (
                <td key={column} class={pad?.[number]?.[column] === 0 ? `${kind} pad` : kind}>
                  {value}
                </td>
              ))}
              {row.length > COLUMNS && <td class="muted">and {row.length - COLUMNS} more</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Box({ walk, slice }: { walk: Walk; slice: string | null }) {
  return (
    <div class="wide">
      <Canvas
        {...BOX}
        inputs={[walk, slice]}
        label={`A box of ${by(walk.hidden)} numbers${slice ? `, of which ${by(walk.slice)} are kept` : ""}`}
        draw={(context) => drawTensor(canvasPainter(context, colors.get().ink), walk.hidden, slice)}
      />
    </div>
  );
}

function Features({ walk }: { walk: Walk }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Features and labels">
      <table>
        <thead>
          <tr>
            <th scope="col">Text</th>
            {[0, 1, 2, 3].map((column) => (
              <th key={column} scope="col">
                {column}
              </th>
            ))}
            <th scope="col">…</th>
            <th scope="col">{walk.slice[1] - 1}</th>
            <th scope="col">Label</th>
          </tr>
        </thead>
        <tbody>
          {walk.features.map((vector, number) => (
            <tr key={number}>
              <th scope="row">{number + 1}</th>
              {vector.slice(0, 4).map((value, column) => (
                <td key={column} class="number">
                  {value.toFixed(4)}
                </td>
              ))}
              <td>…</td>
              <td class="number">{vector.at(-1)!.toFixed(4)}</td>
              <td>{walk.labels[number]}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Score({ masked, unmasked }: { masked: Outcome; unmasked: Outcome }) {
  const bars: readonly [string, number, string, string][] = [
    ["always the commonest label", masked.guess, `${masked.guess.toFixed(2)}%`, "guess"],
    ["with mask", masked.accuracy, `${masked.accuracy.toFixed(2)}%`, ""],
    ["without mask, as on the slides", unmasked.accuracy, `${unmasked.accuracy.toFixed(2)}%`, "deck"],
  ];
  return (
    <>
      <p>Right answers on the {masked.test.toLocaleString("en")} texts that were kept:</p>
      <div class="bars">
        {bars.map(([name, value, text, kind]) => [
          <span key={name}>{name}</span>,
          <i key={`${name} bar`} class={kind} style={{ width: `${value}%` }} aria-hidden="true" />,
          <strong key={`${name} value`}>{text}</strong>,
        ])}
      </div>
      <p>
        By 5-fold cross-validation on all texts: {masked.mean.toFixed(2)} ± {masked.deviation.toFixed(2)}% with mask, {unmasked.mean.toFixed(2)} ±{" "}
        {unmasked.deviation.toFixed(2)}% without.
      </p>
      {masked.test < 100 && <p class="muted">On {masked.test} texts one more right answer is {(100 / masked.test).toFixed(1)} points: take more texts before you believe it.</p>}
    </>
  );
}
