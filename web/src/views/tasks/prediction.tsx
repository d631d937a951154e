// What the model said of one example: shares as bars, entities and answers where they stand. Knows no server.
import { setParameters, currentRoute, integerParameter } from "../../route";
import { colors, series } from "../../theme";
import { cut, percent, shares, summary, type Said, type Span, type Tasks } from "./payload";

export function Told({ said, model }: { said: Said; model: NonNullable<Tasks["model"]> }) {
  const { prediction } = said;
  return (
    <section class="task-told" aria-label="Prediction">
      {said.image && <img class="task-told-image" src={said.image} alt={said.texts[0] ?? ""} />}
      {prediction.entities ? (
        <Entities said={said} />
      ) : prediction.nbest ? (
        <Answers said={said} />
      ) : (
        <>
          <p class="task-verdict">{summary(said)}</p>
          {!said.image && <Texts texts={model.task === "choose" ? said.texts.slice(0, 1) : said.texts} />}
          <Bars pairs={shares(said)} />
          {model.several && <p class="muted">Several labels may hold at once: each share stands for itself, and one of 50% or more is said.</p>}
        </>
      )}
    </section>
  );
}

function Texts({ texts }: { texts: readonly string[] }) {
  return (
    <>
      {texts.map((text, number) => (
        <blockquote key={number} dir="auto">
          {text}
        </blockquote>
      ))}
    </>
  );
}

export function Bars({ pairs }: { pairs: readonly (readonly [string, number])[] }) {
  if (!pairs.length) return null;
  return (
    <table class="task-bars">
      <thead class="task-away">
        <tr>
          <th>Label</th>
          <th>Bar</th>
          <th>Probability</th>
        </tr>
      </thead>
      <tbody>
        {pairs.map(([name, share], number) => (
          <tr key={number}>
            <th scope="row" dir="auto">
              {name}
            </th>
            <td class="task-bar">
              <div style={{ width: `${100 * share}%` }} />
            </td>
            <td class="task-number" title={String(share)}>
              {percent(share)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A text in which some parts are marked. */
function Marked({ text, spans, mark }: { text: string; spans: readonly Span[]; mark(span: Span, said: string): preact.JSX.Element }) {
  const parts: (string | preact.JSX.Element)[] = [];
  let end = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    parts.push(cut(text, end, span.start), mark(span, cut(text, span.start, span.end)));
    end = span.end;
  }
  parts.push(cut(text, end));
  return (
    <p class="task-marked" dir="auto">
      {parts}
    </p>
  );
}

function Entities({ said }: { said: Said }) {
  colors.use();
  const entities = said.prediction.entities ?? [];
  const labels = [...new Set(entities.map((one) => one.label))].sort();
  const tint = (label: string) => series(labels.indexOf(label));
  const label = (span: Span) => entities.find((one) => one.start === span.start)?.label ?? "";
  return (
    <>
      <p class="task-verdict">
        {entities.length === 1 ? "1 entity" : `${entities.length} entities`}
      </p>
      <Marked
        text={said.texts[0] ?? ""}
        spans={entities}
        mark={(span, text) => (
          <mark key={span.start} class="task-entity" style={{ "--tint": tint(label(span)) }} title={`${label(span)} ${span.probability}`}>
            {text} <small>{label(span)}</small>
          </mark>
        )}
      />
      <table class="task-bars">
        <thead>
          <tr>
            <th>Entity</th>
            <th>Label</th>
            <th class="task-number">Probability</th>
          </tr>
        </thead>
        <tbody>
          {entities.map((one) => (
            <tr key={one.start}>
              <th scope="row" dir="auto">
                {one.text}
              </th>
              <td>
                <span class="task-dot" style={{ background: tint(one.label) }} aria-hidden="true" /> {one.label}
              </td>
              <td class="task-number" title={String(one.probability)}>
                {percent(one.probability)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function Answers({ said }: { said: Said }) {
  const { parameters } = currentRoute.use();
  const { prediction, texts } = said;
  const best = prediction.nbest ?? [];
  const own = Math.max(0, best.findIndex((one) => one.start === prediction.start && one.end === prediction.end));
  const number = integerParameter(parameters, "answer", best.length, own);
  const span = best[number];
  return (
    <>
      <p class="muted" dir="auto">{texts[0]}</p>
      <p class="task-verdict" dir="auto">{summary(said)}</p>
      <Marked
        text={texts[1] ?? ""}
        spans={span && span.end > span.start ? [span] : []}
        mark={(one, text) => <mark key={one.start} class="task-answer" title={String(one.probability)}>{text}</mark>}
      />
      <h3>Best answers</h3>
      <ol class="task-nbest">
        {best.map((one, place) => (
          <li key={place}>
            <button type="button" aria-pressed={place === number} onClick={() => setParameters({ answer: String(place) })}>
              <span class="task-share" style={{ width: `${100 * one.probability}%` }} aria-hidden="true" />
              <span dir="auto">{one.answer || "no answer"}</span>
              <span class="task-number" title={String(one.probability)}>{percent(one.probability)}</span>
            </button>
          </li>
        ))}
      </ol>
      {prediction.margin !== undefined && prediction.margin !== null && (
        <p class="muted">The best answer beats no answer by {prediction.margin.toFixed(2)}.</p>
      )}
    </>
  );
}
