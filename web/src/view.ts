// The interface of a view; views/index.ts lists all views.
import type { ComponentChildren, ComponentType } from "preact";
import type { Capability } from "./api";
import type { Painter } from "./painter";
import type { Route } from "./route";
import type { ModelState, Verbs } from "./types";

/** A result with what the page needs around it; the same in the studio and in an exported file. */
export interface Payload {
  readonly view: string;
  readonly notes: readonly string[];
  readonly cli: string;
  readonly python: string;
  /** The route at which an exported file opens. */
  readonly place?: string;
  /** The theme of a view inside a chapter, which is that of the chapter. */
  readonly theme?: "light" | "dark";
  /** Title of an exported file, if it is not the view's own. */
  readonly title?: string;
}

/** The data of a verb's view. */
export type ViewOf<Name extends keyof Verbs> = Verbs[Name] & Payload;

/** The values of a view's form, which are the parameters of its route. */
export type Arguments = Readonly<Record<string, string>>;

/** One argument of a view; the studio shows a form field for it. */
export interface Field {
  readonly name: string;
  readonly label: string;
  readonly lines?: number;
  readonly optional?: boolean;
  /** Set inside the view; not part of the form. */
  readonly hidden?: boolean;
  /** Shown only on demand while it has its initial value. */
  readonly fold?: boolean;
  /** The value is the name of one of the studio's models, or empty. */
  readonly model?: boolean;
  /** The value is an uploaded image; shown instead of the other fields if the model takes images. */
  readonly image?: boolean;
  /** Shown beside the image if the model takes images. */
  readonly withImage?: boolean;
  /** No request is made while the field is empty; this tells the user what to do. */
  readonly required?: string;
  /** Initial value. */
  readonly start: string;
}

/** A picture that can be drawn on a canvas or into a file. */
export interface Drawing {
  readonly width: number;
  readonly height: number;
  draw(painter: Painter): void;
}

/** Rows of a CSV or JSON file. */
export interface Table {
  readonly headers: readonly string[];
  readonly rows: readonly (readonly (string | number)[])[];
}

/** The groups of the studio's menu, in this order. */
export const GROUPS = {
  inside: { title: "Look inside", about: "What happens between the first and the last layer." },
  predict: { title: "Predict", about: "What a model expects, writes and translates." },
  vectors: { title: "Vectors", about: "Words and sentences as points in space." },
  tasks: { title: "Tasks", about: "Models fine-tuned for a task, and whether to trust them." },
} as const;

export type Group = keyof typeof GROUPS;

/** An example to press. A view opens on the first one for which the studio has a model. */
export interface Example {
  /** A few words; the text of the button. */
  readonly label: string;
  /** Values of the form; the other fields are empty. */
  readonly values: Arguments;
  /** What is selected in the result: parameters of the route such as `layer`, `heads` or `token`. */
  readonly select?: Arguments;
  /** The model that shows it. If the studio has none of that name, the view's own model is used, without `select`. */
  readonly model?: string;
  /** What the model must be able to do, if not every model of the view can. */
  readonly needs?: Capability;
}

/** Which parameters of a view hold what goes from view to view. */
export interface Travel {
  /** The field of the sentence; without it, the view starts with its own. */
  readonly text?: string;
  readonly second?: string;
  /** Whether `layer` is a layer of the model, from 1. */
  readonly layer?: boolean;
  /** Whether the view selects the word that the parameter `token` names. */
  readonly token?: boolean;
}

/** What a model must be able to do for a view, and what the page says if it cannot. */
export interface Need {
  readonly capability: Capability;
  /** Continues the name of a model that cannot. */
  readonly without: string;
  /** Precedes links to models that can. */
  readonly models: string;
  /** If there are none. */
  readonly advice: string;
}

/** A page of the studio that is not the result of a verb, such as the home page. */
export interface Page {
  /** Name in routes. */
  readonly name: string;
  readonly title: string;
  readonly Show: ComponentType<{ models: readonly ModelState[]; views: readonly View[] }>;
}

export interface View<P extends Payload = Payload> {
  /** Name of the view in payloads and routes. */
  readonly name: string;
  /** The verb that computes it; without one, the view only shows results of the command line. */
  readonly verb?: keyof Verbs;
  readonly title: string;
  /** One sentence; the first thing a user reads. */
  readonly about: string;
  /** "inside" if omitted. */
  readonly group?: Group;
  /** Four to six. */
  readonly examples?: readonly Example[];
  readonly travels?: Travel;
  /**
   * A small picture of what the view shows: the content of an SVG element of 96 x 60, in `currentColor` and the CSS
   * variables.
   */
  Thumbnail?(): ComponentChildren;
  /** The result in one sentence, the headline above it; it names the model. Empty if there is nothing to say. */
  finding?(payload: P, route: Route): string;
  /** The word that is selected in the result, for views with `travels.token`. */
  token?(payload: P, route: Route): string | null;
  /** Named as the fields of the verb's request, unless `toRequest` converts them. */
  readonly fields: readonly Field[];
  readonly needs?: Need;
  /** A model that can do one of these is not offered. */
  readonly excludes?: readonly Capability[];
  /** What the model that is selected first can do, or the task it is fine-tuned for, in order of preference. */
  readonly prefers?: readonly (Capability | "classify")[];
  /** `Show` has its own form; the studio's is shown only after an error. */
  readonly ownForm?: boolean;
  /** Label of the submit button; "Show" if omitted. */
  readonly submitLabel?: string;
  /** The request of the verb, if it is not just the arguments. */
  toRequest?(args: Arguments, takesImages: boolean): object;
  /** Makes the requests of a view that needs several; `show` displays what there is so far. */
  load?(args: Arguments, show: (payload: P) => void, signal: AbortSignal): Promise<P>;
  readonly Show: ComponentType<{ payload: P }>;
  /** Shown below the result, or in place of it, only in the studio. */
  readonly Below?: ComponentType<{ payload: P | null; args: Arguments; model: ModelState | undefined }>;
  /** SVG and PNG export of what the route selects. */
  drawing(payload: P, route: Route): Drawing;
  /** CSV and JSON export of what the route selects. */
  table(payload: P, route: Route): Table;
}

/** The views of each group that has some. */
export function groupViews(views: readonly View[]): readonly (readonly [Group, readonly View[]])[] {
  const names = Object.keys(GROUPS) as Group[];
  return names
    .map((group) => [group, views.filter((view) => (view.group ?? "inside") === group)] as const)
    .filter(([, list]) => list.length);
}
