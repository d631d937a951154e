// One text: what was said, token by token, the bars at one place, and the tree where a beam searched. Knows no server.
import { setParameters, currentRoute } from "../../route";
import { Results, Steps, TreeOf } from "../search/tree_view";
import { quoted, visible } from "../search/trace";
import { tokensTo } from "../search/tree";
import { Bars } from "./bars";
import { percent, placeOf, told, type Run, type Token } from "./payload";

interface Props {
  readonly prompt: string;
  readonly run: Run;
  readonly running: boolean;
  /** Go on from these tokens behind the prompt. */
  readonly branch?: (run: Run, ids: readonly number[]) => void;
}

const stoppedAfter = ({ tokens }: Run) => `Stopped after ${tokens.length} ${tokens.length === 1 ? "token" : "tokens"}.`;

const ENDS: Readonly<Record<Run["reason"], (run: Run) => string>> = {
  end: () => "The model ended the text.",
  stop: () => "A stop text was said.",
  length: (run) => run.stopped ? stoppedAfter(run) : `${run.tokens.length} tokens, as many as ${run.max_tokens < run.settings.max_tokens ? "the model has room for" : "were asked for"}.`,
  interrupted: (run) => (run.tokens.length ? stoppedAfter(run) : "Nothing was said."),
};

export function Column({ prompt, run, running, branch }: Props) {
  const { parameters } = currentRoute.use();
  const at = placeOf(run, parameters);
  const row = run.trace?.rows[0];
  const going = running && run.reason === "interrupted";
  const go = branch && run.continues ? (ids: readonly number[]) => branch(run, ids) : undefined;
  return (
    <section class="generation-column" aria-label={`${run.model.name}, ${told(run)}`}>
      <h2>{run.model.name}</h2>
      <p class="muted">{told(run)}</p>
      {run.cut > 0 && (
        <p class="muted">
          The prompt is too long for this model: its first {run.cut.toLocaleString("en")} tokens were cut, up to “{run.lost.slice(-40)}”.
        </p>
      )}
      <div class="generation-split">
        <div>
          <Said prompt={prompt} run={run} at={at} going={going} />
          <p class="muted" role="status">
            {going ? (run.progress ? `Searching: step ${run.progress.step} of at most ${run.progress.of} …` : "Writing …") : ENDS[run.reason](run)}
          </p>
          {run.tokens.length > 0 && <p class="muted generation-legend">The less likely a token was, the stronger its shade. Press one for its bars.</p>}
        </div>
        <Bars run={run} at={at} {...(go && { pick: (bar) => go([...run.tokens.slice(0, at).map((token) => token.id), bar.token]) })} />
      </div>
      {row && (
        <div class="search">
          <h3>The search, step by step</h3>
          <p class="muted">
            A column for each step, the likeliest beginnings on top. Filled boxes were kept, a double frame ended a text, a dagger marks a
            beginning of which nothing was kept; the thick line is the best text.{go && " Press a box to go on from it; arrow keys go from box to box."}
          </p>
          <Results row={row} />
          <TreeOf row={row} {...(go && { pick: (box) => go([...tokensTo(row, box.parent), box.one.token]) })} />
          <details>
            <summary>All steps as tables</summary>
            <Steps row={row} method="beam" />
          </details>
        </div>
      )}
    </section>
  );
}

function Said({ prompt, run, at, going }: { prompt: string; run: Run; at: number; going: boolean }) {
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(run.tokens.length - 1, at + step));
    setParameters({ lock: String(next) });
    const list = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelectorAll<HTMLElement>("[role=button]")[next]?.focus());
  };
  return (
    <div class="generation-text" dir="auto">
      <span class="muted">{prompt}</span>
      {!run.continues && "\n"}
      <span role="group" aria-label="What was said; left and right go through the tokens" onKeyDown={move}>
        {run.tokens.map((token, number) => (
          <Piece key={number} token={token} chosen={number === at} setParameters={() => setParameters({ lock: String(number) })} />
        ))}
      </span>
      {run.progress && !run.tokens.length && <span class="generation-yet">{run.progress.text}</span>}
      {going && <span class="generation-cursor" aria-hidden="true" />}
    </div>
  );
}

function Piece({ token, chosen, setParameters: press }: { token: Token; chosen: boolean; setParameters(): void }) {
  const share = token.bars.find((bar) => bar.token === token.id)?.probability ?? 0;
  return (
    <span
      role="button"
      tabIndex={chosen ? 0 : -1}
      aria-pressed={chosen}
      class={token.text ? "" : "generation-hollow"}
      style={{ "--doubt": `${Math.round(26 * (1 - share))}%` }}
      title={`${quoted(token.name)}, ${percent(share)}`}
      onClick={press}
      onKeyDown={(event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), press())}
    >
      {token.text || visible(token.name)}
    </span>
  );
}
