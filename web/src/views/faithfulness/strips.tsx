// Attention, integrated gradients and gradient x input over the same text, on one colour scale.
import { largest, number, strips, type Grounds, type Strip } from "./payload";

export function Strips({ grounds }: { grounds: Grounds }) {
  const rows = strips(grounds);
  const most = largest(grounds, rows);
  return (
    <section aria-labelledby="faithfulness-strips">
      <h2 id="faithfulness-strips">Which words count, in three ways</h2>
      <div class="faithfulness-strips">
        {rows.map((row) => (
          <div key={row.name}>
            <h3>{row.name}</h3>
            <p class="muted">
              {row.about}
              {row.off !== null && (
                <>
                  {" "}
                  (the sum is off by <span class="faithfulness-off">{row.off}</span>)
                </>
              )}
            </p>
            <Tokens grounds={grounds} row={row} most={most} />
          </div>
        ))}
      </div>
      <p class="muted faithfulness-key">
        <span class="faithfulness-for">for</span> <span class="faithfulness-against">against</span> One scale for all three: a token’s part of the sum of all words’ sizes, full colour at{" "}
        {(100 * most).toFixed(1)}%. Special tokens are no words and only shown beside them. Attention has no sign.
      </p>
      <details>
        <summary>Numbers</summary>
        <Numbers grounds={grounds} rows={rows} />
      </details>
    </section>
  );
}

function Tokens({ grounds, row, most }: { grounds: Grounds; row: Strip; most: number }) {
  return (
    <p class="faithfulness-strip" dir="auto">
      {grounds.tokens.map((token, place) => {
        const share = row.shares[place] ?? 0;
        const kinds = [share < 0 && "faithfulness-against", grounds.special[place] && "faithfulness-special", place === grounds.token && !row.signed && "faithfulness-looks"];
        return (
          <span
            key={place}
            class={kinds.filter(Boolean).join(" ")}
            style={{ "--strength": `${Math.round(45 * Math.min(1, Math.abs(share) / most))}%` }}
            title={`${number(row.values[place] ?? 0, row.signed)}, ${number(100 * share, false, 1)}%`}
          >
            {token}
          </span>
        );
      })}
    </p>
  );
}

function Numbers({ grounds, rows }: { grounds: Grounds; rows: readonly Strip[] }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Numbers">
      <table class="faithfulness-table">
        <thead>
          <tr>
            <th scope="col">token</th>
            {rows.map((row) => (
              <th key={row.name} scope="col">
                {row.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {grounds.tokens.map((token, place) => (
            <tr key={place}>
              <th scope="row">{token}</th>
              {rows.map((row) => (
                <td key={row.name}>{number(row.values[place] ?? 0, row.signed)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
