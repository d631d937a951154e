// What a view is. Knows no view: views/index.ts lists them.
import type { ComponentType } from "preact";
import type { Kind } from "./api";
import type { Route } from "./route";
import type { Painter } from "./painter";

/** What the library answers; the same in the studio and in an exported file. */
export interface Payload {
  readonly view: string;
  readonly cli: string;
  readonly python: string;
  /** Where an exported file opens. */
  readonly place?: string;
  /** What stands above an exported file, where that is not the view's own title. */
  readonly title?: string;
}

/** One argument of a view, which the studio asks for in a form. */
export interface Field {
  readonly name: string;
  readonly label: string;
  readonly lines?: number;
  readonly optional?: boolean;
  /** It is chosen inside the view, beside the answer. */
  readonly hidden?: boolean;
  /** It names one of the studio's models, or none. */
  readonly model?: boolean;
  /** It is a picture of the user's, asked for instead of the other fields where the model looks at pictures. */
  readonly picture?: boolean;
  /** What stands there at first. */
  readonly start: string;
}

/** A picture that can be drawn on a screen or into a file. */
export interface Drawing {
  readonly width: number;
  readonly height: number;
  draw(painter: Painter): void;
}

/** The numbers that are shown, as rows under headers. */
export interface Table {
  readonly headers: readonly string[];
  readonly rows: readonly (readonly (string | number)[])[];
}

export interface View<P extends Payload = Payload> {
  /** The view's name in the payload, in POST /api/NAME and in the address. */
  readonly name: string;
  readonly title: string;
  readonly about: string;
  readonly fields: readonly Field[];
  /** Whether the studio asks for one of its models. */
  readonly model: boolean;
  /** Kinds of models it can show, the most telling first; otherwise all. */
  readonly suits?: readonly Kind[];
  /** It has a form of its own in `Show`; the studio's stands there only where a question was refused. */
  readonly form?: boolean;
  /** What the button says that asks; otherwise "Look". */
  readonly verb?: string;
  readonly Show: ComponentType<{ payload: P }>;
  /** For SVG and PNG: what is shown at this place. */
  drawing(payload: P, place: Route): Drawing;
  /** For CSV and JSON: the numbers shown at this place. */
  table(payload: P, place: Route): Table;
}
