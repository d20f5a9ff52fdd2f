// The page: reads the analysis that lies beside this script, and shows it in the language and theme that were chosen.

import { element } from "./elements.js";
import { flameSection } from "./flame-section.js";
import { Language } from "./language.js";
import { about, attribution, breaks, overview } from "./sections.js";
import { advice, caches, capacity, order, overTime, routes } from "./what-if-sections.js";

/** @typedef {import("./flame-section.js").FlameSection} FlameSection */

const THEMES = ["auto", "light", "dark"];

/** What stays when the page is left, where the browser allows it. */
const memory = {
  /** @param {string} name */
  get(name) {
    try {
      return localStorage.getItem(`prefold-${name}`);
    } catch {
      return null;
    }
  },
  /** @param {string} name @param {string} value */
  set(name, value) {
    try {
      localStorage.setItem(`prefold-${name}`, value);
    } catch {
      // A page opened from a file may have no memory.
    }
  },
};

const PATIENCE = 1000; // milliseconds until a browser that refused a new address is asked again

/** Zoom and search, in the fragment of the address. */
const address = {
  kept: new URLSearchParams(location.hash.slice(1)),
  waiting: 0,
  get: () => address.kept,
  /** @param {Record<string, string>} values empty ones are taken out */
  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (value) address.kept.set(name, value);
      else address.kept.delete(name);
    }
    address.write();
  },
  write() {
    clearTimeout(address.waiting);
    const fragment = address.kept.toString();
    if (fragment === location.hash.slice(1)) return;
    try {
      history.replaceState(null, "", fragment ? `#${fragment}` : "#");
    } catch {
      // Some browsers allow a hundred of these in half a minute.
      address.waiting = setTimeout(address.write, PATIENCE);
    }
  },
};

const { analysis: data, version } = JSON.parse(
  /** @type {HTMLElement} */ (document.getElementById("analysis")).textContent ?? "",
);
const page = /** @type {HTMLElement} */ (document.getElementById("page"));
const said = element("div", { class: "toast", role: "status", "aria-live": "polite" });
let language = new Language(memory.get("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
let theme = memory.get("theme") ?? "auto";
let isOnPaper = matchMedia("print").matches;
/** @type {FlameSection | null} */
let flame = null;
let quiet = 0;

/** @param {string} message */
function say(message) {
  said.textContent = message;
  clearTimeout(quiet);
  quiet = setTimeout(() => (said.textContent = ""), 3000);
}

/** @param {string} value */
async function copy(value) {
  try {
    await navigator.clipboard.writeText(value);
    say(language.text("page.copied", { text: value.slice(0, 120) }));
  } catch {
    say(language.text("page.uncopied"));
  }
}

function applyTheme() {
  const isDark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = isDark && !isOnPaper ? "dark" : "light";
  flame?.recolor();
}

/** Lays the page out for paper or for the screen; what is drawn is as wide as its place. @param {boolean} onPaper */
function layOut(onPaper) {
  isOnPaper = onPaper;
  if (onPaper) document.documentElement.dataset.paper = "";
  else delete document.documentElement.dataset.paper;
  applyTheme();
  for (const drawn of document.querySelectorAll(".chart, .flame")) drawn.dispatchEvent(new Event("fit"));
}

function show() {
  const text = language.text.bind(language);
  document.documentElement.lang = language.code === "zh" ? "zh-Hans" : "en";
  document.title = `${data.title} · prefold`;
  flame = data.flame?.nodes.depth.length ? flameSection(data.flame, language, data.title, address, copy) : null;
  /** @type {[string, any][]} */
  const contents = [
    ["overview", overview(data, language)],
    ["advice", advice(data, language, copy)],
    ["attribution", attribution(data, language)],
    ["flame", flame && [flame.element]],
    ["breaks", breaks(data, language)],
    ["order", order(data, language)],
    ["capacity", capacity(data, language)],
    ["over_time", overTime(data, language)],
    ["caches", caches(data, language)],
    ["routes", routes(data, language)],
  ];
  const sections = contents.map(([name, content]) =>
    element(
      "section",
      { id: `section-${name}`, "aria-labelledby": `heading-${name}` },
      element("h2", { id: `heading-${name}`, tabindex: "-1" }, text(name)),
      content && Object.hasOwn(language.texts, `${name}.note`) && element("p", { class: "lead" }, text(`${name}.note`)),
      ...(content ?? [element("p", { class: "hint" }, text("page.none"))]),
    ),
  );
  /** The fragment holds the flame graph's state, so that these links may not change it. @param {string} name */
  const jump = (name) => (/** @type {Event} */ event) => {
    event.preventDefault();
    const heading = /** @type {HTMLElement} */ (document.getElementById(`heading-${name}`));
    heading.scrollIntoView({ block: "start" });
    heading.focus({ preventScroll: true });
  };
  const links = contents.map(([name]) =>
    element("a", { href: `#section-${name}`, onclick: jump(name) }, text(`nav.${name}`)),
  );
  page.replaceChildren(
    element("a", { class: "skip", href: "#section-overview", onclick: jump("overview") }, text("page.skip")),
    element(
      "header",
      {},
      element("div", { class: "masthead" }, heading(), controls()),
      element("nav", { class: "sections", "aria-label": text("page.sections") }, ...links),
    ),
    element("main", {}, ...sections),
    element(
      "footer",
      { "aria-labelledby": "heading-about" },
      element("h2", { id: "heading-about" }, text("about")),
      ...about(data, language, version),
    ),
    said,
  );
  layOut(isOnPaper);
}

function heading() {
  const text = language.text.bind(language);
  const { log } = data;
  const facts = [
    text("log.requests", { count: language.count(log.requests) }),
    log.sessions > 0 && text("log.sessions", { count: language.count(log.sessions) }),
    log.tenants > 0 && text("log.tenants", { count: language.count(log.tenants) }),
    typeof log.first_time === "number" &&
      typeof log.last_time === "number" &&
      text("log.span", { from: language.time(log.first_time), to: language.time(log.last_time) }),
  ];
  return element(
    "div",
    {},
    element("p", { class: "kicker" }, "prefold · ", text("page.title")),
    element("h1", { translate: "no" }, language.sentence(data.title)),
    element("p", { class: "facts" }, facts.filter(Boolean).join(" · ")),
    data.complete === false && element("p", { class: "redacted" }, text("page.incomplete")),
    data.redacted && element("p", { class: "redacted" }, text("page.redacted")),
  );
}

function controls() {
  const text = language.text.bind(language);
  return element(
    "div",
    { class: "controls" },
    element(
      "button",
      {
        type: "button",
        id: "language",
        "aria-label": text("page.language.label"),
        lang: language.code === "zh" ? "en" : "zh-Hans",
        onclick: switchLanguage,
      },
      text("page.language"),
    ),
    element("button", { type: "button", id: "theme", onclick: switchTheme }, text(`page.theme.${theme}`)),
    element("button", { type: "button", onclick: () => print() }, text("page.print")),
  );
}

function switchLanguage() {
  language = new Language(language.code === "zh" ? "en" : "zh");
  memory.set("language", language.code);
  show();
  document.getElementById("language")?.focus();
}

function switchTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  memory.set("theme", theme);
  applyTheme();
  /** @type {HTMLElement} */ (document.getElementById("theme")).textContent = language.text(`page.theme.${theme}`);
}

if (!THEMES.includes(theme)) theme = "auto";
show();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
matchMedia("print").addEventListener("change", (event) => layOut(event.matches));
addEventListener("beforeprint", () => layOut(true));
addEventListener("afterprint", () => layOut(false));
addEventListener("hashchange", () => {
  address.kept = new URLSearchParams(location.hash.slice(1));
  show();
});
