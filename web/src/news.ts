// What a view tells the studio around it. Knows neither of them.
import { store } from "./store";

/** How often the studio's models have become other ones since the page was opened. */
export const modelsChanged = store(0);
