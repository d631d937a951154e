// Which exercises the reader has answered, kept in the browser.
import { store } from "../store";

const KEY = "regard-exercises";

/** By "chapter/exercise": whether the prediction was right. */
type Answers = Readonly<Record<string, boolean>>;

function stored(): Answers {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return typeof value === "object" && value !== null ? (value as Answers) : {};
  } catch {
    return {}; // no storage, or not ours
  }
}

const answers = store<Answers | null>(null);

/** Hook: the answers so far. */
export function useAnswers(): Answers {
  const value = answers.use();
  if (value) return value;
  const first = stored();
  answers.set(first);
  return first;
}

export function saveAnswer(key: string, right: boolean): void {
  const next = { ...stored(), ...answers.get(), [key]: right };
  answers.set(next);
  try {
    localStorage.setItem(KEY, JSON.stringify(next));
  } catch {
    // kept until the page is closed
  }
}
