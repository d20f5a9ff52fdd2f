// Every text of the page, in each language.

import { ENGLISH } from "./texts-en.js";
import { CHINESE } from "./texts-zh.js";

/** @type {Record<string, Record<string, string>>} */
export const TEXTS = { en: ENGLISH, zh: CHINESE };
