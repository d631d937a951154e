// What is in the chosen box: its lines of code, and the tensors of the sentence that went through it.
import { useMemo } from "preact/hooks";
import { setParameters } from "../../route";
import { HeatMap } from "./heat";
import { by, figures, matrixOf, seen, type Choice, type FigurePayload, type Matrix, type Tensor } from "./payload";

const FIRST = 6; // numbers of each row
const WORDS = 5;

export function Panel({ payload, choice }: { payload: FigurePayload; choice: Choice }) {
  const { box, step, tensor, called, layer, head } = choice;
  const depth = box.steps.length;
  const matrix = useMemo(() => (tensor.words ? null : matrixOf(payload, tensor, head)), [payload, tensor, head]);
  const weights = Object.entries(step.parameters).map(([name, shape]) => `${name} (${by(shape)})`);
  return (
    <section class="figure-panel" aria-labelledby="box">
      <h2 id="box">
        {box.title} <span class="muted">{Object.keys(payload.tokens).length > 1 ? `of the ${box.part}` : ""}</span>
      </h2>
      <p>{box.about}</p>
      {depth > 1 && <Layers layer={layer} depth={depth} />}
      <pre tabIndex={0} aria-label="Code of this box">
        {box.code}
      </pre>
      <p class="muted">
        {weights.length > 0 && `With ${weights.join(", ")}. `}
        These lines were run on this sentence; they give the model’s own numbers, the largest difference is <span class="figure-number">{step.difference ? step.difference.toExponential(1) : 0}</span>.
      </p>
      <div class="choices">
        <fieldset>
          <legend>Tensor</legend>
          {step.tensors.map(([name, number]) => (
            <button key={name} type="button" aria-pressed={name === called} onClick={() => setParameters({ tensor: name })}>
              {name} <small>{by(payload.tensors[number]!.shape)}</small>
            </button>
          ))}
        </fieldset>
        {tensor.shape.length === 3 && (
          <label>
            Head
            <select value={head} onChange={(event) => setParameters({ head: event.currentTarget.value })}>
              {Array.from({ length: tensor.shape[0]! }, (_, number) => (
                <option key={number} value={number}>
                  {number}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      {matrix && tensor.data !== null && <HeatMap matrix={matrix} label={`Heat map of ${called}, ${by(tensor.shape)}`} />}
      {matrix && <First matrix={matrix} tensor={tensor} />}
      {tensor.words && <Words payload={payload} tensor={tensor} share={called === "out" && box.kind === "softmax"} />}
    </section>
  );
}

function Layers({ layer, depth }: { layer: number; depth: number }) {
  const go = (to: number) => setParameters({ layer: String(to) });
  return (
    <div class="choices">
      <label>
        Layer
        <select value={layer} onChange={(event) => go(Number(event.currentTarget.value))}>
          {Array.from({ length: depth }, (_, number) => (
            <option key={number} value={number}>
              {number}
            </option>
          ))}
        </select>
      </label>
      <button type="button" disabled={layer === 0} onClick={() => go(layer - 1)} aria-label="Layer below">
        ↓
      </button>
      <button type="button" disabled={layer === depth - 1} onClick={() => go(layer + 1)} aria-label="Layer above">
        ↑
      </button>
      <span class="muted">of {depth}, from 0</span>
    </div>
  );
}

/** The first numbers of every row; of a map between tokens all of them. */
function First({ matrix, tensor }: { matrix: Matrix; tensor: Tensor }) {
  const count = Math.min(matrix.across, matrix.columns ? matrix.across : FIRST);
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Numbers">
      <table class="figure-numbers">
        <thead>
          <tr>
            <th scope="col">{tensor.rows ? "token" : "row"}</th>
            {Array.from({ length: count }, (_, column) => (
              <th key={column} scope="col">
                {matrix.columns ? seen(matrix.columns[column]!) : tensor.values ? "id" : column}
              </th>
            ))}
            {matrix.across > count && <th scope="col">… {matrix.across - 1}</th>}
          </tr>
        </thead>
        <tbody>
          {matrix.rows.map((name, row) => (
            <tr key={row}>
              <th scope="row">{seen(name)}</th>
              {Array.from({ length: count }, (_, column) => (
                <td key={column}>{figures(matrix.values[row * matrix.across + column]!)}</td>
              ))}
              {matrix.across > count && <td>… {figures(matrix.values[(row + 1) * matrix.across - 1]!)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Words({ payload, tensor, share }: { payload: FigurePayload; tensor: Tensor; share: boolean }) {
  const tokens = (tensor.rows && payload.tokens[tensor.rows]) || [];
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Likeliest words">
      <table class="figure-numbers">
        <thead>
          <tr>
            <th scope="col">{tensor.rows === "decoder" ? "after" : "at"}</th>
            {Array.from({ length: WORDS }, (_, rank) => (
              <th key={rank} scope="col">
                {rank + 1}.
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {tensor.words!.map((best, row) => (
            <tr key={row}>
              <th scope="row">{seen(tokens[row] ?? "")}</th>
              {best.slice(0, WORDS).map(([word, value], rank) => (
                <td key={rank}>
                  <span class="token">{seen(word)}</span> {share ? `${(100 * value).toFixed(1)}%` : value.toFixed(2)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
