// Words of a person for the agent in whose process this runs: see hook.py, which does the same.
import { readdirSync, readFileSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";

// All words that wait, the oldest first; empty where there are none. Of several who try at once, one has them.
export function claim(): string {
  const place = process.env.RALPH_WORDS ?? "";
  let names: string[];
  try {
    names = readdirSync(place).filter((name) => name.endsWith(".txt") && !name.startsWith("."));
  } catch {
    return "";
  }
  const taken: { age: bigint; text: string }[] = [];
  for (const name of names) {
    const claimed = join(place, name.replace(/\.txt$/, ".heard.hook"));
    try {
      renameSync(join(place, name), claimed);
    } catch {
      continue;
    }
    taken.push({ age: statSync(claimed, { bigint: true }).mtimeNs, text: readFileSync(claimed, "utf8") });
  }
  taken.sort((one, other) => (one.age < other.age ? -1 : 1));
  return taken.map((words) => words.text).join("\n\n");
}
