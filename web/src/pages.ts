// The pages of the studio beside its views, in the order of the menu. The first one opens.
import { home } from "./home";
import { learn } from "./learn/learn";
import type { Page } from "./view";

export const pages: readonly Page[] = [home, learn];
