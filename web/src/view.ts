// The interface of a view; views/index.ts lists all views.
import type { ComponentType } from "preact";
import type { Kind } from "./api";
import type { Painter } from "./painter";
import type { Route } from "./route";

/** A result with what the page needs around it; the same in the studio and in an exported file. */
export interface Payload {
  readonly view: string;
  readonly cli: string;
  readonly python: string;
  /** The route at which an exported file opens. */
  readonly place?: string;
  /** Title of an exported file, if it is not the view's own. */
  readonly title?: string;
}

/** One argument of a view; the studio shows a form field for it. */
export interface Field {
  readonly name: string;
  readonly label: string;
  readonly lines?: number;
  readonly optional?: boolean;
  /** Set inside the view; not part of the form. */
  readonly hidden?: boolean;
  /** The value is the name of one of the studio's models, or empty. */
  readonly model?: boolean;
  /** The value is an uploaded image; shown instead of the other fields if the model takes images. */
  readonly image?: boolean;
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

export interface View<P extends Payload = Payload> {
  /** Name of the view in payloads, requests and routes. */
  readonly name: string;
  readonly title: string;
  readonly about: string;
  readonly fields: readonly Field[];
  /** Whether the view takes one of the studio's models. */
  readonly model: boolean;
  /** Kinds of models the view can show, in order of preference; all if omitted. */
  readonly kinds?: readonly Kind[];
  /** `Show` has its own form; the studio's is shown only after an error. */
  readonly ownForm?: boolean;
  /** Label of the submit button; "Show" if omitted. */
  readonly submitLabel?: string;
  readonly Show: ComponentType<{ payload: P }>;
  /** SVG and PNG export of what the route selects. */
  drawing(payload: P, route: Route): Drawing;
  /** CSV and JSON export of what the route selects. */
  table(payload: P, route: Route): Table;
}
