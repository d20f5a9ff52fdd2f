// Two texts side by side, with what differs marked and what cannot be seen made visible.

/** @type {Record<string, string>} */
const SIGNS = { "\n": "⏎", "\t": "⇥", "\u00a0": "⍽" };

// As in `prefold.prompts.invisible`, but without a look behind, which older browsers do not know.
const SPACES_THAT_MATTER = /^ +| +$| {2,}| +(?=[\n\r\t])|([\n\r\t]) +/gu;

/**
 * Signs for white space that matters, and code points for characters without a glyph.
 * @param {string} text @returns {string}
 */
export function visible(text) {
  return readable(
    text.replace(SPACES_THAT_MATTER, (found, before = "") => before + "·".repeat(found.length - before.length)),
  );
}

/** The same, but spaces stay: for text around a difference. @param {string} text */
export function readable(text) {
  return Array.from(text, (character) => {
    if (Object.hasOwn(SIGNS, character)) return SIGNS[character];
    if (character === " " || !/[\p{C}\p{Z}\p{Mn}]/u.test(character)) return character;
    const code = /** @type {number} */ (character.codePointAt(0));
    return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
  }).join("");
}

/**
 * What two texts share at their beginning and at their end, and what lies between.
 * @param {string} before @param {string} after
 * @returns {{start: string, before: string, after: string, end: string}}
 */
export function difference(before, after) {
  const one = Array.from(before);
  const other = Array.from(after);
  const most = Math.min(one.length, other.length);
  let start = 0;
  while (start < most && one[start] === other[start]) start++;
  let end = 0;
  while (end < most - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end++;
  return {
    start: one.slice(0, start).join(""),
    before: one.slice(start, one.length - end).join(""),
    after: other.slice(start, other.length - end).join(""),
    end: one.slice(one.length - end).join(""),
  };
}
