// A view in the studio: the bar with its arguments, the request they make, and the result.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { can, refreshModels, runVerb, type VerbEvent } from "./api";
import { ErrorMessage } from "./components";
import { ViewWithExports } from "./export_panel";
import { Examples, Form } from "./form";
import { defaultModel, takesImages, Unsuited } from "./models";
import { currentRoute, formatRoute, frameOf, navigate, type Route, withoutEmpty } from "./route";
import { remember, routeWith, type Shared, shared, sharedBy, startParameters } from "./travel";
import type { ModelState } from "./types";
import type { Arguments, Payload, View } from "./view";

interface Result {
  readonly payload: Payload;
  readonly args: Arguments;
}

interface Props {
  readonly view: View;
  /** All views of the menu. */
  readonly views: readonly View[];
  readonly models: readonly ModelState[];
}

/** The route holds the arguments, so a link repeats the request. */
export function ViewRequest({ view, views, models }: Props) {
  const route = currentRoute.use();
  const { parameters } = route;
  const frame = frameOf(route);
  const initial = useRef(""); // stays once set: a new model must not replace the one in use
  if (!models.some((one) => one.name === initial.current && one.state === "ready"))
    initial.current = defaultModel(view, models);
  const name = parameters["model"] ?? initial.current;
  const args = useArguments(view, name, parameters);
  const model = models.find((one) => one.name === name);
  const loading = model?.state === "loading";
  const image = view.fields.find((field) => field.image);
  const needsImage = !loading && image !== undefined && takesImages(model) && !args[image.name];
  const incomplete = view.fields.find((field) => field.required && !args[field.name]?.trim());
  const unsuited = !!model && !!view.needs && !can(model, view.needs.capability);
  const [result, setResult] = useState<Result | null>(null);
  const [error, setError] = useState("");
  const [progress, setProgress] = useState("");
  const [submission, setSubmission] = useState(0);
  const ready = !loading && !needsImage && !incomplete && !unsuited;
  useEffect(() => {
    setProgress("");
    setError("");
    if (needsImage || incomplete || unsuited) setResult(null);
    if (!ready) return;
    const controller = new AbortController();
    const { signal } = controller;
    const show = (payload: Payload) => signal.aborted || setResult({ payload, args });
    const onEvent = (event: VerbEvent) =>
      event.type === "progress" &&
      setProgress(`${event.stage}: ${event.done}${event.total === null ? "" : ` of ${event.total}`} ${event.unit} …`);
    const request = () => runVerb(view.verb!, view.toRequest?.(args, takesImages(model)) ?? args, onEvent, signal);
    (view.load ? view.load(args, show, signal) : request())
      .then(show, (problem: Error) => signal.aborted || setError(problem.message))
      .then(() => (model?.state === "failed" ? refreshModels() : undefined)); // the server tried to load it again
    return () => controller.abort();
  }, [view, args, ready, submission]);
  const share = sharedBy(view, args, result?.payload ?? null, route);
  useSharing(view, route, share, result?.args === args && !error, models);
  const submit = (next: Arguments) => {
    // Layer, head and the like stay; a selected token belonged to the old text.
    const { lock: _, token: __, ...kept } = currentRoute.get().parameters;
    const first = view.fields[0]?.name ?? "model";
    navigate(
      { view: view.name, parameters: { ...withoutEmpty({ ...kept, ...next }), [first]: next[first] ?? "" } },
      { push: true },
    );
    setSubmission(submission + 1);
  };
  const busy = ready ? !error && result?.args !== args : loading;
  const status = needsImage
    ? `${name} takes images: choose one.`
    : incomplete && !unsuited
      ? incomplete.required
      : !busy
        ? ""
        : loading
          ? `Waiting for ${name} …`
          : progress || "Computing …";
  const { Below } = view;
  return (
    <>
      {frame === "full" && (!view.ownForm || error) && (
        <Form view={view} models={models} args={args} submit={submit} error={error} />
      )}
      {frame !== "full" && <ErrorMessage text={error} />}
      {frame === "full" && <Examples view={view} models={models} args={args} />}
      <p role="status" class="muted busy">
        {status}
      </p>
      {unsuited && <Unsuited view={view} name={name} models={models} />}
      {result && (
        <div class="result" aria-busy={busy}>
          <ViewWithExports view={view} payload={result.payload} args={result.args} frame={frame} />
          {frame === "full" && share && (
            <SeeAlso views={views.filter((one) => one !== view)} share={share} models={models} />
          )}
        </div>
      )}
      {frame === "full" && Below && !busy && <Below payload={result?.payload ?? null} args={args} model={model} />}
    </>
  );
}

/** The values of the form. Equal values are the same object, so that only a change of them makes a request. */
function useArguments(view: View, model: string, parameters: Readonly<Record<string, string>>): Arguments {
  const fresh = !view.fields.some((field) => field.name in parameters);
  const values: Record<string, string> = { model };
  for (const field of view.fields) values[field.name] = parameters[field.name] ?? (fresh ? field.start : "");
  return useMemo(() => values, [view, JSON.stringify(values)]);
}

/**
 * Keeps what the user chose for the other views, once there is a result. What a view starts with is not the user's
 * choice.
 */
function useSharing(
  view: View,
  route: Route,
  share: Shared | null,
  done: boolean,
  models: readonly ModelState[],
): void {
  const start = startParameters(view, models);
  const chosen =
    done && share !== null && Object.entries(route.parameters).some(([name, value]) => start[name] !== value);
  useEffect(() => {
    if (chosen) shared.set(share);
  }, [chosen, JSON.stringify(share)]);
  useEffect(() => {
    if (chosen) remember(view, share!.text, route);
  }, [chosen, share?.text]);
}

/** Links to the other views that can show the same sentence. */
function SeeAlso({ views, share, models }: { views: readonly View[]; share: Shared; models: readonly ModelState[] }) {
  const links = views.flatMap((view) => {
    const route = routeWith(share, view, models);
    return route ? [{ view, address: formatRoute(route) }] : [];
  });
  if (!links.length) return null;
  return (
    <nav class="see-also" aria-label="See this in other views">
      <span class="muted">See this in</span>
      {links.map(({ view, address }) => (
        <a key={view.name} class="chip" href={address} title={view.about}>
          {view.title}
        </a>
      ))}
    </nav>
  );
}
