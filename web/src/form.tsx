// The bar above every result: the text, the model and the other arguments of a view, and examples to press.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { uploadImage } from "./api";
import { ErrorMessage, Select } from "./components";
import { useMedia } from "./media";
import { describeModel, suits, takesImages } from "./models";
import { EXAMPLE_IMAGES } from "./patch_pictures";
import { currentRoute, formatRoute, frameParameters } from "./route";
import { exampleRoute } from "./travel";
import type { ModelState } from "./types";
import type { Arguments, Field, View } from "./view";

const MAX_SUBMIT_LINES = 2; // in taller text boxes, Enter starts a new line
const SHORT = 12; // characters
const NARROW = "(max-width: 820px)";

interface FormProps {
  readonly view: View;
  readonly models: readonly ModelState[];
  readonly args: Arguments;
  /**
   * Why the last request failed; shown at its field. Hidden fields with a value are shown then, since one of them may
   * be the cause.
   */
  readonly error: string;
  submit(args: Arguments): void;
}

export function Form({ view, models, args, error, submit }: FormProps) {
  const [values, setValues] = useState(args);
  const [open, setOpen] = useState(false);
  // A tall field grows when it gets the focus and stays so: if it shrank again, what is pressed next would move away.
  const [editing, setEditing] = useState(false);
  const narrow = useMedia(NARROW);
  // The arguments change when an example or a link is followed; what was submitted here is in the fields already.
  useEffect(() => setValues(args), [args]);
  const change = (name: string) => (value: string) => setValues({ ...values, [name]: value });
  const onEnter = (event: KeyboardEvent, lines: number) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    if (lines > MAX_SUBMIT_LINES && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    submit(values);
  };
  const model = models.find((one) => one.name === values["model"]);
  const images = view.fields.some((field) => field.image) && takesImages(model);
  const fields = view.fields.filter(
    (field) => (!field.hidden || (error && args[field.name])) && (field.image ? images : !images || field.withImage),
  );
  const names = models.filter((one) => one.name === values["model"] || suits(view, one)).map((one) => one.name);
  const faulty = error ? faultyField(error, fields) : undefined;
  /** A folded field has its initial value, and is shown with the others on demand. */
  const folded = (field: Field, number: number) => {
    const value = values[field.name] ?? "";
    if (number === 0 || field.image || field === faulty) return false;
    return field.fold ? value === field.start || !value : narrow && !!field.optional && !value;
  };
  const shown = fields.filter((field, number) => open || !folded(field, number));
  const modelSelect = (name: string, label: string, empty?: string) => (
    <Select
      key={name}
      class="field model"
      name={name}
      label={label}
      options={names}
      value={values[name] ?? ""}
      onSelect={change(name)}
      {...(empty && { empty })}
    />
  );
  const describe = (field: Field) =>
    field === faulty ? { "aria-invalid": true, "aria-describedby": "field-error" } : {};
  const input = (field: Field) => (
    <label class={field.optional ? "field optional" : (field.lines ?? 1) > MAX_SUBMIT_LINES ? "field many" : "field"}>
      <span>{field.label}</span>
      <textarea
        name={field.name}
        rows={1}
        dir="auto"
        spellcheck={false}
        value={values[field.name] ?? ""}
        onInput={(event) => change(field.name)(event.currentTarget.value)}
        onKeyDown={(event) => onEnter(event, field.lines ?? 1)}
        onFocus={() => setEditing(true)}
        style={{ "--lines": field.lines ?? 1 }}
        {...describe(field)}
      />
    </label>
  );
  const control = (field: Field): ComponentChildren => {
    if (field.model) return modelSelect(field.name, field.label, "none");
    if (!field.image) return input(field);
    return (
      <ImageUpload
        label={field.label}
        uploaded={values[field.name] ?? ""}
        onUpload={(image) => submit({ ...values, [field.name]: image })}
      />
    );
  };
  return (
    <form
      class={editing ? "request-form editing" : "request-form"}
      aria-label="Text and model"
      onSubmit={(event) => {
        event.preventDefault();
        submit(values);
      }}
    >
      {shown.map((field) => (
        <div
          key={field.name}
          class={`slot ${isShort(field) ? "short" : field.optional ? "small" : ""} ${field.model ? "models" : ""}`}
        >
          {control(field)}
          {field === faulty && (
            <div id="field-error">
              <ErrorMessage text={error} />
            </div>
          )}
        </div>
      ))}
      <div class="slot models" title={model && describeModel(model)}>
        {modelSelect("model", "Model")}
      </div>
      {fields.some(folded) || open ? (
        <button type="button" class="more" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Fewer" : "More"}
        </button>
      ) : null}
      <button type="submit" class="main">
        {view.submitLabel ?? "Show"}
      </button>
      {error && !faulty && <ErrorMessage text={error} />}
    </form>
  );
}

/** Whether a few characters are enough for a field. */
const isShort = ({ start, lines, optional, fold }: Field) =>
  !lines && (fold || !optional) && start !== "" && start.length <= SHORT;

/** The field that an error is about: the one it begins with, or the first; none if the studio does not answer. */
function faultyField(error: string, fields: readonly Field[]): Field | undefined {
  if (/^[Tt]he studio (does not answer|is busy)/.test(error)) return undefined;
  return (
    fields.find((field) => new RegExp(`(^|\\n)${field.name}\\b`).test(error)) ?? fields.find((field) => !field.hidden)
  );
}

/** Examples to press: each fills the fields, and may select a model and something in its result. */
export function Examples({ view, models, args }: { view: View; models: readonly ModelState[]; args: Arguments }) {
  const examples = (view.examples ?? []).filter((example) => !example.values["image"] || models.some(takesImages));
  if (!examples.length) return null;
  const route = currentRoute.use();
  const frame = frameParameters(route);
  return (
    <nav class="try" aria-label="Examples">
      <span class="muted">Try</span>
      {examples.map((example) => {
        const { parameters, ...rest } = exampleRoute(view, example, models, args["model"]);
        const current = Object.entries({ ...args, ...route.parameters, ...parameters }).every(
          ([name, value]) => name in frame || (route.parameters[name] ?? args[name] ?? "") === value,
        );
        return (
          <a
            key={example.label}
            class="chip"
            href={formatRoute({ ...rest, parameters: { ...parameters, ...frame } })}
            {...(current && { "aria-current": "true" as const })}
          >
            {example.label}
          </a>
        );
      })}
    </nav>
  );
}

/** An image is uploaded and submitted as soon as it is chosen. */
function ImageUpload({
  label,
  uploaded,
  onUpload,
}: {
  label: string;
  uploaded: string;
  onUpload(image: string): void;
}) {
  const [error, setError] = useState("");
  const send = (file: File | undefined) => {
    setError("");
    if (file) uploadImage(file).then(onUpload, (problem: Error) => setError(problem.message));
  };
  return (
    <div class="field">
      <label>
        <span>{label}</span>
        <input type="file" accept="image/png,image/jpeg" onChange={(event) => send(event.currentTarget.files?.[0])} />
      </label>
      <select
        aria-label="Example image"
        value={EXAMPLE_IMAGES.includes(uploaded) ? uploaded : ""}
        onChange={(event) => event.currentTarget.value && onUpload(event.currentTarget.value)}
      >
        <option value="">{uploaded.slice(uploaded.indexOf("/") + 1) || "or an example"}</option>
        {EXAMPLE_IMAGES.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
      <ErrorMessage text={error} />
    </div>
  );
}
