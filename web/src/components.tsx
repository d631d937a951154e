// Controls, tables and messages that several views share.
import type { ComponentChildren } from "preact";
import { layerNumbers } from "./format";
import { formatRoute, type Route } from "./route";

/** Labels by value, values that are their own labels, or pairs of both. */
type Options =
  | Readonly<Record<string, ComponentChildren>>
  | readonly string[]
  | readonly (readonly [string, ComponentChildren])[];

interface ButtonGroupProps {
  readonly title: string;
  readonly options: Options;
  readonly value: string;
  onSelect(value: string): void;
}

/** Buttons of which one is pressed. */
export function ButtonGroup({ title, options, value, onSelect }: ButtonGroupProps) {
  return (
    <fieldset>
      <legend>{title}</legend>
      <span class="group">
        {optionEntries(options).map(([name, label]) => (
          <button key={name} type="button" aria-pressed={name === value} onClick={() => onSelect(name)}>
            {label}
          </button>
        ))}
      </span>
    </fieldset>
  );
}

interface SelectProps {
  readonly label: string;
  /** A number stands for so many options, numbered from 0. */
  readonly options: Options | number;
  readonly value: string | number;
  readonly name?: string;
  /** Accessible name, if it is not the label. */
  readonly ariaLabel?: string;
  /** An option before the others whose value is empty. */
  readonly empty?: string;
  readonly class?: string;
  onSelect(value: string): void;
}

export function Select({ label, options, value, name, ariaLabel, empty, class: className, onSelect }: SelectProps) {
  const entries =
    typeof options === "number"
      ? Array.from({ length: options }, (_, i) => [String(i), i] as const)
      : optionEntries(options);
  // The text of the label element would include the options.
  const attributes = { ...(name && { name }), "aria-label": ariaLabel ?? label };
  return (
    <label {...(className && { class: className })}>
      {label && <span>{label}</span>}
      <select {...attributes} value={String(value)} onChange={(event) => onSelect(event.currentTarget.value)}>
        {empty !== undefined && <option value="">{empty}</option>}
        {entries.map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

function optionEntries(options: Options): (readonly [string, ComponentChildren])[] {
  if (!Array.isArray(options)) return Object.entries(options as Readonly<Record<string, ComponentChildren>>);
  return (options as readonly (string | readonly [string, ComponentChildren])[]).map((one) =>
    typeof one === "string" ? [one, one] : one,
  );
}

interface LayerSelectProps {
  readonly layer: number;
  readonly layers: number;
  onSelect(layer: string): void;
}

/** A layer, from 1, with buttons for the next and the previous one. */
export function LayerSelect({ layer, layers, onSelect }: LayerSelectProps) {
  if (layers < 2) return null;
  const step = (change: number, name: string, sign: string) => (
    <button
      type="button"
      aria-label={name}
      disabled={layer + change < 1 || layer + change > layers}
      onClick={() => onSelect(String(layer + change))}
    >
      {sign}
    </button>
  );
  return (
    <fieldset>
      <legend>Layer</legend>
      <span class="group">
        {step(-1, "Layer below", "−")}
        <Select
          label=""
          ariaLabel="Layer"
          options={layerNumbers(layers).map(String)}
          value={layer}
          onSelect={onSelect}
        />
        {step(1, "Layer above", "+")}
      </span>
    </fieldset>
  );
}

/** A cell with attributes, such as a class. */
export interface Cell {
  readonly content: ComponentChildren;
  readonly [attribute: string]: unknown;
}

interface DataTableProps {
  readonly headers?: readonly (ComponentChildren | Cell)[];
  /** The first cell of a row is its header. */
  readonly rows: readonly (readonly (ComponentChildren | Cell)[])[];
  readonly caption?: ComponentChildren;
  /** Makes the table a scrollable region with this name. */
  readonly label?: string;
  /** "data-table" if omitted. */
  readonly class?: string;
  /** A row below the others. */
  readonly footer?: readonly (ComponentChildren | Cell)[];
  /** Attributes of a row. */
  rowProps?(row: number): object;
}

export function DataTable({ headers, rows, footer, caption, label, class: className, rowProps }: DataTableProps) {
  const table = (
    <table class={className ?? "data-table"}>
      {caption && <caption class="muted">{caption}</caption>}
      {headers && (
        <thead>
          <tr>
            {headers.map((header, column) => {
              const { content, ...attributes } = asCell(header);
              return (
                <th key={column} scope="col" {...attributes}>
                  {content}
                </th>
              );
            })}
          </tr>
        </thead>
      )}
      <tbody>
        {rows.map((row, number) => (
          <tr key={number} {...rowProps?.(number)}>
            <RowCells cells={row} />
          </tr>
        ))}
      </tbody>
      {footer && (
        <tfoot>
          <tr>
            <RowCells cells={footer} />
          </tr>
        </tfoot>
      )}
    </table>
  );
  return label ? <ScrollRegion label={label}>{table}</ScrollRegion> : table;
}

function RowCells({ cells }: { cells: readonly (ComponentChildren | Cell)[] }) {
  return (
    <>
      {cells.map((value, column) => {
        const { content, ...attributes } = asCell(value);
        return column ? (
          <td key={column} {...attributes}>
            {content}
          </td>
        ) : (
          <th key={column} scope="row" dir="auto" {...attributes}>
            {content}
          </th>
        );
      })}
    </>
  );
}

function asCell(value: ComponentChildren | Cell): Cell {
  return value !== null && typeof value === "object" && "content" in value
    ? (value as Cell)
    : { content: value as ComponentChildren };
}

/** A region that scrolls sideways and can be focused. */
export function ScrollRegion({
  label,
  class: className,
  children,
}: {
  label: string;
  class?: string;
  children: ComponentChildren;
}) {
  return (
    <div class={className ? `wide ${className}` : "wide"} tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}

export function Notes({ notes, class: className }: { notes: readonly string[]; class?: string }) {
  return (
    <>
      {notes.map((note) => (
        <p key={note} {...(className && { class: className })}>
          {note}
        </p>
      ))}
    </>
  );
}

export function ErrorMessage({ text }: { text: string }) {
  return text ? (
    <p role="alert" class="error">
      {text}
    </p>
  ) : null;
}

/** Links to a view with each of some models, separated by commas. */
export function ModelLinks({ names, view, parameters }: { names: readonly string[] } & Route) {
  return (
    <>
      {names.map((name, number) => (
        <span key={name}>
          {number > 0 && ", "}
          <a href={formatRoute({ view, parameters: { ...parameters, model: name } })}>{name}</a>
        </span>
      ))}
    </>
  );
}

/** A token in running text: isolated from the text direction around it. */
export function Token({ text }: { text: string | undefined }) {
  return <bdi class="token">{text}</bdi>;
}
