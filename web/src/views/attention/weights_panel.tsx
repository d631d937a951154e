// The numbers of the token in focus: the tokens it looks at most, or that look at it most, for each chosen head.
import type { Choice, Focus } from "./choice";
import { headStrip } from "./draw_lines";

const MOST = 12;

interface Props {
  readonly choice: Choice;
  readonly focus: Focus | null;
  /** One list a head: the weight with each token of the other side. */
  readonly weights: readonly Float32Array[] | null;
}

export function Looks({ choice, focus, weights }: Props) {
  if (!focus || !weights) {
    return (
      <aside class="looks">
        <p class="muted">Point at a token to see where it looks, or who looks at it. Press it to lock it. Then the arrow keys change layer and head.</p>
      </aside>
    );
  }
  const other = (focus.side === "row" ? choice.columns : choice.rows).names;
  const name = (focus.side === "row" ? choice.rows : choice.columns).names[focus.index]!;
  const strength = other.map((_, index) => Math.max(...weights.map((list) => list[index]!)));
  const order = other.map((_, index) => index).sort((a, b) => strength[b]! - strength[a]! || a - b);
  return (
    <aside class="looks">
      <h3>
        <bdi class="token">{name}</bdi> {focus.side === "row" ? "looks at" : "is looked at by"}
      </h3>
      <div class="wide" tabIndex={0} role="region" aria-label="Weights of the token in focus">
        <table>
          <thead>
            <tr>
              <th scope="col">token</th>
              {choice.heads.map((head, number) => (
                <th key={head} scope="col" aria-label={choice.source === "heads" ? `head ${head}` : choice.source}>
                  <span class="swatch" style={{ backgroundImage: headStrip(choice, number) }} />
                  {choice.source !== "heads" ? choice.source : choice.heads.length > 3 ? head : `head ${head}`}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {order.slice(0, MOST).map((index) => (
              <tr key={index} data-index={index}>
                <th scope="row" dir="auto">
                  {other[index]}
                </th>
                {weights.map((list, number) => (
                  <td key={number}>
                    <span class="bar" style={{ width: `${100 * list[index]!}%`, backgroundImage: headStrip(choice, number) }} />
                    {list[index]!.toFixed(3)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {order.length > MOST && <p class="muted note">The {MOST} strongest of {order.length}; CSV and JSON have all.</p>}
    </aside>
  );
}
