// The home page: what Regard is, and the ways into it: the course, the views, the models and the texts used last.
import { useState } from "preact/hooks";
import { useOutline } from "./learn/learn";
import { describeModel } from "./models";
import { addressOf, clearRecent, recentTexts, shared } from "./travel";
import type { ModelState } from "./types";
import { GROUPS, groupViews, type Page, type View } from "./view";

function Show({ models, views }: { models: readonly ModelState[]; views: readonly View[] }) {
  const carried = shared.use();
  const [course] = useOutline("");
  return (
    <div class="home">
      <section class="hero">
        <svg viewBox="0 0 420 120" aria-hidden="true">
          <path d="M330 92C300 8 120 8 90 92" />
          {["The", "animal", "…", "because", "it", "was"].map((word, at) => (
            <text
              key={word}
              x={[30, 90, 150, 230, 330, 390][at]}
              y="116"
              class={word === "it" || word === "animal" ? "strong" : ""}
            >
              {word}
            </text>
          ))}
        </svg>
        <h1>See what a language model does with your sentence.</h1>
        <p>
          Regard trains, uses and looks inside transformer language models, from recurrent attention to BERT and GPT.
          Every number on these pages is computed on this machine; nothing leaves it.
        </p>
        <p class="ways">
          <a class="button main" href={addressOf(views[0]!, models, carried)}>
            Start with attention
          </a>
          <a class="button" href="#learn">
            Take the course
          </a>
        </p>
      </section>
      <Recent />
      <section aria-labelledby="home-course">
        <h2 id="home-course">The course</h2>
        <p class="muted">Ten chapters with live views, exercises and the code.</p>
        <ol class="cards chapters" aria-busy={!course}>
          {(course?.chapters ?? []).map(({ name, title, summary }, number) => (
            <li key={name}>
              <a class="card" href={`#learn?chapter=${name}`}>
                <b aria-hidden="true">{number + 1}</b>
                <strong>{title}</strong>
                <span>{summary}</span>
              </a>
            </li>
          ))}
        </ol>
      </section>
      {groupViews(views).map(([group, list]) => (
        <section key={group} aria-labelledby={`home-${group}`}>
          <h2 id={`home-${group}`}>{GROUPS[group].title}</h2>
          <p class="muted">{GROUPS[group].about}</p>
          <ul class="cards">
            {list.map((view) => (
              <li key={view.name}>
                <a class="card" href={addressOf(view, models, carried)}>
                  <Thumbnail view={view} />
                  <strong>{view.title}</strong>
                  <span>{view.about}</span>
                </a>
              </li>
            ))}
          </ul>
        </section>
      ))}
      <section aria-labelledby="home-models">
        <h2 id="home-models">Models</h2>
        <p class="muted">On this machine now. `regard studio --model DIR` adds others.</p>
        <ul class="cards models">
          {models.map((model) => (
            <li key={model.name}>
              <div class={`card model ${model.state}`}>
                <strong>
                  <span class={`dot ${model.state}`} aria-hidden="true" /> {model.name}
                </strong>
                <span>{model.error || describeModel(model)}</span>
                {model.state === "loading" && <span class="muted">is loading …</span>}
              </div>
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}

function Thumbnail({ view: { Thumbnail: Picture } }: { view: View }) {
  return (
    <svg class="thumb" viewBox="0 0 96 60" aria-hidden="true">
      {Picture ? <Picture /> : <rect x="8" y="8" width="80" height="44" rx="6" fill="currentColor" opacity=".15" />}
    </svg>
  );
}

function Recent() {
  const [texts, setTexts] = useState(recentTexts);
  if (!texts.length) return null;
  return (
    <section aria-labelledby="home-recent">
      <h2 id="home-recent">Your last texts</h2>
      <ul class="recent">
        {texts.map((one) => (
          <li key={one.address}>
            <a href={one.address} dir="auto">
              {one.text}
            </a>{" "}
            <span class="muted">{one.title}</span>
          </li>
        ))}
      </ul>
      <button
        type="button"
        onClick={() => {
          clearRecent();
          setTexts([]);
        }}
      >
        Forget them
      </button>
    </section>
  );
}

export const home: Page = { name: "home", title: "Home", Show };
