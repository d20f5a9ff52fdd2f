// Texts and numbers as people of a language write them.

import { SENTENCES } from "./sentences.js";
import { TEXTS } from "./texts.js";

const NOTHING = "–";

/** What stands for a name in braces; other names stand for any text. @type {Record<string, string>} */
const VALUES = { count: "[\\d,]+", share: "[\\d.,]+ ?%", cause: "[a-z ]+" };

/** @param {Record<string, string>} sentences English ones and what they are in another language */
function patternsOf(sentences) {
  return Object.entries(sentences).map(([english, own]) => {
    const source = english
      .replace(/[.*+?^$()[\]|\\]/gu, "\\$&")
      .replace(/\{(\w+)\}/gu, (_, name) => `(?<${name}>${VALUES[name.replace(/_.*$/u, "")] ?? ".*?"})`);
    return { pattern: new RegExp(`^${source}$`, "su"), own };
  });
}

export class Language {
  /** @param {string} code */
  constructor(code) {
    this.code = code in TEXTS ? code : "en";
    this.texts = TEXTS[this.code];
    this.patterns = patternsOf(SENTENCES[this.code] ?? {});
    this.whole = new Intl.NumberFormat(this.code, { maximumFractionDigits: 0 });
    this.short = new Intl.NumberFormat(this.code, {
      notation: "compact",
      minimumSignificantDigits: 3,
      maximumSignificantDigits: 3,
    });
    this.tick = new Intl.NumberFormat(this.code, { style: "percent", maximumFractionDigits: 1 });
    this.axis = new Intl.NumberFormat(this.code, { notation: "compact", maximumSignificantDigits: 3 });
    this.percent = new Intl.NumberFormat(this.code, {
      style: "percent",
      minimumFractionDigits: 1,
      maximumFractionDigits: 1,
    });
  }

  /**
   * @param {string} key
   * @param {Record<string, string>} values for the names in braces; behind a colon stands what is counted, in the singular
   */
  text(key, values = {}) {
    return this.texts[key].replace(/\{(\w+)(?::(\w+))?\}/gu, (_, name, counted) => {
      const value = values[name] ?? "";
      return counted ? `${value} ${counted}${value === "1" ? "" : "s"}` : value;
    });
  }

  /** A sentence of prefold's analysis; what it names or counts is taken over. @param {string} english @returns {string} */
  sentence(english) {
    for (const { pattern, own } of this.patterns) {
      const found = pattern.exec(english);
      if (!found) continue;
      const values = found.groups ?? {};
      return own.replace(/\{(\w+)\}/gu, (_, name) =>
        name === "cause" ? this.named("cause", values.cause.replaceAll(" ", "_")) : this.sentence(values[name]),
      );
    }
    return english;
  }

  /** The text of a name that a newer analysis may have brought. @param {string} group @param {string} name */
  named(group, name) {
    const key = `${group}.${name}`;
    return Object.hasOwn(this.texts, key) ? this.texts[key] : name.replaceAll("_", " ");
  }

  /** @param {number | null | undefined} value */
  count(value) {
    return value === null || value === undefined ? NOTHING : this.whole.format(value);
  }

  /** @param {number} value */
  difference(value) {
    return new Intl.NumberFormat(this.code, { signDisplay: "exceptZero" }).format(value);
  }

  /** @param {number | null | undefined} value */
  compact(value) {
    if (value === null || value === undefined) return NOTHING;
    return Math.abs(value) < 10_000 ? this.whole.format(value) : this.short.format(value);
  }

  /**
   * A share. It lies between 0 and 1 whatever is given, and only all is 100 %, only nothing 0 %.
   * @param {number | null | undefined} value
   */
  rate(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
    const share = Math.min(1, Math.max(0, value));
    if (share > 0 && share < 0.0005) return `< ${this.percent.format(0.001)}`;
    return this.percent.format(share < 1 ? Math.min(share, 0.999) : 1);
  }

  /** @param {number | null | undefined} value @param {string} currency */
  money(value, currency) {
    if (value === null || value === undefined) return NOTHING;
    const size = Math.abs(value);
    const digits = size >= 1000 ? 0 : size >= 0.01 || size === 0 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(size)));
    const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    try {
      return new Intl.NumberFormat(this.code, {
        style: "currency",
        currency,
        currencyDisplay: "narrowSymbol",
        ...options,
      }).format(value);
    } catch {
      return `${new Intl.NumberFormat(this.code, options).format(value)} ${currency.slice(0, 8)}`; // not a currency of ISO 4217
    }
  }

  /** @param {number} value */
  bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    const step = value > 0 ? Math.min(units.length - 1, Math.floor(Math.log2(value) / 10)) : 0;
    return `${new Intl.NumberFormat(this.code, { maximumSignificantDigits: 3 }).format(value / 1024 ** step)} ${units[step]}`;
  }

  /**
   * A time of the log: seconds since 1970, or since its trace began.
   * @param {number} seconds @param {boolean} isShort
   */
  time(seconds, isShort = false) {
    if (seconds < 1e8) {
      const minutes = Math.floor(seconds / 60);
      const parts = [Math.floor(minutes / 60), minutes % 60, Math.floor(seconds % 60)];
      return parts.map((part) => String(part).padStart(2, "0")).join(":");
    }
    const style = isShort
      ? /** @type {const} */ ({ month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" })
      : /** @type {const} */ ({
          year: "numeric",
          month: "short",
          day: "numeric",
          hour: "2-digit",
          minute: "2-digit",
          hourCycle: "h23",
        });
    return (
      new Intl.DateTimeFormat(this.code, { ...style, timeZone: "UTC" }).format(seconds * 1000) + (isShort ? "" : " UTC")
    );
  }
}
