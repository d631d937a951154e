// The studio's menu: grouped in one line, as a side bar where there is room, behind one button on a phone.
import { useMedia } from "./media";
import { Menu } from "./menu";
import { ModelStates } from "./models";
import { pages } from "./pages";
import { ThemeSwitch } from "./theme";
import { addressOf, shared } from "./travel";
import type { ModelState } from "./types";
import { GROUPS, groupViews, type View } from "./view";

const WIDE = "(min-width: 1600px)";
const NARROW = "(max-width: 820px)";

interface Props {
  readonly views: readonly View[];
  readonly models: readonly ModelState[];
  /** Name of the view or page that is shown. */
  readonly current: string;
}

export function Navigation(props: Props) {
  const [wide, narrow] = [useMedia(WIDE), useMedia(NARROW)];
  const brand = (
    <a class="brand" href="#home">
      <svg viewBox="0 0 24 24" aria-hidden="true">
        <path d="M2 12C6 4 18 4 22 12C18 20 6 20 2 12Z" />
        <circle cx="12" cy="12" r="4" />
      </svg>
      Regard
    </a>
  );
  if (wide) {
    return (
      <header class="side">
        {brand}
        <nav aria-label="Views">
          <PageLinks {...props} />
          {groupViews(props.views).map(([group, views]) => (
            <section key={group} aria-label={GROUPS[group].title}>
              <h2>{GROUPS[group].title}</h2>
              <Links {...props} views={views} />
            </section>
          ))}
        </nav>
        <Models models={props.models} />
        <ThemeSwitch />
      </header>
    );
  }
  const menus = groupViews(props.views).map(([group, views]) => (
    <Menu key={group} label={GROUPS[group].title} current={views.some((view) => view.name === props.current)}>
      <p class="muted">{GROUPS[group].about}</p>
      <Links {...props} views={views} about />
    </Menu>
  ));
  if (!narrow) {
    return (
      <header class="top">
        {brand}
        <nav aria-label="Views">
          <PageLinks {...props} />
          {menus}
        </nav>
        <Models models={props.models} />
        <ThemeSwitch />
      </header>
    );
  }
  return (
    <header class="top">
      {brand}
      <Menu label="Menu" class="whole">
        <nav aria-label="Views">
          <PageLinks {...props} />
          {groupViews(props.views).map(([group, views]) => (
            <section key={group}>
              <h2>{GROUPS[group].title}</h2>
              <Links {...props} views={views} />
            </section>
          ))}
        </nav>
        <h2>Models</h2>
        <ModelStates models={props.models} />
        <ThemeSwitch />
      </Menu>
    </header>
  );
}

const isCurrent = (name: string, current: string) => name === current && { "aria-current": "page" as const };

function PageLinks({ current }: Props) {
  return (
    <>
      {pages.map((page) => (
        <a key={page.name} href={`#${page.name}`} {...isCurrent(page.name, current)}>
          {page.title}
        </a>
      ))}
    </>
  );
}

function Links({ views, models, current, about = false }: Props & { about?: boolean }) {
  const carried = shared.use();
  return (
    <>
      {views.map((view) => (
        <a key={view.name} href={addressOf(view, models, carried)} {...isCurrent(view.name, current)}>
          {view.title}
          {about && <small>{view.about}</small>}
        </a>
      ))}
    </>
  );
}

/** All models and their states; a dot shows if one of them is not ready. */
function Models({ models }: { models: readonly ModelState[] }) {
  const state = ["failed", "loading"].find((one) => models.some((model) => model.state === one)) ?? "ready";
  return (
    <Menu
      class="models"
      label={
        <>
          <span class={`dot ${state}`} aria-hidden="true" /> Models
        </>
      }
    >
      <ModelStates models={models} />
    </Menu>
  );
}
